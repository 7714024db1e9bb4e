"""Conversations and templates that cannot be used: each fault gives a line."""

import pytest

from tasks.common import models
from tasks.common.errors import DataError
from tasks.language.data.conversations import encode_conversation, encode_conversation_prompt
from tests.tasks.chats import chat_tokenizer
from tests.tasks.language.data.test_conversations import TURNS


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def conversation(*roles):
    return [{"role": role, "content": "text"} for role in roles]


@pytest.mark.parametrize(
    ("name", "messages", "line"),
    [
        ("ChatML", [], "the conversation is empty; expected messages with a role and a content"),
        (
            "ChatML",
            conversation("system", "user"),
            "the conversation has no assistant turn; expected one, since nothing else is trained on",
        ),
        (
            "ChatML",
            conversation("assistant", "user", "assistant"),
            "message 1 is an assistant turn; expected a user turn or a system prompt before it",
        ),
        (
            "ChatML",
            conversation("user", "gpt"),
            "message 2: its role is 'gpt'; expected system, developer, user, assistant or tool",
        ),
        ("ChatML", ["Why?"], "message 1 is a str; expected a role and a content"),
        (
            "ChatML",
            [TURNS[0], {"role": "assistant"}],
            "message 2 (assistant): its content is a NoneType; expected text",
        ),
        ("ChatML", [{"role": "user", "content": ["Why?"]}], "message 1 (user): its content is a list; expected text"),
        (
            "ChatML",
            [{"role": "user", "content": "\ud83d"}],
            "message 1 (user): its content has half a character (a surrogate)",
        ),
        (
            "Gemma 2",
            conversation("system", "user", "assistant"),
            "the chat template refuses the conversation: System role not supported",
        ),
        (
            "Mistral",
            conversation("user", "user", "assistant"),
            "the chat template refuses the conversation: Conversation roles must alternate "
            "user/assistant/user/assistant/...",
        ),
        (
            "Llama 2",
            conversation("system", "user", "assistant"),
            "message 1 (system): the chat template has no such role and renders it as assistant; expected a "
            "conversation without it, or a "
            "template that knows it",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(name, messages, line):
    with pytest.raises(DataError) as stopped:
        encode_conversation(chat_tokenizer(name), messages)
    assert str(stopped.value) == line


def test_a_system_prompt_is_no_answer(words):
    """Our own template takes every turn that is not the user's for the assistant's."""
    for encode in (encode_conversation_prompt, encode_conversation):
        messages = conversation("system", "user", "assistant")[: 2 if encode is encode_conversation_prompt else 3]
        with pytest.raises(DataError, match=r"^message 1 \(system\): .* renders it as assistant;"):
            encode(words, messages)


@pytest.mark.parametrize(
    ("template", "line"),
    [
        (None, r"the chat template cannot be rendered \(ValueError: Cannot use chat template functions .*\)"),
        ("{% for", r"the chat template cannot be rendered \(TemplateSyntaxError: .*\)"),
        ("{{ messages[7].content }}", r"the chat template cannot be rendered \(UndefinedError: .*\)"),
        ("{{ ().__class__.__mro__ }}", r"the chat template cannot be rendered \(SecurityError: .*\)"),
        ("{{ raise_exception('a\nb') }}", "the chat template refuses the conversation: a b"),
        (
            "{% if messages[1] %}{{ messages[1].content }}{% endif %}",
            r"message 1 \(user\): the chat template leaves its content out",
        ),
    ],
)
def test_a_broken_template_is_one_line(template, line):
    tokenizer = chat_tokenizer("ChatML")
    tokenizer.chat_template = template
    for encode, count in ((encode_conversation, 2), (encode_conversation_prompt, 1)):
        with pytest.raises(DataError, match=f"^{line}$"):
            encode(tokenizer, TURNS[:count])


def test_a_prompt_ends_before_an_answer():
    with pytest.raises(
        DataError, match=r"^message 2 is the last and an assistant turn; expected a user or tool turn there$"
    ):
        encode_conversation_prompt(chat_tokenizer("ChatML"), TURNS[:2])


def test_a_tokenizer_without_an_end_token_is_one_line():
    tokenizer = chat_tokenizer("ChatML")
    tokenizer.eos_token = None
    with pytest.raises(DataError, match=r"^the tokenizer has no end token; expected an eos_token"):
        encode_conversation(tokenizer, TURNS)

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from tasks.common import models
from tasks.language.data import chat
from tests import repository
from tests.tasks.chats import CHATS, chat_tokenizer

STORIES = Path(__file__).parents[5] / "shared/models/stories260K"
QUESTIONS = ["Why?", " Ada has 3 pens,  buys 4.\nHow many? ", "", "x < 3 | y > 4", "naïve ½ 数", "<|", "|>", "</"]


@pytest.fixture(params=["ours", "stories260K"])
def tokenizer(request, words):
    """Our tokenizer with its markers, or a SentencePiece tokenizer without a template, whose texts begin with a
    space.
    """
    if request.param == "ours":
        return words
    if not STORIES.is_dir():
        pytest.skip(repository.needs("models/stories260K"))
    stories = models.load_tokenizer(STORIES)
    stories.chat_template = stories.chat_template or chat.PLAIN_TEMPLATE
    return stories


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


@pytest.fixture
def plain():
    """A base model's tokenizer: it has no template, and its padding token is its end token."""
    vocabulary = {word: number for number, word in enumerate(["</s>", "?", "Question", ":", "Answer", "Why", "7"])}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = chat.PLAIN_TEMPLATE
    return tokenizer


def test_a_prompt_ends_where_the_response_begins(words):
    tokens = words.convert_ids_to_tokens(chat.encode_prompt(words, "Why?"))
    assert tokens[0] == "<|user|>"
    assert tokens[-1] == "<|assistant|>"
    assert words.decode(chat.encode_prompt(words, "Why?")) == "<|user|>Why?<|assistant|>"


def test_a_response_ends_with_the_end_token_unless_it_was_cut_off(words):
    whole, cut = chat.encode_response(words, "3 + 4"), chat.encode_response(words, "3 + 4", ended=False)
    assert whole == [*cut, words.eos_token_id]
    assert words.eos_token_id not in cut


def test_decoding_leaves_the_end_token_out_and_no_other(words):
    """A special token within an answer is part of the model's text, and is judged."""
    text = "3 + 4 = 7\n#### 7"
    assert chat.decode_response(words, chat.encode_response(words, text)) == text
    user, pad = words.convert_tokens_to_ids(["<|user|>", "<|pad|>"])
    answer = [*chat.encode_response(words, "3 +", ended=False), user, *chat.encode_response(words, " 4")]
    assert chat.decode_response(words, answer) == "3 +<|user|> 4"
    assert chat.decode_response(words, answer[:-1], ended=False) == "3 +<|user|> 4"
    assert chat.decode_response(words, [*answer[:-1], pad], ended=False) == "3 +<|user|> 4<|pad|>", "cut off behind it"
    assert chat.decode_response(words, torch.tensor(answer)) == "3 +<|user|> 4"


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("name", CHATS)
def test_a_response_is_closed_as_the_chat_template_closes_it(name, special):
    _, end_of_text, end, _ = CHATS[name]
    words = chat_tokenizer(name, special)
    assert words.convert_ids_to_tokens(chat.end_token(words)) == end
    prompt, response = chat.encode_prompt(words, "Why?"), chat.encode_response(words, "So it is.")
    assert words.convert_ids_to_tokens(response[-1]) == end
    assert chat.decode_response(words, response) == "So it is."
    conversation = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So it is."}]
    whole = words.apply_chat_template(conversation, tokenize=False)
    if name not in ("Llama 2", "without an end"):  # a space before the end; no end
        assert whole.startswith(words.decode(prompt + response))
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=None))
    assert chat.end_tokens(model, words) == {*words.convert_tokens_to_ids([end_of_text, end])}


def test_a_template_that_rewrites_answers_ends_them_by_the_tokenizers_end():
    words = chat_tokenizer("ChatML")
    words.chat_template = words.chat_template.replace("message['content']", "message['content'] | upper")
    assert chat.end_token(words) == words.eos_token_id


def test_a_tokenizer_without_a_template(plain):
    prompt, response = chat.encode_prompt(plain, "Why"), chat.encode_response(plain, "7")
    assert plain.convert_ids_to_tokens(prompt) == ["Question", ":", "Why", "Answer", ":"]
    assert plain.convert_ids_to_tokens(response) == ["7", "</s>"]
    conversation = [{"role": "user", "content": "Why"}, {"role": "assistant", "content": "7"}]
    assert prompt + response == plain.apply_chat_template(conversation)["input_ids"]


@pytest.mark.parametrize(("declared", "found"), [(None, {0}), (5, {0, 5}), ([5, 6], {0, 5, 6}), ([0], {0})])
def test_every_declared_end_token_counts(plain, declared, found):
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=declared))
    assert chat.end_tokens(model, plain) == found


@pytest.mark.parametrize("question", QUESTIONS)
def test_ordinary_text_has_the_tokens_of_the_chat_template(tokenizer, question):
    conversation = [{"role": "user", "content": question}]
    theirs = tokenizer.apply_chat_template(conversation, add_generation_prompt=True)["input_ids"]
    assert chat.encode_prompt(tokenizer, question) == theirs
    assert chat.encode_response(tokenizer, question, ended=False) == tokenizer.encode(
        question, add_special_tokens=False
    )


def test_a_special_tokens_text_is_text(tokenizer):
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    markers = [token for token in chat.encode_prompt(tokenizer, "Why?") if token in special]
    for name in {*tokenizer.all_special_tokens, *tokenizer.added_tokens_encoder}:
        text = f"Say {name}{name} now"
        prompt, response = chat.encode_prompt(tokenizer, text), chat.encode_response(tokenizer, text)
        assert [token for token in prompt if token in special] == markers, "the template's own, and no more"
        assert [token for token in response if token in special] == [chat.end_token(tokenizer)]
        assert text in tokenizer.decode(prompt)
        assert chat.decode_response(tokenizer, response) == text
        assert tokenizer.eos_token_id in tokenizer.encode(tokenizer.eos_token), "nothing was left switched off"


def test_the_markers_of_the_text_are_no_way_around(words):
    """Transformers marks user text by two private-use characters, which a question may also contain."""
    start, end = "\U000f0000", "\U000f0001"
    for text in (f"{start}<|end|>{end}", f"{end}<|end|>{start}", f"<|en{start}d|>", f"<|{start}{end}end|>"):
        assert words.eos_token_id not in chat.encode_prompt(words, text)

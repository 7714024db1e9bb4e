"""Conversations of several turns, by the templates of well-known models."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AddedToken

from tasks.common import models
from tasks.common.errors import DataError
from tasks.language.data import chat
from tasks.language.data.conversations import encode_conversation, encode_conversation_prompt
from tests.tasks.chats import CHATML, CHATS, CONVERSATIONS, chat_tokenizer
from tests.tasks.language.data.test_chat import QUESTIONS

ALL = [*CHATS, *CONVERSATIONS]
SYSTEM = {"role": "system", "content": "Be brief."}
TURNS = [
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So it is."},
    {"role": "user", "content": "And how?"},
    {"role": "assistant", "content": "Slowly.\nVery."},
]


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def runs(tokenizer, ids, mask):
    """The text of each run of tokens that are all trained, in brackets, or all not."""
    assert len(ids) == len(mask)
    found, start = [], 0
    for at in range(1, len(ids) + 1):
        if at == len(ids) or mask[at] != mask[start]:
            text = tokenizer.decode(ids[start:at], skip_special_tokens=False)
            found.append([text] if mask[start] else text)
            start = at
    return found


QWEN_PROMPT = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"


@pytest.mark.parametrize(
    ("name", "messages", "expected"),
    [
        (
            "Qwen 2.5",
            TURNS,
            [
                QWEN_PROMPT + "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
                ["So it is.<|im_end|>"],
                "\n<|im_start|>user\nAnd how?<|im_end|>\n<|im_start|>assistant\n",
                ["Slowly.\nVery.<|im_end|>"],
            ],
        ),
        (
            "Qwen 2.5",
            [SYSTEM, *TURNS[:3]],
            [
                "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
                ["So it is.<|im_end|>"],
                "\n<|im_start|>user\nAnd how?<|im_end|>\n",
            ],
        ),
        (
            "Llama 3 Instruct",
            [SYSTEM, *TURNS],
            [
                "<bos><|start_header_id|>system<|end_header_id|>\n\nBe "
                "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
                "Why?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                ["So it is.<|eot_id|>"],
                "<|start_header_id|>user<|end_header_id|>\n\nAnd "
                "how?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                ["Slowly.\nVery.<|eot_id|>"],
            ],
        ),
        (
            "Gemma 2",
            TURNS,
            [
                "<bos><start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
                ["So it is.<end_of_turn>"],
                "\n<start_of_turn>user\nAnd how?<end_of_turn>\n<start_of_turn>model\n",
                ["Slowly.\nVery.<end_of_turn>"],
            ],
        ),
        (
            "Mistral",
            TURNS,
            ["<bos>[INST] Why? [/INST]", [" So it is.</s>"], "[INST] And how? [/INST]", [" Slowly.\nVery.</s>"]],
        ),
        (
            "without an end",
            TURNS,
            [
                "user: Why?\nassistant: ",
                ["So it is.</s>"],
                "\nuser: And how?\nassistant: ",
                ["Slowly.\nVery.</s>"],
            ],
        ),
        (
            "Phi 3",
            TURNS,
            [
                "<|user|>\nWhy?<|end|>\n<|assistant|>\n",
                ["So it is.<|end|>"],
                "\n<|user|>\nAnd how?<|end|>\n<|assistant|>\n",
                ["Slowly.\nVery.<|end|>"],
            ],
        ),
    ],
)
def test_each_template_by_hand(name, messages, expected):
    tokenizer = chat_tokenizer(name)
    assert runs(tokenizer, *encode_conversation(tokenizer, messages)) == expected


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_one_question_with_one_answer_is_what_chat_makes_of_it(name, special):
    check_one_exchange(chat_tokenizer(name, special))


def test_one_question_with_one_answer_for_our_own_tokenizer(words):
    check_one_exchange(words)


def check_one_exchange(tokenizer):
    for text in QUESTIONS:
        asked, answered = {"role": "user", "content": text}, {"role": "assistant", "content": text}
        prompt, response = chat.encode_prompt(tokenizer, text), chat.encode_response(tokenizer, text)
        ids, mask = encode_conversation(tokenizer, [asked, answered])
        assert ids == prompt + response
        assert mask == [False] * len(prompt) + [True] * len(response)
        assert encode_conversation_prompt(tokenizer, [asked]) == prompt


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("Llama 2", "Mistral", "without an end")])
def test_a_turn_is_trained_behind_the_prompt_that_it_is_sampled_from(name):
    """All but those whose answers begin with a space, or have no end."""
    tokenizer = chat_tokenizer(name)
    ids, mask = encode_conversation(tokenizer, TURNS)
    first = mask.index(True)
    second = mask.index(True, mask.index(False, first))
    for place, start in ((1, first), (3, second)):
        conversation = {"conversation": TURNS[:place], "sanitize_control_tokens": True}
        conversation["chat_template"] = chat.build_fixed_date_template(
            tokenizer
        )  # Llama 3.2's own would write today's date
        assert ids[:start] == tokenizer.apply_chat_template(**conversation, add_generation_prompt=True)["input_ids"]
        assert ids[:start] == encode_conversation_prompt(tokenizer, TURNS[:place])


@pytest.mark.parametrize("name", ALL)
def test_every_answer_is_closed_by_a_token_that_ends_generation(name):
    tokenizer = chat_tokenizer(name)
    ids, mask = encode_conversation(tokenizer, TURNS)
    ends = [at for at in range(len(ids)) if mask[at] and not (at + 1 < len(ids) and mask[at + 1])]
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=None))
    assert len(ends) == 2
    assert {ids[at] for at in ends} <= chat.end_tokens(model, tokenizer)


@pytest.mark.parametrize("name", ALL)
def test_a_control_token_in_a_message_is_text(name):
    tokenizer = chat_tokenizer(name)
    control = set(tokenizer.added_tokens_encoder.values())
    found = encode_conversation(tokenizer, TURNS)[0]
    for text in tokenizer.added_tokens_encoder:
        if text.strip("</>") == "think":
            continue  # which this template looks for itself
        hostile = [{**turn, "content": f"{text}{turn['content']}{text}"} for turn in TURNS]
        ids, mask = encode_conversation(tokenizer, hostile)
        assert [token for token in ids if token in control] == [token for token in found if token in control]
        trained = [token for token, kept in zip(ids, mask, strict=True) if kept]
        answers = [chat.encode_response(tokenizer, hostile[turn]["content"]) for turn in (1, 3)]
        if name == "Qwen 3":  # opens the last answer alone by an empty thought
            answers[0] = answers[0][len(chat.encode_response(tokenizer, "", ended=False)) :]
        assert trained == [*answers[0], *answers[1]]
        prompt = [token for token in encode_conversation_prompt(tokenizer, hostile[:3]) if token in control]
        assert prompt == [token for token in encode_conversation_prompt(tokenizer, TURNS[:3]) if token in control]


def test_an_end_token_that_swallows_the_line_break_behind_it():
    """As Phi 3's does."""
    tokenizer = chat_tokenizer("ChatML")
    tokenizer.add_tokens([AddedToken("<|im_end|>", rstrip=True, special=True)], special_tokens=True)
    ids, mask = encode_conversation(tokenizer, TURNS)
    assert ids == tokenizer.apply_chat_template(TURNS)["input_ids"]
    start = len(ids) - len(chat.encode_response(tokenizer, TURNS[3]["content"]))
    assert mask[start - 1 :] == [False, *[True] * (len(ids) - start)]


EARLIER = "message['role'] == 'assistant' and not loop.last"


@pytest.mark.parametrize(
    "change",
    [
        (
            "message['content']",
            f"(message['content'][:3] if {EARLIER} else message['content'])",
        ),  # cuts earlier answers
        ("message['content']", f"('Well. ' if {EARLIER} else '') + message['content']"),  # writes more into them
        ("'<|im_end|>'", f"('' if {EARLIER} else '<|im_end|>')"),  # does not end them
        ("'<|im_end|>'", f"('.<|im_end|>' if {EARLIER} else '<|im_end|>')"),  # ends them in another way
    ],
)
def test_a_template_that_keeps_no_prefixes_is_noticed(change):
    tokenizer = chat_tokenizer("ChatML")
    assert change[0] in CHATML
    tokenizer.chat_template = CHATML.replace(*change)
    encode_conversation(tokenizer, TURNS[:2])
    for count in (3, 4):
        with pytest.raises(
            DataError, match=r"renders message 2 \(assistant\) in another way when more messages follow"
        ):
            encode_conversation(tokenizer, TURNS[:count])


@pytest.mark.parametrize(
    "change",
    [("{% for", "{{ messages | length }}{% for"), ("assistant\n", "assistant: ")],  # begins, opens
)
def test_a_template_whose_prompt_does_not_begin_what_it_renders_is_refused(change):
    """A model would be sampled behind another prompt than it was trained behind."""
    tokenizer = chat_tokenizer("ChatML")
    tokenizer.chat_template = CHATML.replace(*change)
    for count in (2, 3, 4):
        with pytest.raises(
            DataError, match=r"^message 2 \(assistant\): the chat template opens an answer in another way"
        ):
            encode_conversation(tokenizer, TURNS[:count])


@pytest.mark.parametrize("name", ["ChatML", "Llama 3 Instruct"])
def test_what_a_template_writes_behind_an_answer_is_learned(name):
    tokenizer = chat_tokenizer(name)
    end = tokenizer.decode([chat.end_token(tokenizer)])
    said = "message['content'] | trim" if "trim" in tokenizer.chat_template else "message['content']"
    footer = f"({said}) + ('|done' if message['role'] == 'assistant' else '')"
    tokenizer.chat_template = tokenizer.chat_template.replace(said, footer)
    for turns in (TURNS[:2], TURNS):
        trained = runs(tokenizer, *encode_conversation(tokenizer, turns))[1::2]
        answers = [turn["content"] for turn in turns if turn["role"] == "assistant"]
        assert trained == [[f"{answer}|done{end}"] for answer in answers]


def test_a_template_that_trims_every_turn_keeps_its_prefixes():
    tokenizer = chat_tokenizer("Llama 3 Instruct")
    spaced = [{**turn, "content": f"{turn['content']} \n"} for turn in TURNS]
    before, first, between, second = runs(tokenizer, *encode_conversation(tokenizer, spaced))
    assert (first, second) == (["So it is.<|eot_id|>"], ["Slowly.\nVery.<|eot_id|>"]), "as they are rendered"
    assert [before, between] == runs(tokenizer, *encode_conversation(tokenizer, TURNS))[::2]


MARKED = CHATML.replace(
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}",
    "{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}{% generation %}"
    "{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% "
    "endif %}{{ '\n' }}",
)


def test_a_templates_own_marks_have_to_agree():
    tokenizer = chat_tokenizer("ChatML")
    plain = encode_conversation(tokenizer, TURNS)
    tokenizer.chat_template = MARKED
    assert encode_conversation(tokenizer, TURNS) == plain
    theirs = tokenizer.apply_chat_template(TURNS, return_assistant_tokens_mask=True, return_dict=True)
    assert list(map(bool, theirs["assistant_masks"]))[:-1] == plain[1], "behind the last end token stands a line break"
    for wrong in ("message['role'] == 'user'", "true", "message['role'] == 'assistant' and loop.last"):
        tokenizer.chat_template = MARKED.replace("{% if message['role'] == 'assistant' %}", f"{{% if {wrong} %}}")
        with pytest.raises(DataError, match=r"marks . parts as the assistant's"):
            encode_conversation(tokenizer, TURNS)
    more = "message['role'] == 'assistant' or loop.last"
    tokenizer.chat_template = MARKED.replace("{% if message['role'] == 'assistant' %}", f"{{% if {more} %}}")
    assert encode_conversation(tokenizer, TURNS) == plain
    with pytest.raises(DataError, match="marks 2 parts as the assistant's"):
        encode_conversation(tokenizer, TURNS[:3])


CHATML_TOKENIZER = chat_tokenizer("ChatML")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["<|im_end|>", "<|im_start|>assistant\n", "<|im_end|>\n", "\n", " ", "<|endoftext|>"]
)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
@settings(max_examples=20)
def test_any_texts(pairs):
    turns = [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    ids, mask = encode_conversation(CHATML_TOKENIZER, turns)
    trained = [token for token, kept in zip(ids, mask, strict=True) if kept]
    assert trained == [token for _, text in pairs for token in chat.encode_response(CHATML_TOKENIZER, text)]
    start, end = CHATML_TOKENIZER.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert (ids.count(start), ids.count(end)) == (len(turns), len(turns))


def test_the_plain_template_tells_the_roles_apart():
    """A base model's conversations: a system prompt and a tool's result stand as text, and only the answers are
    trained.
    """
    words = chat_tokenizer("plain")
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 3?"},
        {"role": "assistant", "content": "add(2, 3)"},
        {"role": "tool", "content": "5"},
        {"role": "assistant", "content": "It is 5."},
    ]
    text = words.apply_chat_template(messages, tokenize=False)
    end = words.eos_token
    assert text.removeprefix(words.bos_token or "") == (
        f"Be brief.\n\nQuestion: 2 + 3?\nAnswer:\nadd(2, 3){end}Result: 5\nAnswer:\nIt is 5.{end}"
    )
    ids, mask = encode_conversation(words, messages)
    trained = words.decode([token for token, learned in zip(ids, mask, strict=True) if learned])
    assert trained.replace(" ", "") == f"add(2,3){end}Itis5.{end}".replace(" ", "")

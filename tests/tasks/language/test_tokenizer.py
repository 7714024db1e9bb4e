import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common import models, tables
from tasks.language.configs.tokenizer import TokenizerConfig
from tasks.language.data import chat
from tasks.language.tables.problems import Problems
from tasks.language.tokenizer import run

SPECIAL = ("<|pad|>", "<|start|>", "<|user|>", "<|assistant|>", "<|end|>")
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)  # all but lone surrogates, which are no text
PLAIN_TEXT = ANY_TEXT.filter(lambda text: not any(mark in text for mark in SPECIAL))


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def test_no_token_holds_two_digits(words):
    decoded = [words.decode([token]) for token in range(len(words))]
    assert not [text for text in decoded if len(re.findall(r"\d", text)) > 1]
    assert any(len(text) > 4 for text in decoded if text not in SPECIAL), "while words did merge"
    assert len(words.encode("12345")) == 5
    assert words.convert_ids_to_tokens(words.encode("3 + 14"))[-1] == "4"


@settings(max_examples=100)
@given(PLAIN_TEXT)
def test_any_text_comes_back(words, text):
    assert words.decode(words.encode(text, add_special_tokens=False)) == text


@settings(max_examples=50)
@given(PLAIN_TEXT, PLAIN_TEXT)
def test_prompt_and_response_are_the_template_of_the_whole(words, question, answer):
    """A prompt is always a prefix of the conversation, and the end token belongs to the response.

    Special tokens in a text are plain text for us, while the template makes tokens of them:
    tests/tasks/language/data/test_chat.py.
    """
    conversation = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    whole = words.apply_chat_template(conversation, tokenize=False)
    prompt, response = chat.encode_prompt(words, question), chat.encode_response(words, answer)
    assert prompt + response == words(whole, add_special_tokens=False)["input_ids"]
    assert response[-1] == words.eos_token_id
    assert response.count(words.eos_token_id) == 1


def test_special_tokens(words):
    assert words.convert_tokens_to_ids(list(SPECIAL)) == [0, 1, 2, 3, 4]
    assert (words.pad_token, words.bos_token, words.eos_token) == ("<|pad|>", "<|start|>", "<|end|>")
    assert words.pad_token_id != words.eos_token_id


def test_size_and_metrics(made, tmp_path):
    metrics = run(TokenizerConfig(vocabulary=400), *folders(made), tmp_path)
    assert metrics["vocabulary"] == len(models.load_tokenizer(tmp_path)) <= 400
    solutions = tables.read_table(Problems, made / "problems" / "train.parquet")["solution"]
    lengths = [len(models.load_tokenizer(tmp_path)(text)["input_ids"]) for text in solutions]
    assert metrics["tokens_per_solution"] == pytest.approx(sum(lengths) / len(lengths))
    assert metrics["characters_per_token"] == pytest.approx(sum(map(len, solutions)) / sum(lengths))
    assert metrics["characters_per_token"] > 1.2
    fewer = run(TokenizerConfig(vocabulary=300), *folders(made), tmp_path / "fewer")
    assert fewer["vocabulary"] == 300
    assert fewer["tokens_per_solution"] > metrics["tokens_per_solution"]


def test_the_same_text_gives_the_same_bytes(made, tmp_path):
    run(TokenizerConfig(vocabulary=400), *folders(made), tmp_path)
    for file in (made / "tokenizer").iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name


def folders(made):
    return made / "corpus", made / "problems"

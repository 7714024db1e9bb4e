from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tasks import artifacts, prompts


@pytest.fixture(scope="module")
def words(made):
    return artifacts.load_tokenizer(made / "tokenizer")


@pytest.fixture
def plain():
    """A base model's tokenizer: no template, its padding is its end token."""
    vocabulary = {word: number for number, word in enumerate(["</s>", "?", "Question", ":", "Answer", "Why", "7"])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = prompts.PLAIN_TEMPLATE
    return tokenizer


def test_a_prompt_ends_where_the_response_begins(words):
    tokens = words.convert_ids_to_tokens(prompts.encode_prompt(words, "Why?"))
    assert tokens[0] == "<|user|>"
    assert tokens[-1] == "<|assistant|>"
    assert words.decode(prompts.encode_prompt(words, "Why?")) == "<|user|>Why?<|assistant|>"


def test_a_response_ends_with_the_end_token_unless_it_was_cut_off(words):
    whole, cut = prompts.encode_response(words, "3 + 4"), prompts.encode_response(words, "3 + 4", ended=False)
    assert whole == [*cut, words.eos_token_id]
    assert words.eos_token_id not in cut


def test_decoding_leaves_special_tokens_out(words):
    text = "3 + 4 = 7\n#### 7"
    assert prompts.decode(words, prompts.encode_response(words, text)) == text
    assert prompts.decode(words, [*prompts.encode_prompt(words, "Why?"), words.pad_token_id]) == "Why?"


def test_a_tokenizer_without_a_template(plain):
    prompt, response = prompts.encode_prompt(plain, "Why"), prompts.encode_response(plain, "7")
    assert plain.convert_ids_to_tokens(prompt) == ["Question", ":", "Why", "Answer", ":"]
    assert plain.convert_ids_to_tokens(response) == ["7", "</s>"]
    conversation = [{"role": "user", "content": "Why"}, {"role": "assistant", "content": "7"}]
    assert prompt + response == plain.apply_chat_template(conversation)["input_ids"]


@pytest.mark.parametrize(("declared", "found"), [(None, {0}), (5, {0, 5}), ([5, 6], {0, 5, 6}), ([0], {0})])
def test_every_declared_end_token_counts(plain, declared, found):
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=declared))
    assert prompts.end_tokens(model, plain) == found

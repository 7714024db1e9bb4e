import pandas as pd
import pytest
import torch

from tasks.common import models, tables
from tasks.language.data import chat
from tasks.language.data.comparisons import ComparisonSet
from tasks.language.tables.preferences import Comparisons

# Three answers to one question with B > C > A; two answers to the other with equal texts, one of them cut off.
RANKED = [("one", "B", "C", "a slightly better"), ("one", "B", "A", "b better"), ("one", "C", "A", "a better")]


def row(number, prompt, chosen, rejected, strength, rejected_ended=True):
    return {
        "comparison_id": f"{prompt}/{number}",
        "prompt_id": prompt,
        "prompt": f"Question {prompt}?",
        "chosen": chosen,
        "rejected": rejected,
        "chosen_ended": True,
        "rejected_ended": rejected_ended,
        "chosen_score": 5.0,
        "rejected_score": 2.0,
        "strength": strength,
    }


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


@pytest.fixture(scope="module")
def table():
    rows = [row(number, *pair) for number, pair in enumerate(RANKED)]
    return pd.DataFrame([*rows, row(0, "two", "7 of them", "7 of them", "b slightly better", rejected_ended=False)])


def decoded(words, batch, place):
    answer = batch.tokens[place][batch.mask[place]]
    return words.decode(answer), words.decode(rows_of(batch)[place])


def test_pairs_are_those_of_the_table(words, table):
    compared = ComparisonSet(table, words)
    [pairs] = compared.batches(prompts_per_batch=2, epochs=1, seed=0)
    found = set()
    for chosen, rejected, weight, level in zip(pairs.chosen, pairs.rejected, pairs.weight, pairs.level, strict=True):
        (better, whole), (worse, other) = (decoded(words, pairs.responses, place) for place in (chosen, rejected))
        assert whole.removesuffix(better) == other.removesuffix(worse), "one prompt"
        found.add((whole.removesuffix(better), better, worse, round(weight.item(), 4), level.item()))
    one, two = (words.decode(chat.encode_prompt(words, f"Question {name}?")) for name in ("one", "two"))
    assert found == {
        (one, "B<|end|>", "C<|end|>", 0.3333, 1),
        (one, "B<|end|>", "A<|end|>", 0.3333, 2),
        (one, "C<|end|>", "A<|end|>", 0.3333, 2),
        (two, "7 of them<|end|>", "7 of them", 1.0, 1),
    }


def test_sampled_tokens_are_trained_on_as_they_were_sampled(words, tmp_path):
    """Also if their text would be tokenized differently, if one is a special token, or if another end token was
    sampled.
    """
    seven, twelve = (words.encode(text, add_special_tokens=False) for text in ("7", "12"))
    spelt = [words.convert_tokens_to_ids(letter) for letter in "Ġhas"]
    other_end, user = words.convert_tokens_to_ids(["<|start|>", "<|user|>"])
    assert spelt != words.encode(" has", add_special_tokens=False) != words.encode("has", add_special_tokens=False)
    sampled = [[*spelt, words.eos_token_id], [*seven, user, *twelve], [*seven, other_end]]
    texts = [
        chat.decode_response(words, tokens, ended) for tokens, ended in zip(sampled, (True, False, True), strict=True)
    ]
    assert texts == ["has", "7<|user|>12", "7"]
    rows = [
        {
            **row(0, "one", texts[0], texts[1], "a better", False),
            "chosen_tokens": sampled[0],
            "rejected_tokens": sampled[1],
        },
        {**row(1, "one", texts[0], texts[2], "a better"), "chosen_tokens": sampled[0], "rejected_tokens": sampled[2]},
    ]
    tables.write_table(Comparisons, pd.DataFrame(rows), tmp_path / "pairs.parquet")
    compared = ComparisonSet(tables.read_table(Comparisons, tmp_path / "pairs.parquet"), words)
    assert compared.answers == sampled
    assert compared.groups == [[(0, 1, 2, ""), (0, 2, 2, "")]]


def test_each_distinct_response_stands_once(words, table):
    compared = ComparisonSet(table, words)
    [pairs] = compared.batches(prompts_per_batch=2, epochs=1, seed=0)
    assert len(pairs.responses.tokens) == len(compared.answers) == 5, "three and two, not two for each of four pairs"
    assert sorted(pairs.index.tolist()) == list(range(5))


def test_an_index_finds_the_response_in_the_whole_set(words, table):
    """DPO looks up its reference log-probabilities by this index."""
    compared = ComparisonSet(table, words)
    whole = [row for batch in compared.responses(2) for row in rows_of(batch)]
    for pairs in compared.batches(prompts_per_batch=1, epochs=2, seed=0):
        assert [whole[place] for place in pairs.index.tolist()] == rows_of(pairs.responses)


def rows_of(batch):
    asked = [row[kept].tolist() for row, kept in zip(batch.prompts, batch.prompt_mask, strict=True)]
    answers = [row[kept].tolist() for row, kept in zip(batch.tokens, batch.mask, strict=True)]
    return [asked[owner] + answer for owner, answer in zip(batch.owner, answers, strict=True)]


def test_all_pairs_of_a_prompt_stand_in_one_batch(words):
    names = [f"p{number}" for number in range(5)]
    table = pd.DataFrame([row(n, name, *pair[1:]) for name in names for n, pair in enumerate(RANKED)])
    compared = ComparisonSet(table, words)
    batches = list(compared.batches(prompts_per_batch=2, epochs=2, seed=1))
    assert len(batches) == compared.steps(2, 2) == 6
    assert [len(pairs.chosen) for pairs in batches] == [6, 6, 3, 6, 6, 3]
    for epoch in (batches[:3], batches[3:]):
        assert sorted(torch.cat([pairs.index for pairs in epoch]).tolist()) == list(range(15))
    orders = [[pairs.index.tolist() for pairs in compared.batches(2, 1, seed)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_responses_come_in_order_in_batches(words, table):
    compared = ComparisonSet(table, words)
    sizes = [len(batch.tokens) for batch in compared.responses(2)]
    assert sizes == [2, 2, 1]
    answers = [row for batch in compared.responses(2) for row in rows_of(batch)]
    assert answers == [
        compared.asked[owner] + answer for owner, answer in zip(compared.owner, compared.answers, strict=True)
    ]

"""Solutions as batches of labelled tokens."""

import pandas as pd
import pytest
import torch

from tasks.common import models, tables
from tasks.common.errors import DataError
from tasks.language.data import chat
from tasks.language.data.comparisons import UNLIMITED, Limit
from tasks.language.data.solution_set import SolutionSet
from tasks.language.tables.solutions import Solutions


def solution(number, prompt, tokens, ends, labels, right, **more):
    return {
        **{"solution_id": f"{prompt}/{number}", "prompt_id": prompt, "prompt": f"Question {prompt}?", "ended": True},
        **{"response": "so\nand so", "tokens": tokens, "ends": ends, "labels": labels, "right": right, **more},
    }


ROWS = [
    solution(0, "one", [5, 6, 7, 8], [1, 3], [1, -1], False),
    solution(1, "one", [5, 6, 7], [0, 1, 2], [1, 0, 1], True),
    solution(0, "two", [9], [0], [-1], False),
]


@pytest.fixture
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def table(rows, tmp_path):
    tables.write_table(Solutions, pd.DataFrame(rows), tmp_path / "solutions.parquet")
    return tables.read_table(Solutions, tmp_path / "solutions.parquet")


def test_steps_are_labelled_at_their_ends(words, tmp_path):
    found = SolutionSet(table(ROWS[::-1], tmp_path), words, UNLIMITED, "process")
    [batch] = found.iterate_in_order(8)
    assert found.answers == [[5, 6, 7], [5, 6, 7, 8], [9]], "by prompt; within one as the table has them"
    assert batch.at.nonzero().tolist() == [[0, 0], [0, 1], [0, 2], [1, 1], [1, 3], [2, 0]]
    assert batch.target[batch.at].argmax(1).tolist() == [2, 1, 2, 2, 0, 0]
    assert batch.weight[batch.at].tolist() == pytest.approx([1 / 6] * 6)
    prompts = [batch.responses.prompts[row][batch.responses.prompt_mask[row]].tolist() for row in (0, 1)]
    assert prompts == [chat.encode_prompt(words, f"Question {name}?") for name in ("one", "two")]
    assert batch.responses.owner.tolist() == [0, 0, 1]


def test_shares_of_roll_outs_are_soft_labels(words, tmp_path):
    rows = [{**row, "good": [0.25] * len(row["ends"])} for row in ROWS]
    [batch] = SolutionSet(table(rows, tmp_path), words, UNLIMITED, "process").iterate_in_order(8)
    assert batch.target[batch.at].tolist() == [[0.75, 0.0, 0.25]] * 6


def test_answers_are_labelled_at_every_token_or_at_the_last(words, tmp_path):
    found = SolutionSet(table(ROWS, tmp_path), words, UNLIMITED, "outcome")
    [last] = found.iterate_in_order(8)
    assert last.at.nonzero().tolist() == [[0, 3], [1, 2], [2, 0]]
    assert last.target[last.at].flatten().tolist() == [0, 1, 0]
    [every] = found.batches(2, 1, 0, "all")
    assert torch.equal(every.at, every.responses.mask)
    assert every.weight.sum(1).tolist() == pytest.approx([1 / 3] * 3)


def test_batches_go_on_where_they_were(words, tmp_path):
    rows = [solution(0, f"p{number}", [number + 1], [0], [1], True) for number in range(7)]
    found = SolutionSet(table(rows, tmp_path), words, UNLIMITED, "process")
    every = [batch.responses.tokens.tolist() for batch in found.batches(2, 3, 5, "all")]
    assert [batch.responses.tokens.tolist() for batch in found.batches(2, 3, 5, "all", start=5)] == every[5:]
    assert len(every) == found.steps(2, 3) == 12
    assert len({str(batch) for batch in every}) > 8, "another order in each epoch"


@pytest.mark.parametrize(
    ("truncation", "answers", "ends", "counts"),
    [
        ("right", [[5, 6], [5, 6], [9]], [[1], [0, 1], [0]], (2, 0)),
        ("drop", [[9]], [[0]], (0, 2)),
        ("left", [[5, 6, 7, 8], [5, 6, 7], [9]], [[1, 3], [0, 1, 2], [0]], (2, 0)),
    ],
)
def test_limits(words, tmp_path, truncation, answers, ends, counts):
    """Two tokens behind the prompt; a step whose end was cut off has no label."""
    asked = len(chat.encode_prompt(words, "Question one?"))
    found = SolutionSet(table(ROWS, tmp_path), words, Limit(asked + 2, truncation), "process")
    assert (found.answers, found.ends, (found.truncated, found.dropped)) == (answers, ends, counts)
    lengths = [len(found.asked[owner]) + len(answer) for owner, answer in zip(found.owner, found.answers, strict=True)]
    assert max(lengths) <= asked + 2
    [batch] = found.iterate_in_order(8)
    assert int(batch.at.sum()) == sum(map(len, ends))


def test_nothing_left_is_one_line(words, tmp_path):
    with pytest.raises(DataError, match="no solution is left: all 3 have more tokens than max_length = 8"):
        SolutionSet(table(ROWS, tmp_path), words, Limit(8, "drop"), "outcome")

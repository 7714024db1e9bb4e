"""What is kept of a training's samples: which steps, how much, and the same after a resumption."""

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch

from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.experience import Experience
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.language.tables.rollouts import RolloutTable
from tasks.language.training.kept_rollouts import KeptRollouts, select_evenly_spaced_steps


def experience(prompts=3, samples=10, length=4):
    """Each of the prompts [1, 2] has answers of 1 to `length` tokens, the first of each prompt alone not ended."""
    answers = [
        [10 + token for token in range(1 + sample % length)] for _ in range(prompts) for sample in range(samples)
    ]
    owner = [prompt for prompt in range(prompts) for _ in range(samples)]
    batch = make_completions([[1, 2]] * prompts, owner, answers, 0)
    first = torch.arange(len(owner)) % samples == 0
    places = torch.arange(batch.mask.shape[1])
    return Experience(
        batch,
        -(places + 1.0) * batch.mask,
        torch.arange(float(len(owner))),
        ~first,
        parts={"format": torch.where(first, torch.nan, 1.0)},
    )


@pytest.mark.parametrize(
    ("steps", "kept"), [(1, [1]), (4, [1, 2, 3, 4]), (12, [*range(1, 13)]), (111, [*range(1, 112, 10)])]
)
def test_steps_are_spread_from_the_first_to_the_last(steps, kept):
    assert select_evenly_spaced_steps(steps) == kept


def test_what_is_kept_by_hand():
    seen = KeptRollouts(111, 0.7)
    for step in (1, 2, 11):
        seen(step, experience(), torch.arange(30.0).unsqueeze(1))
    frame = pd.DataFrame(seen.rows)
    assert {(step, group) for step, group in zip(frame["step"], frame["group"], strict=True)} == {
        *((1, 0), (1, 1), (11, 0), (11, 1))  # step 2 is not kept, nor is the third prompt
    }
    assert len(frame) == 2 * 2 * 8
    third = seen.rows[2]
    assert third == {
        "step": 1,
        "group": 0,
        "sample": 2,
        "temperature": 0.7,
        "prompt_tokens": [1, 2],
        "tokens": [10, 11, 12],
        "length": 3,
        "ended": True,
        "reward": 2.0,
        "parts": json.dumps({"format": 1.0}),
        "logps": [-1.0, -2.0, -3.0],
        "advantages": [2.0, 2.0, 2.0],
    }
    assert (seen.rows[0]["ended"], json.loads(seen.rows[0]["parts"])) == (False, {"format": None})
    assert seen.rows[8]["advantages"] == [10.0]  # the second prompt's first answer


def test_each_token_has_its_own_advantage_where_it_has_one():
    seen, own = KeptRollouts(1, 1.0), torch.arange(120.0).reshape(30, 4)
    seen(1, experience(), own)
    assert seen.rows[3]["advantages"] == [12.0, 13.0, 14.0, 15.0]


def test_an_answer_without_a_reward_is_kept_too(tmp_path):
    """For people to see; not one of these has a reward."""
    seen = KeptRollouts(1, 1.0)
    seen(1, replace(experience(), rewards=torch.full((30,), torch.nan)), torch.zeros(30, 1))
    seen.write(tmp_path)
    assert tables.read_table(RolloutTable, tmp_path / "rollouts.parquet")["reward"].isna().all()


def test_long_answers_are_cut_and_their_length_told(tmp_path):
    seen = KeptRollouts(1, 1.0)
    seen(1, experience(1, 300, 300), torch.zeros(300, 1))
    seen.rows += [{**seen.rows[0], "sample": 8, "length": 300}]
    seen.write(tmp_path)
    assert tables.read_table(RolloutTable, tmp_path / "rollouts.parquet")["length"].iloc[-1] == 300
    long = KeptRollouts(1, 1.0)
    batch = make_completions([[1]], [0], [[5] * 300], 0)
    long(1, Experience(batch, -1.0 * batch.mask, torch.zeros(1), torch.ones(1, dtype=torch.bool)), torch.zeros(1, 1))
    assert (len(long.rows[0]["tokens"]), long.rows[0]["length"]) == (256, 300)


def test_a_resumed_training_keeps_the_same(tmp_path):
    whole, killed = KeptRollouts(12, 1.0), KeptRollouts(12, 1.0)
    for step in range(1, 13):
        whole(step, experience(), torch.zeros(30, 1))
        if step == 6:
            state = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    killed.load_state_dict(state)
    for step in range(7, 13):
        killed(step, experience(), torch.zeros(30, 1))
    assert killed.rows == whole.rows
    empty = KeptRollouts(12, 1.0)
    empty.load_state_dict(KeptRollouts(12, 1.0).state_dict())
    assert empty.rows == []


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("advantages", [1.0, 2.0], "one length"),
        ("logps", [0.5], "at most 0"),
        ("length", 0, "length"),
        ("sample", 1, "numbered once"),
    ],
)
def test_the_schema_rejects_a_bad_row(tmp_path, column, value, said):
    seen = KeptRollouts(1, 1.0)
    seen(1, experience(1, 2, 1), torch.zeros(2, 1))
    seen.rows[0] = {**seen.rows[0], column: value}
    with pytest.raises(DataError, match=said):
        seen.write(tmp_path)

"""The microscope's data: trends of the curve, and answers cut to the room that there is."""

import json

import pandas as pd
import pytest

from tasks.common import tables
from tasks.language.reporting import token_view
from tasks.language.tables.rollouts import RolloutTable


def rows(tokens):
    lists = {name: [-0.12345] * tokens for name in ("logps", "final_logps", "reference_logps")}
    return [
        {
            "step": step,
            "group": 0,
            "sample": sample,
            "temperature": 1.0,
            "prompt_tokens": [1],
            "tokens": [7] * tokens,
            "length": tokens,
            "ended": True,
            "reward": 0.5,
            "parts": json.dumps({"format": None, "verifiable": 0.66666}),
            "advantages": [1.0] * tokens,
            "prompt": "2 + 2?",
            "pieces": ["four"] * tokens,
            **lists,
        }
        for step in (1, 5)
        for sample in range(2)
    ]


@pytest.fixture
def folder(tmp_path):
    tables.write_table(RolloutTable, pd.DataFrame(rows(tokens=40)), tmp_path / "rollouts.parquet")
    return tmp_path


CURVE = pd.DataFrame({"step": range(1, 6), "reward": [0.0, 0.25, 0.5, 0.75, 1.0], "loss": 1.0})


def test_each_answer_has_a_number_for_each_token(folder):
    [found] = token_view.build_token_view_entries({"grpo": folder, "sft": folder / "none"}, {"grpo": CURVE})
    assert found["name"] == "grpo"
    assert found["trends"] == [{"name": "reward", "steps": [1, 2, 3, 4, 5], "values": [0.0, 0.25, 0.5, 0.75, 1.0]}]
    assert (found["prompts"], found["reference"]) == (["2 + 2?"], True)
    assert [answer["step"] for answer in found["answers"]] == [1, 1, 5, 5]
    first = found["answers"][0]
    assert first["parts"] == {"format": None, "verifiable": 0.667}
    assert {len(first[name]) for name in ("pieces", "sampled", "final", "reference", "advantages")} == {40}
    assert first["sampled"][0] == -0.123


def test_answers_are_shown_in_part_where_there_is_no_room_for_all(folder, monkeypatch):
    monkeypatch.setattr(token_view, "ROOM", 4000)
    [found] = token_view.build_token_view_entries({"grpo": folder}, {"grpo": CURVE})
    assert {len(answer["pieces"]) for answer in found["answers"]} == {20}
    assert {answer["length"] for answer in found["answers"]} == {40}
    assert len(json.dumps(found["answers"], ensure_ascii=False)) <= 4000


def test_a_long_curve_keeps_its_ends():
    [found] = token_view.build_curve_trends(pd.DataFrame({"step": range(1, 1002), "reward": 1.0}))
    assert (found["steps"][0], found["steps"][-1]) == (1, 1001)
    assert len(found["steps"]) <= token_view.POINTS + 2

"""What a run says of the stages that were asked for, by hand."""

import json
from pathlib import Path

import pytest

from flows.console.outcome import format_change, iterate_outcome_lines, list_curve_changes, read_curve
from flows.engine.stage_types import StageResult


def test_a_change_is_of_the_means_of_the_first_and_the_last_tenth() -> None:
    assert format_change([1.0, 3.0, *[0.0] * 16, 5.0, 6.0]) == "2 -> 5.5"
    assert format_change([0.25]) == "0.25 -> 0.25"


def test_the_reward_of_the_users_own_comes_first_and_empty_cells_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "grpo.csv").write_text(
        "step,loss,eval_reward,rewards/verifiable,rewards/mine.py:polite,reward\n1,0.1,0.5,0.2,0.0,0.4\n2,0.1,,0.4,0.75,0.6\n"
    )
    rows = read_curve(tmp_path / "grpo.csv")
    assert rows[1].keys() == {"step", "loss", "rewards/verifiable", "rewards/mine.py:polite", "reward"}
    assert list_curve_changes(rows) == [
        "rewards/mine.py:polite 0 -> 0.75",
        "eval_reward 0.5 -> 0.5",
        "reward 0.4 -> 0.6",
        "loss 0.1 -> 0.1",
        "2 steps",
    ]
    assert list_curve_changes([{"step": 1.0}]) == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository in which grpo and sft have run."""
    (tmp_path / "data/curves").mkdir(parents=True)
    (tmp_path / "data/curves/grpo.csv").write_text("step,reward\n1,0.5\n2,1.0\n")
    for name in ("sft", "grpo"):
        (tmp_path / "data" / name).mkdir()
        (tmp_path / "data" / name / "config.json").write_text(json.dumps({}))
    return tmp_path


def results(*names: str) -> dict[str, StageResult]:
    return {name: StageResult(name, "ran") for name in names}


def test_a_policy_that_was_asked_for_says_what_it_learned_and_what_to_type(root: Path) -> None:
    assert [*iterate_outcome_lines(root, ["grpo"], results("sft", "grpo"))] == [
        "grpo: reward 0.5 -> 1, 2 steps (data/curves/grpo.csv)",
        "next: posttrain run evaluate@grpo, or posttrain chat grpo --against sft",
    ]
    assert [*iterate_outcome_lines(root, ["sft"], results("sft"))] == [
        "next: posttrain run evaluate@sft, or posttrain chat sft"
    ]


def test_nothing_is_said_of_what_did_not_run_or_was_not_asked_for(root: Path) -> None:
    assert [*iterate_outcome_lines(root, [], results("grpo"))] == []
    assert [*iterate_outcome_lines(root, ["grpo"], {"grpo": StageResult("grpo", "up-to-date")})] == []
    assert [*iterate_outcome_lines(root, ["grpo", "report"], results("grpo", "report"))] == [
        "grpo: reward 0.5 -> 1, 2 steps (data/curves/grpo.csv)"
    ]

"""The number by which a sweep compares its trainings: which is better, where it is measured, what may not vary, which
curves have it.
"""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.engine.dvc_repository import PlanError
from flows.sweeps import measure
from flows.sweeps.measure import Measure, query_curve_columns
from tasks import curve_columns

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("every", "steps", "count", "expected"),
    [(20, 110, 3, [20, 40, 60]), (8, 32, 3, [8, 16]), (15, 60, 2, [15, 30]), (5, 110, 2, [30, 55]), (60, 110, 2, [60])],
)
def test_a_number_of_validation_is_compared_where_it_is_measured(
    every: int, steps: int, count: int, expected: list[int]
) -> None:
    params = {"grpo": {"steps": steps, "evaluate_every": every}}
    assert [share * steps for share in Measure.asked("eval_accuracy").shares("grpo", params, count)] == expected
    assert Measure.asked("reward").shares("grpo", params, 2) == [Fraction(1, 4), Fraction(1, 2)]


def test_what_is_measured_at_the_end_alone_is_one_line() -> None:
    params = {"grpo": {"steps": 110, "evaluate_every": 110}}
    with pytest.raises(PlanError) as told:
        Measure.asked("eval_accuracy").shares("grpo", params, 2)
    assert (
        str(told.value) == "--early eval_accuracy: grpo measures it at its end alone, since grpo.evaluate_every is 110"
    )


@pytest.mark.parametrize(
    ("text", "lower"),
    [("loss", True), ("eval_loss", True), ("min:kl", True), ("max:kl", False), ("eval_accuracy", False), ("rewards/margins", False)],  # noqa: E501
)  # fmt: skip
def test_of_some_numbers_less_is_better(text: str, lower: bool) -> None:
    assert Measure.asked(text).lower == lower


@pytest.mark.parametrize("text", ["kl", "completions/clipped_ratio", "rewards/rejected", "reward_loss", "min:", ""])
def test_of_others_it_must_be_said(text: str) -> None:
    with pytest.raises(PlanError):
        Measure.asked(text)


@pytest.mark.parametrize(
    ("name", "varied", "line"),
    [
        ("reward", "reward_model.beta", "--early reward: reward_model.beta varies, so that points have different "
                                        "rewards; use eval_accuracy"),
        ("eval_reward", "grpo.reward.format", "--early eval_reward: grpo.reward.format varies, so that points have "
                                              "different rewards; use eval_accuracy"),
        ("eval_accuracy", "grpo.evaluate_prompts", "--early eval_accuracy: grpo.evaluate_prompts varies, so that "
                                                   "points are not measured alike"),
        ("rewards/verifiable", "grpo.temperature", "--early rewards/verifiable: grpo.temperature varies, so that "
                                                   "points are not measured alike"),
        ("eval_accuracy", "grpo.steps", "--early: compares points at the same step, but grpo.steps varies"),
        ("eval_accuracy", "reward_model.beta", ""),
        ("eval_accuracy", "grpo.epochs", ""),
        ("rewards/verifiable", "grpo.learning_rate", ""),
    ],
)  # fmt: skip
def test_what_would_not_be_measured_alike_is_refused(name: str, varied: str, line: str) -> None:
    told = ""
    try:
        own = [varied] if varied.startswith("grpo") else []
        Measure.asked(name).check({"grpo": {"steps": 110, "epochs": 2}}, own, [varied])
    except PlanError as error:
        told = str(error)
    assert told == line


def test_the_projects_curves_are_known_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The project answers in this process, which has imported the stages for other tests."""
    asked: list[tuple[list[str], Path]] = []

    def answered(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append((command[:3], cwd))
        curve_columns.main(command[3:])
        return subprocess.CompletedProcess(command, 0, capsys.readouterr().out, "")

    monkeypatch.setattr(measure, "subprocess", SimpleNamespace(run=answered))
    commands = {"grpo": "python -m tasks.language.grpo", "dpo": "python -m tasks.language.dpo", "own": "python own.py"}
    found = query_curve_columns(ROOT, commands, "eval_accuracy")
    assert asked == [([sys.executable, "-m", "tasks.curve_columns"], ROOT)]
    assert {stage: told["has"] for stage, told in found.items()} == {"grpo": True, "dpo": False}
    assert "rewards/margins" in found["dpo"]["names"]
    assert query_curve_columns(ROOT, commands, "rewards/mine.py:politeness")["grpo"]["has"], "of a reward in Python"
    assert query_curve_columns(ROOT / "data", commands, "eval_accuracy") == {}
    assert len(asked) == 2


def test_the_project_is_asked_by_a_process_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/__init__.py").touch()
    answer = (
        "import json, sys\nprint(json.dumps({name: {'has': True, 'names': sys.argv[1:]} for name in sys.argv[2:]}))\n"
    )
    (tmp_path / "tasks/curve_columns.py").write_text(answer)
    found = query_curve_columns(tmp_path, {"fit": ["python -m tasks.fit"], "own": "python own.py"}, "loss")
    assert found == {"fit": {"has": True, "names": ["loss", "tasks.fit"]}}


def test_a_project_whose_stage_cannot_be_imported_is_one_line() -> None:
    with pytest.raises(
        PlanError, match=r"tasks/curve_columns.py: ModuleNotFoundError: No module named 'tasks.language.no'"
    ):
        query_curve_columns(ROOT, {"no": "python -m tasks.language.no"}, "loss")


def test_a_stage_without_a_curve_has_no_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    curve_columns.main(["loss", "tasks.language.problems"])
    assert json.loads(capsys.readouterr().out) == {"tasks.language.problems": {"has": False, "names": []}}

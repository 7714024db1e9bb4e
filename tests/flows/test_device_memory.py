"""Before stages start on a GPU their memory is planned; without one nothing is started for it."""

import subprocess
from pathlib import Path

import pytest

from flows import device_memory
from flows.engine.stage_types import PlannedStage

PLAN = "import sys; print(' '.join(sys.argv[1:]))"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose planner prints what it was asked."""
    monkeypatch.delenv(device_memory.KNOWN, raising=False)
    (tmp_path / "tasks/memory").mkdir(parents=True)
    (tmp_path / "tasks/__init__.py").touch()
    (tmp_path / "tasks/memory/__main__.py").write_text(PLAN)
    return tmp_path


def stage(name: str, gpu: int, reason: str | None = "changed") -> PlannedStage:
    return PlannedStage(name, reason, (), 1, gpu)


def test_only_stages_that_will_run_on_a_gpu_are_asked_about(root: Path) -> None:
    planned = [stage("sft", 1), stage("dpo", 1, None), stage("mixture", 0), stage("evaluate@sft", 2)]
    assert device_memory.list_device_memory_problems(root, planned) == ["--check sft evaluate@sft"]


def test_without_a_gpu_no_process_is_started(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    assert device_memory.list_device_memory_problems(root, [stage("sft", 0), stage("dpo", 1, None)]) == []
    assert device_memory.list_device_memory_problems(root.parent, [stage("sft", 1)]) == [], (
        "nor in a repository without a planner"
    )


def test_memory_that_the_environment_names_counts_for_every_stage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device_memory.KNOWN, "80GB")
    assert device_memory.list_device_memory_problems(root, [stage("sft", 0)]) == ["--check --device-memory=80GB sft"]


@pytest.mark.parametrize(
    ("planner", "told"),
    [
        ("import sys; sys.exit('posttrain: params.yaml: sft: missing')", "params.yaml: sft: missing"),
        ("raise SystemExit(3)", "it ended without a word"),
    ],
)
def test_a_planner_that_fails_stops_nothing(root: Path, planner: str, told: str) -> None:
    (root / "tasks/memory/__main__.py").write_text(planner)
    assert device_memory.list_device_memory_problems(root, [stage("sft", 1)]) == [f"memory was not planned: {told}"]

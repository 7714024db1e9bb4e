"""What `posttrain plan-memory` starts, and what `posttrain run` says of memory before a stage starts."""

from pathlib import Path

import pytest

from flows import cli, device_memory, scaling_commands
from flows.engine.stage_types import PlannedStage
from tasks.memory import __main__ as plans
from tests.flows.toy_pipeline import call, make_pipeline


def test_options_arrive_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All options of the command are options of the planner, under the same names."""
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(scaling_commands, "find_root", lambda: tmp_path)
    monkeypatch.setattr(
        scaling_commands, "run_module_in_terminal", lambda root, *arguments: started.append(arguments) or 0
    )
    asked = (
        "sft --model 8B --algorithm ppo --precision fp16 --lora-rank 16 --sequence 2048 --batch 8 "
        "--micro-batch 2 --devices 2"
    )
    more = "--checkpointing --device-memory 80GB --shard model --lectures --json"
    assert cli.run_command_line(["plan-memory", *asked.split(), *more.split()]) == 0
    [(module, *given)] = started
    assert module == "tasks.memory"
    found = plans.parse_memory_arguments(given)
    assert found.stages == ["sft", "ppo"]
    assert vars(found) == {
        "stages": ["sft", "ppo"], "model": "8B", "precision": "fp16", "lora_rank": 16, "sequence": 2048, "batch": 8,
        "micro_batch": 2, "devices": 2, "checkpointing": True, "device_memory": "80GB", "shard": "model", "lectures": True,  # noqa: E501
        "json": True, "check": False,
    }  # fmt: skip
    assert cli.run_command_line(["plan-memory"]) == 0
    assert started[1] == ("tasks.memory", "--")


@pytest.mark.parametrize("wrong", [["--lora-rank=-1"], ["--devices=0"], ["--precision=int4"], ["--algorithm=dqn"]])
def test_wrong_options_are_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command_line(["plan-memory", *wrong]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("posttrain: ")


def test_a_run_says_what_does_not_fit_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_pipeline(tmp_path / "toy")
    asked: list[list[str]] = []
    line = (
        "sft needs about 9.0 GB of memory, and a device has 8.0 GB: --set sft.training.accumulate=2 would need 7.0 GB"
    )

    def remarks(root: Path, planned: list[PlannedStage]) -> list[str]:
        asked.append([stage.name for stage in planned if stage.reason])
        return [line]

    monkeypatch.setattr(device_memory, "list_device_memory_problems", remarks)
    code, out, error = call(root, "run", "sft", "--dry-run")
    assert (code, error, asked) == (0, "", []), "a plan starts nothing"
    code, out, error = call(root, "run", "sft")
    assert (code, error, asked) == (0, "", [["problems", "sft"]])
    assert out.startswith(line + "\n")
    code, out, error = call(root, "run", "sft")
    assert (code, len(asked)) == (0, 1), "nothing runs, so nothing is asked"

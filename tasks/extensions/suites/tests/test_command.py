"""What `posttrain evaluate` starts with suites."""

from pathlib import Path

import pytest

from flows import model_commands
from flows.running import WrongUseError
from tasks.extensions.suites import command


def test_suites_are_named_to_the_process_that_asks_them(tmp_path, monkeypatch):
    started = []
    for module in (command, model_commands):
        monkeypatch.setattr(module, "find_root", lambda: tmp_path)
    monkeypatch.setattr(model_commands, "run_module_in_terminal", lambda _, *arguments: started.append(arguments) or 0)
    (tmp_path / "model").mkdir()
    command.evaluate(str(tmp_path / "model"), suite="math500,aime24", suites=tmp_path, shots=4, samples=8)
    command.evaluate(str(tmp_path / "model"), suite=f"math500@{40 * '5'}")
    command.evaluate(str(tmp_path / "model"), data=tmp_path / "test.jsonl")
    [options, again, others] = started
    assert {"--suite=math500,aime24", f"--suites={tmp_path}", "--shots=4", "--samples=8"} < {*options}
    assert "--out=mlruns/evaluations/model-suites-math500-aime24" in options
    assert "--out=mlruns/evaluations/model-suites-math500-55555555" in again, "beside the others"
    assert (options[0], others[0]) == ("tasks.extensions.suites.evaluation", "tasks.evaluation")


@pytest.mark.parametrize(
    "given",
    [
        {"suite": "math500", "data": Path("test.jsonl")},
        {"suite": "math500", "reward_model": "MODEL"},
        {"suites": Path()},
        {"shots": 1},
    ],
)
def test_what_goes_only_with_a_suite_or_without_one_is_told(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WrongUseError, match=r"expected (it without --data|--suite with them)"):
        command.evaluate(str(tmp_path / "model"), **given)

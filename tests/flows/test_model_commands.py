"""What `posttrain evaluate` starts."""

from pathlib import Path

import pytest

from flows import model_commands
from flows.running import WrongUseError


def test_test_sets_of_one_name_have_folders_of_their_own(tmp_path, monkeypatch):
    """Nearly every data set has a file test.jsonl."""
    started = []
    monkeypatch.setattr(model_commands, "find_root", lambda: tmp_path)
    monkeypatch.setattr(model_commands, "child", lambda *arguments: started.append(arguments) or 0)
    (tmp_path / "model").mkdir()
    for data in (tmp_path / "math/test.jsonl", tmp_path / "arc/test.jsonl", tmp_path / "svamp", None):
        model_commands.evaluate(str(tmp_path / "model"), data=data)
    folders = [next(part for part in arguments if str(part).startswith("--out=")) for arguments in started]
    assert [folder.rpartition("/")[2] for folder in folders] == [
        "model-math-test",
        "model-arc-test",
        f"model-{tmp_path.name}-svamp",
        "model-problems",
    ]


def test_suites_are_named_to_the_process_that_asks_them(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(model_commands, "find_root", lambda: tmp_path)
    monkeypatch.setattr(model_commands, "child", lambda *arguments: started.append(arguments[3:]) or 0)
    (tmp_path / "model").mkdir()
    model_commands.evaluate(str(tmp_path / "model"), suite="math500,aime24", suites=tmp_path, shots=4, samples=8)
    [options] = started
    assert {"--suite=math500,aime24", f"--suites={tmp_path}", "--shots=4", "--samples=8"} < {*options}
    assert "--out=mlruns/evaluations/model-suites" in options


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
    monkeypatch.setattr(model_commands, "find_root", lambda: tmp_path)
    (tmp_path / "model").mkdir()
    monkeypatch.setattr("flows.outs.checkpoint", lambda root, of: tmp_path / "model")
    with pytest.raises(WrongUseError, match=r"expected (it without --data|--suite with them)"):
        model_commands.evaluate(str(tmp_path / "model"), **given)

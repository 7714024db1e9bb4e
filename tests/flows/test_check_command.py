"""`posttrain check --set`: as if params.yaml said so, and nothing on disk says it."""

import json
import sys
from pathlib import Path

import pytest

from flows import check_command
from flows.lineage.expected_durations import ExpectedDuration
from tests.flows.toy_pipeline import TYPES, add_offline, call, make_pipeline


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("flows.params.checking.load_config_classes", lambda root: TYPES)
    monkeypatch.setattr("flows.params.rules.find_reference_faults", lambda configs: ())
    return make_pipeline(tmp_path / "toy")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The text of params.yaml and the stages that the process that looks at them gets."""
    calls: list[tuple[str, list[str]]] = []

    def child(root: Path, module: str, params: str, *stages: str) -> int:
        calls.append((Path(params.removeprefix("--params=")).read_text(), [*stages]))
        return 0

    monkeypatch.setattr(check_command, "run_module_in_terminal", child)
    monkeypatch.setattr(check_command, "format_expected_durations", lambda root, stages, params: "")
    return calls


def everything(root: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file."""
    files = [file for file in root.rglob("*") if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def test_values_are_set_for_the_look_alone(root, started):
    before = everything(root)
    code, out, error = call(root, "check", "dpo", "--set", "dpo.beta=0.25", "--set", "sft.seconds=3")
    assert (code, error) == (0, "")
    assert out == "params.yaml would change: dpo.beta: 0.1 -> 0.25\nparams.yaml would change: sft.seconds: 0 -> 3\n"
    [(text, stages)] = started
    assert stages == ["dpo", "problems", "sft"]
    original = (root / "params.yaml").read_text()
    assert text == original.replace("1e-1  # of dpo", "0.25  # of dpo").replace(
        "1e-1  # of sft\n  seconds: 0", "1e-1  # of sft\n  seconds: 3"
    )
    assert everything(root) == before


def test_without_values_the_file_itself_is_read(root, started):
    before = everything(root)
    assert call(root, "check", "sft") == (0, "", "")
    assert started == [((root / "params.yaml").read_text(), ["problems", "sft"])]
    assert everything(root) == before


@pytest.mark.parametrize(
    "settings",
    [
        ["dpo.bet=1"],
        ["dpo.beta=large"],
        ["dpq.beta=1"],
        ["dpo.beta"],
        ["dpo.beta=["],
        ["seed=-1"],
        ["dpo.beta=1", "dpo.fail=perhaps"],
    ],
)
def test_wrong_values_are_told_as_a_run_tells_them(root, started, settings):
    before = everything(root)
    options = [word for setting in settings for word in ("--set", setting)]
    code, out, error = call(root, "check", "dpo", *options)
    assert (code, out, started) == (2, "", [])
    assert error.startswith("posttrain: --set ") or "seed" in error
    assert error == call(root, "run", "dpo", *options)[2]
    assert everything(root) == before


def test_stages_follow_the_values(root, started, monkeypatch):
    """Branches that params.yaml does not have yet; a stage that is none, and a file that is not there, are one line."""
    add_offline(root)
    monkeypatch.setattr("flows.params.checking.load_config_classes", lambda root: {})
    assert call(root, "check", "offline_report", "--set", "bc.sets={three: 3}")[0] == 0
    assert started[0][1] == ["bc@three", "offline_report"]
    assert call(root, "check", "spt")[::2] == (2, "posttrain: dvc.yaml: no stage 'spt'; did you mean 'sft'?\n")
    (root / "stage.py").unlink()
    line = "posttrain: dvc.yaml: stage 'problems': dep stage.py does not exist and no stage makes it\n"
    assert call(root, "check", "problems")[::2] == (2, line)


def test_pairs_stand_for_the_stages_that_learn_from_them(root, started, monkeypatch):
    monkeypatch.setattr(check_command, "PAIRS", {"pairs": ("dpo",)})
    assert call(root, "check", "pairs")[0] == 0
    assert started[0][1] == ["dpo", "problems", "sft"]


def test_the_time_is_what_a_run_expects(root, monkeypatch):
    """A run of 60 s here is expected to take that again, within 15 %; one elsewhere of 60 s within a factor of 1.6."""
    expected = {"sft": ExpectedDuration(60.0, True), "dpo": ExpectedDuration(60.0, False)}
    monkeypatch.setattr(
        "flows.lineage.expected_durations.expect_stage_durations", lambda root, stages, params: expected
    )
    options: list[str] = []
    monkeypatch.setattr(check_command, "run_module_in_terminal", lambda root, module, *rest: options.extend(rest) or 0)
    assert call(root, "check", "dpo")[0] == 0
    assert '--durations={"sft": "52 s to 1 min", "dpo": "38 s to 2 min"}' in options


def test_the_process_that_looks_reads_the_values_that_it_is_given(tmp_path, monkeypatch, capsys):
    """And not those of params.yaml beside it."""
    from tasks.preflight import __main__ as reader
    from tests import repository

    text = repository.write_params(tmp_path).read_text()
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{n}?", "completion": "Yes."}) + "\n" for n in range(10)))
    before, heading, after = text.partition("\ndemonstrations:\n")
    after = after.replace("source: problems ", "source: files ", 1)
    after = after.replace("path: data/raw/demonstrations", f"path: {file}", 1)
    (tmp_path / "other.yaml").write_text(before + heading + after)
    monkeypatch.chdir(tmp_path)
    for params, expected in (("params.yaml", ""), ("other.yaml", "demonstrations: 9 to learn from and 1 held out")):
        monkeypatch.setattr(sys, "argv", ["preflight", "--data", f"--params={params}", "demonstrations"])
        reader.main()
        assert capsys.readouterr().out.partition(" from /")[0] == expected

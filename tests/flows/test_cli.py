"""The `posttrain` command on a real pipeline of small stages: what it prints, what it changes, how it exits."""

import json
import shutil
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from flows import running
from flows.engine import plan as planning
from flows.engine.coordinator import Coordinator
from flows.params import checking, rules
from flows.params.rules import RuleInput
from tests.flows.lineage.quick import copy_folder
from tests.flows.toy_pipeline import GRAPH, REPOSITORY, TYPES, call, make_pipeline


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages of the small pipeline have Configs, as this repository's have, but no rules between sections."""
    monkeypatch.setattr(checking, "load_config_classes", lambda root: TYPES)
    monkeypatch.setattr(rules, "RULES", [])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pipeline(tmp_path_factory.mktemp("made") / "toy")


@pytest.fixture(scope="module")
def done(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The pipeline after one run from nothing, and what that run printed."""
    root = shutil.copytree(made, tmp_path_factory.mktemp("done") / "toy", symlinks=True)
    code, out, error = call(root, "run")
    assert (code, error) == (0, "")
    return root, out


@pytest.fixture
def root(done: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the pipeline that has run, for one test to change."""
    copy_folder(done[0], tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def fresh(made: Path, tmp_path: Path) -> Path:
    """A pipeline in which nothing has run, for one test to change."""
    copy_folder(made, tmp_path / "toy")
    return tmp_path / "toy"


def test_a_first_run_prints_each_stage_and_leaves_the_report(done: tuple[Path, str]) -> None:
    root, printed = done
    lines = printed.splitlines()
    assert lines[0].startswith("5 of 5 stages to run, about ")
    assert lines[0].endswith("; logs: mlruns/logs")
    assert "problems  running" in lines
    assert [line.split()[0] for line in lines if line.split()[1:2] == ["ran"]][:2] == ["problems", "sft"]
    assert lines[-5].startswith("5 ran in ")
    assert lines[-4] == "in plain DVC: dvc status --with-deps report; dvc metrics show data/report/metrics"
    assert lines[-3:] == ["report: report.html", "report: report.md", "lineage: lineage.html"]
    assert all(character.isprintable() or character == "\n" for character in printed)
    page = (root / "report.html").read_text()
    assert page.startswith("<html><h1>Report</h1><section")
    assert "posttrain:run -->" not in page
    assert "beta: 1e-1  # of dpo" in page
    assert "posttrain:run -->" in (root / "data/report/report.html").read_text()


def test_why_a_stage_is_out_of_date_is_shown_line_by_line(root: Path) -> None:
    assert call(root, "status", "--why", "sft") == (0, "sft is up to date\n", "")
    for file, old, new in (
        ("params.yaml", "1e-1  # of sft", "0.5  # of sft"),
        ("stage.py", "working on", "at work on"),
    ):
        (root / file).write_text((root / file).read_text().replace(old, new))
    shown = "dep stage.py changed (problems, sft)\nparam sft.beta (sft)\n  - 0.1\n  + 0.5\n"
    assert call(root, "status", "--why", "sft") == (0, shown, "")
    told = "posttrain: dvc.yaml: no stage 'sftt'; did you mean 'sft'?\n"
    assert call(root, "status", "--why", "sftt") == (2, "", told)


def test_without_records_no_run_is_named(root: Path) -> None:
    shutil.rmtree(root / "mlruns")
    written = (root / "report.html").stat().st_mtime
    code, out, error = call(root, "run", "--json")
    facts = json.loads(out)
    assert code == 0
    assert {(fact["state"], fact["mlflow_run_id"]) for fact in facts.values()} == {("up-to-date", None)}
    assert error.startswith("nothing has changed: 5 stages are up to date (")
    assert error.count("\n") == 1
    assert (root / "report.html").stat().st_mtime == written, "the report still says what ran when it was made"
    assert not (root / "mlruns").exists(), "a question makes nothing"


def test_a_damaged_store_is_one_line_and_exit_2(root: Path) -> None:
    (root / "mlruns/mlflow.db").write_text("torn" * 300)
    for question in (["run", "--json"], ["lineage", "dpo"], ["ui"]):
        code, out, error = call(root, *question)
        assert (code, out) == (2, "")
        assert error.splitlines()[-1].startswith(
            "posttrain: mlruns/mlflow.db: file is not a database; if it is damaged"
        )


def test_json_is_one_object_and_progress_goes_to_standard_error(root: Path) -> None:
    code, out, error = call(root, "run", "--json", "--set", "dpo.beta=0.2")
    facts = json.loads(out)
    assert code == 0
    assert out.count("\n") == 1
    states = {"problems": "up-to-date", "sft": "up-to-date", "dpo": "ran", "ppo": "up-to-date", "report": "ran"}
    assert {name: fact["state"] for name, fact in facts.items()} == states
    assert all(set(fact) == {"state", "reason", "seconds", "mlflow_run_id"} for fact in facts.values())
    assert facts["dpo"]["seconds"] > 0
    assert "0.1 -> 0.2" in facts["dpo"]["reason"]
    assert error.startswith("params.yaml: dpo.beta: 0.1 -> 0.2\n2 of 5 stages to run, about ")
    assert "beta: 0.2  # of dpo" in (root / "params.yaml").read_text()


def test_a_failed_stage_exits_1_with_the_end_of_its_log_and_spares_the_others(root: Path) -> None:
    code, out, _ = call(root, "run", "--set", "dpo.fail=true", "--set", "ppo.beta=0.3")
    assert code == 1
    end = out[out.index("\ndpo failed: ") :]
    assert "  working on dpo\n" in end
    assert end.startswith("\ndpo failed: ValueError: dpo cannot go on (exit status 1)\n")
    assert end.count("ValueError: dpo cannot go on") == 1
    assert "\nlog: mlruns/logs/dpo.log\n1 failed, 1 skipped, 1 ran, 2 up to date in " in end
    assert end.endswith("\nWhat succeeded is kept; mend the cause and run it again to go on.\n")
    code, out, _ = call(root, "run", "--json", "--set", "dpo.fail=false")
    states = {name: fact["state"] for name, fact in json.loads(out).items()}
    assert (code, states["ppo"], states["report"]) == (0, "up-to-date", "ran")


def test_a_stage_that_waits_for_people_is_no_failure_and_the_last_line_says_what_to_do(root: Path) -> None:
    code, out, _ = call(root, "run", "--set", "dpo.fail=true", "--set", "dpo.beta=75", "--set", "ppo.beta=0.3")
    assert code == 0
    assert "dpo       paused      waiting for 40 more: posttrain label\n" in out
    assert "report    paused      dpo waits for people\n" in out
    assert "failed" not in out
    assert out.splitlines()[-3].startswith("2 paused, 1 ran, 2 up to date in ")
    assert out.endswith("\ndpo waits for people; report waits for it\nwaiting for 40 more: posttrain label\n")
    code, out, error = call(root, "run", "--json")
    facts = json.loads(out)
    assert (code, facts["dpo"]["state"], facts["dpo"]["reason"]) == (
        0,
        "paused",
        "waiting for 40 more: posttrain label",
    )
    assert (facts["report"]["state"], facts["report"]["reason"]) == ("paused", "dpo waits for people")
    assert error.endswith("\nwaiting for 40 more: posttrain label\n")
    code, out, _ = call(root, "run", "--json", "--set", "dpo.fail=false")
    assert (code, json.loads(out)["report"]["state"]) == (0, "ran")


def test_what_another_run_at_work_refuses_is_one_line(root: Path) -> None:
    params = (root / "params.yaml").read_bytes()
    with Coordinator(root):
        code, _, error = call(root, "run", "--set", "dpo.beta=7")
    assert code == 2
    assert (root / "params.yaml").read_bytes() == params
    assert error.startswith("posttrain: another `posttrain run` is at work")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nosuch"], "dvc.yaml: no stage 'nosuch'; it has problems, sft, dpo, ppo, report"),
        (["run", "repotr"], "dvc.yaml: no stage 'repotr'; did you mean 'report'?"),
        (["run", "offline"], "dvc.yaml: no stage 'offline_report'; did you mean 'report'?"),
        (["run", "--force", "nosuch"], "dvc.yaml: no stage 'nosuch'"),
        (["run", "sft", "--force", "dpo"], "--force dpo: not among the stages that sft needs"),
        (["run", "--set", "dpo.beta=high"], "--set dpo.beta: expected a number, got 'high'"),
        (["run", "--set", "dpo.bta=1"], "--set dpo.bta: unknown parameter; did you mean dpo.beta?"),
        (["run", "--set", "dpo.beta=0.2", "nosuch"], "dvc.yaml: no stage 'nosuch'"),
        (["run", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["run", "--jobs", "many"], "Invalid value for '--jobs'"),
        (["run", "--frce", "dpo"], "No such option: --frce"),
        (["runn"], "No such command 'runn'"),
        (["status", "nosuch"], "dvc.yaml: no stage 'nosuch'"),
        (["preset", "huge"], "preset huge: there is no presets/huge.yaml; there are none"),
        (["lineage", "nosuch"], "nosuch: nothing has run here yet"),
        (["run", "--set", "dpo.\x1b[31mbta=1"], r"--set dpo.\x1b[31mbta: unknown parameter"),
        (["run", "no\x9bsuch"], r"dvc.yaml: no stage 'no\x9bsuch'"),
        (["lineage", "\x1b]0;title\x07"], r"\x1b]0;title\x07: nothing has run here yet"),
        (["run", "n" * 10**6], "dvc.yaml: no stage 'nnnn"),
    ],
)
@pytest.mark.usefixtures("typed")
def test_wrong_use_is_one_line_and_exit_2(fresh: Path, arguments: list[str], message: str) -> None:
    params = (fresh / "params.yaml").read_bytes()
    code, out, error = call(fresh, *arguments)
    assert code == 2
    assert error.startswith(f"posttrain: {message}")
    assert error.count("\n") == 1
    assert error[:-1].isprintable()
    assert len(error) < 2100
    assert out == ""
    assert (fresh / "params.yaml").read_bytes() == params
    assert not (fresh / "data").exists()


@pytest.mark.usefixtures("typed")
def test_a_file_that_a_parameter_names_is_missed_before_anything_runs(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only targets that would read the file report it; others run without it."""

    def missing(given: RuleInput, _: Any) -> Iterator[tuple[str, str]]:
        if "ppo" in given.out_of_date and not (fresh / "raw/it.hdf5").exists():
            yield "file", "raw/it.hdf5 does not exist"

    monkeypatch.setattr(rules, "RULES", [("ppo", missing)])
    told = "posttrain: params.yaml: ppo.file: raw/it.hdf5 does not exist\n"
    assert call(fresh, "run", "report") == (2, "", told)
    assert call(fresh, "status") == (2, "", told)
    assert not (fresh / "data").exists()
    assert call(fresh, "run", "problems")[0] == 0
    (fresh / "raw").mkdir()
    (fresh / "raw/it.hdf5").touch()
    assert call(fresh, "run", "ppo")[0] == 0


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("params.yaml", "1e-1  # of dpo", '"high"', "params.yaml: dpo.beta: expected a number, got 'high'"),
        ("params.yaml", "dpo:", "dpoo:", "params.yaml: dpoo: unknown section; did you mean dpo?"),
        ("params.yaml", "dpo:", "dpo: {", "params.yaml: line"),
        (
            "params.yaml",
            "dpo:",
            '"d\\e[31mpo":',
            r"params.yaml: expected text without control characters, got 'd\x1b[31mpo'",
        ),
        (
            "params.yaml",
            "  beta:",
            '  "\\e[2Jx": 1\n  beta:',
            r"params.yaml: problems: expected text without control characters, got '\x1b[2Jx'",
        ),
        ("dvc.yaml", "stages:", "stages: [", "dvc.yaml: "),
        (
            "dvc.yaml",
            "stage.py, data/sft",
            "stage.py, absent.csv, data/sft",
            "dvc.yaml: stage 'dpo': dep absent.csv does not",
        ),
    ],
)
@pytest.mark.usefixtures("typed")
def test_a_broken_file_is_one_line_and_exit_2(
    fresh: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: str,
    old: str,
    new: str,
    message: str,
) -> None:
    path = fresh / file
    broken = path.read_text().replace(old, new, 1)
    path.write_text(broken)
    for command in ("run", "status"):
        code, out, error = call(fresh, command)
        assert code == 2
        assert error.startswith(f"posttrain: {message}")
        assert error.count("\n") == 1
        assert out == ""
    assert path.read_text() == broken


def test_a_torn_lock_is_one_line_and_exit_2(root: Path) -> None:
    (root / "dvc.lock").write_text("{")
    for command in (["run"], ["status"], ["lineage", "dpo"]):
        code, _, error = call(root, *command)
        assert (code, error.count("\n")) == (2, 1)
        assert error.startswith("posttrain: dvc.lock: broken YAML in line ")
        assert "git checkout dvc.lock" in error


def test_outside_of_a_repository(tmp_path: Path) -> None:
    code, _, error = call(tmp_path, "run")
    assert code == 2
    assert error.startswith("posttrain: dvc.yaml: not found in ")


def test_status_and_dry_run_say_why_and_change_nothing(fresh: Path) -> None:
    params = (fresh / "params.yaml").read_bytes()
    (fresh / "below").mkdir()
    plan = [*(f"{name:<8}  never run" for name in GRAPH), "5 of 5 stages would run"]
    assert call(fresh / "below", "status") == (0, "\n".join(plan) + "\n", "")
    code, out, error = call(fresh, "run", "sft", "--dry-run", "--set", "sft.beta=2")
    assert (code, error) == (0, "")
    assert out.splitlines() == [
        "params.yaml would change: sft.beta: 0.1 -> 2",
        "problems  never run",
        "sft       never run",
        "2 of 2 stages would run",
    ]
    code, out, _ = call(fresh, "run", "--dry-run", "--json")
    fact = {"state": "waiting", "reason": "never run", "seconds": 0.0, "mlflow_run_id": None}
    assert json.loads(out)["dpo"] == fact
    assert (fresh / "params.yaml").read_bytes() == params
    assert not (fresh / "mlruns").exists()


def test_a_preset_is_laid_over_params(fresh: Path) -> None:
    (fresh / "presets").mkdir()
    (fresh / "presets/large.yaml").write_text("dpo: {beta: 0.5}\n")
    code, out, err = call(fresh, "preset", "large")
    assert (code, err) == (0, "")
    assert out.startswith("params.yaml: dpo.beta: 0.1 -> 0.5\n")
    assert "beta: 0.5  # of dpo" in (fresh / "params.yaml").read_text()
    assert call(fresh, "preset", "large") == (0, "params.yaml: has the values of preset large already\n", "")


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), MemoryError(), KeyboardInterrupt()], ids=repr)
def test_params_yaml_is_as_before_whatever_ends_a_run_before_it_begins(
    fresh: Path, typed: None, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> NoReturn:
        assert "beta: 9" in (fresh / "params.yaml").read_text()
        raise error

    before = (fresh / "params.yaml").read_bytes()
    monkeypatch.setattr(planning, "plan_stages", fail)
    with pytest.raises(type(error)):
        running.run_targets(fresh, Console(quiet=True), settings=["dpo.beta=9.0"])
    assert (fresh / "params.yaml").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_params_yaml_is_as_before_where_a_signal_ends_a_run_before_it_begins(
    fresh: Path, typed: None, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def ended(*_: object) -> NoReturn:
        assert "beta: 9" in (fresh / "params.yaml").read_text()
        assert signal.getsignal(number) != signal.SIG_DFL, "by which this very process would end"
        signal.raise_signal(number)
        pytest.fail("it went on")

    monkeypatch.setattr(planning, "plan_stages", ended)
    before, handler = (fresh / "params.yaml").read_bytes(), signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt):
            running.run_targets(fresh, Console(quiet=True), settings=["dpo.beta=9.0"])
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, handler)
    assert (fresh / "params.yaml").read_bytes() == before


def test_help_lists_the_commands() -> None:
    code, out, _ = call(REPOSITORY)
    assert code == 0
    assert all(word in out for word in ("run", "status", "lineage", "preset", "ui"))


def test_a_disk_that_fails_is_one_line_and_exit_2(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "mlruns/logs/dpo.log")

    monkeypatch.setattr("flows.engine.plan.plan_stages", full)
    code, _, error = call(root, "run")
    assert (code, error) == (2, "posttrain: mlruns/logs/dpo.log: No space left on device; what had finished is kept\n")


def test_the_version_is_that_of_the_project(tmp_path: Path) -> None:
    """It is printed in any folder, since it needs no repository."""
    written = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert call(tmp_path, "--version") == (0, f"posttrain {written}\n", "")


def test_an_edit_that_only_a_later_run_would_refuse_is_refused_now(
    fresh: Path, typed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run to sft needs no ppo, whose rule says what is wrong; what the run needs has its own rules."""

    def find_fault(run: rules.RuleInput, section: object) -> list[tuple[str, str]]:
        return [("beta", "expected less than 1")] if {"problems", "sft", "ppo"} <= {*run.stages} else []

    monkeypatch.setattr(rules, "RULES", [("ppo", find_fault)])
    before = (fresh / "params.yaml").read_bytes()
    code, out, error = call(fresh, "run", "sft", "--set", "ppo.beta=2.0")
    assert (code, out, error) == (2, "", "posttrain: params.yaml: ppo.beta: expected less than 1\n")
    assert (fresh / "params.yaml").read_bytes() == before
    assert call(fresh, "run", "sft")[0] == 0  # ppo is not edited, and no concern of this run

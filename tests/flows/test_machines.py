"""What a machine may have in its environment: each is served, or is one line before anything runs; and what --set then
leaves.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flows import cli, running
from flows.engine import dvc_command
from flows.engine.stage_types import Event
from flows.params import checking
from tests.flows.toy_pipeline import TYPES, call, environ, make_pipeline, quietly

SET = ("run", "problems", "--set", "problems.beta=0.7")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pipeline(tmp_path_factory.mktemp("made") / "pipeline")


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline in which nothing has run."""
    monkeypatch.setattr(checking, "load_config_classes", lambda _: TYPES)
    return Path(shutil.copytree(made, tmp_path / "pipeline"))


ADDRESSES = (
    "databricks",
    "databricks-uc://x",
    "./mlruns",
    "mysql://u:secret99@h/d",
    "sqlite://",
    "sqlite:///x.db?timeout=5",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_cannot_be_used_is_one_line(
    address: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    params = (root / "params.yaml").read_bytes()
    assert call(root, "run", "problems")[0] == 0
    monkeypatch.chdir(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    for arguments in (
        SET,
        ["lineage", "problems"],
        ["verify", "problems"],
        ["compare", "now", "HEAD"],
        ["runs"],
        ["audit"],
    ):
        assert cli.run_command_line(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert error.startswith("posttrain: MLFLOW_TRACKING_URI: "), error
        assert error.count("\n") == 1
        assert "secret99" not in error
    assert (root / "params.yaml").read_bytes() == params


class UnforeseenError(BaseException):
    """What no code here catches."""


EXCEPTIONS = (KeyboardInterrupt, MemoryError, RuntimeError, OSError, running.WrongUseError, UnforeseenError, SystemExit)


def run_with(root: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> bytes:
    """params.yaml after a run that ended by this exception."""
    monkeypatch.chdir(root)
    with suppress(MemoryError, RuntimeError, UnforeseenError, SystemExit):
        assert cli.run_command_line(SET) != 0
    return (root / "params.yaml").read_bytes()


@pytest.mark.parametrize("error", EXCEPTIONS)
@pytest.mark.parametrize(
    "at",
    [
        "flows.running.check_and_plan_targets",
        "flows.running.run_flow_part",
        "flows.flow_run.device_memory.list_device_memory_problems",
    ],
)
def test_whatever_ends_a_run_before_anything_ran_params_are_as_before(
    at: str, error: type[BaseException], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise error("as it was asked to")

    params = (root / "params.yaml").read_bytes()
    quietly(monkeypatch)
    monkeypatch.setattr(at, ends)
    assert run_with(root, error, monkeypatch) == params


@pytest.mark.parametrize("error", EXCEPTIONS)
@pytest.mark.parametrize("state", ["running", "restored"])
def test_what_ends_a_run_after_a_stage_began_leaves_its_params(
    state: Any, error: type[BaseException], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next run goes on with them."""

    def started(*_: object, watch: Callable[[Event], None], **__: object) -> None:
        watch(Event("problems", "waiting"))
        watch(Event("problems", state))
        raise error("as it was asked to")

    quietly(monkeypatch)
    monkeypatch.setattr("flows.engine.run_session.open_recorded_execution", started)
    assert b"problems:\n  beta: 0.7" in run_with(root, error, monkeypatch)


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false", "/nowhere/bash", "", "/bin/true"])
def test_a_stage_runs_whatever_the_account_s_shell_is(shell: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", shell)
    code, out, error = call(root, "run", "problems")
    assert (code, error) == (0, "")
    assert "1 ran" in out
    assert (root / "data/problems/result.json").exists()


def test_a_shell_that_runs_commands_is_used_as_dvc_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    assert dvc_command.get_shell_path() == "/bin/sh"


def test_what_a_stage_prints_needs_no_letters_of_the_terminal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "stage.py").write_text("print('a \u2192 b', flush=True)\n" + (root / "stage.py").read_text())
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert call(root, "run", "problems")[0] == 0
    assert "a \u2192 b" in (root / "mlruns/logs/problems.log").read_text()


AS_A_NUMBER = """\
import pwd, sys
def unknown(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = unknown
from flows import cli
sys.argv = ["posttrain", "run", "problems", "--dry-run"]
cli.main()
"""


def process(root: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    named = {"LOGNAME", "USER", "LNAME", "USERNAME", "HOME", "PYTHONUTF8", "LC_ALL", "LANG", "PYTHONIOENCODING"}
    own = {name: value for name, value in environ().items() if name not in named}
    return subprocess.run(
        [sys.executable, *command], cwd=root, env={**own, **variables}, capture_output=True, check=False, timeout=120
    )


@pytest.mark.slow
@pytest.mark.parametrize("home", [{}, {"HOME": "/"}])
def test_an_account_that_is_a_mere_number_runs(home: dict[str, str], tmp_path: Path) -> None:
    done = process(make_pipeline(tmp_path / "pipeline"), "-c", AS_A_NUMBER, **home)
    assert done.returncode == 0, done.stderr.decode()
    assert b"problems" in done.stdout


OTHER_LETTERS = (
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
)


@pytest.mark.slow
@pytest.mark.parametrize("variables", OTHER_LETTERS, ids=lambda variables: "-".join(variables.values()))
def test_a_terminal_with_few_letters_gets_question_marks_and_files_are_utf_8(
    variables: dict[str, str], tmp_path: Path
) -> None:
    root = make_pipeline(tmp_path / "pipeline")
    params = (root / "params.yaml").read_text().replace("# a toy", "# a t\u014fy, \u65e5\u672c")
    (root / "params.yaml").write_text(params, encoding="utf-8")
    assert call(root, "run", "dpo")[0] == 0
    for arguments in (("lineage", "dpo"), ("run", "dpo", "--dry-run", "--set", "dpo.beta=0.2"), ("status",)):
        done = process(root, "-m", "flows.cli", *arguments, **variables)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr == b""
        done.stdout.decode("ascii" if "latin-1" not in variables.values() else "latin-1")
    assert (root / "params.yaml").read_text(encoding="utf-8") == params

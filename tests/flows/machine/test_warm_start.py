"""A stage that a server forks is what `python -m` makes of it, and can no more outlive its parent than a cold one."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.engine.dvc_command import CommandRunner, StageFailed
from flows.engine.stage_types import Grant
from flows.machine.supervisor import Command
from flows.machine.warm_start import NEVER_BEGAN, WarmCommand, WarmStarts, parse_python_module_command
from tests.flows.machine.test_supervisor import DOCILE, alive, wait_for

ENVIRON = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
MODULES = {"stages": ("json", "no_such_module")}
# What a process is made of: everything that a stage could see of how it was started.
PROBE = """
import json, os, resource, signal, sys, threading
from pathlib import Path
own = {
    "argv": sys.argv, "name": __name__, "spec": sys.modules["__main__"].__spec__.name, "file": __file__, "cwd": os.getcwd(), "path": sys.path,
    "environ": dict(os.environ), "stdin": sys.stdin.read(), "umask": os.umask(0o22),
    "handlers": {number.name: str(signal.getsignal(number)) for number in signal.valid_signals() if hasattr(number, "name")},
    "limits": [resource.getrlimit(number) for number in range(16)], "threads": threading.active_count(), "buffered": sys.stdout.line_buffering,
    "leader": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getsid(0), "nice": os.nice(0), "encoding": sys.stdout.encoding,
    "main": threading.current_thread() is threading.main_thread(), "project": [name for name in sys.modules if name.split(".")[0] in ("flows", "tasks", "tests")],
}
Path("probe.json").write_text(json.dumps(own))
print("out"); print("err", file=sys.stderr)
"""  # noqa: E501


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of stages below the working directory."""
    folder = tmp_path / "stages"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    return folder


@pytest.fixture
def warm() -> Iterator[WarmStarts]:
    starts = WarmStarts(MODULES)
    yield starts
    starts.close()


@pytest.fixture
def slow(package: Path) -> Iterator[WarmStarts]:
    """A server that needs ten minutes for its imports, given the package's folder in PYTHONPATH."""
    (package.parent / "slow_import.py").write_text("import time\ntime.sleep(600)\n")
    starts = WarmStarts({"stages": ("slow_import",)})
    yield starts
    starts.close()


def started(warm: WarmStarts, folder: Path, command: str, **changes: str) -> WarmCommand:
    found = warm.start(command, folder, {**ENVIRON, **changes}, folder / "log", [])
    assert found is not None
    return found


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)], ids=["shell", "nohup"])
def test_it_is_the_process_that_python_m_makes(
    package: Path, warm: WarmStarts, ignored: Sequence[signal.Signals]
) -> None:
    (package / "probe.py").write_text(PROBE)
    root, facts = package.parent, []
    stage = {"DVC_STAGE": "probe", "POSTTRAIN_RECORDS": "somewhere"}
    line = "python -m stages.probe --a 1 data/x"
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    for start in (
        lambda: started(warm, root, line, **stage),
        lambda: Command([["sh", "-c", line]], root, {**ENVIRON, **stage}, root / "log"),
    ):
        command = start()
        assert command.wait(60) == 0
        command.stop()
        facts.append(json.loads((root / "probe.json").read_text()))
        assert (root / "log").read_text().split() == ["out", "err"] * len(facts)
    for number, handler in before.items():
        signal.signal(number, handler)
    shell = {"OLDPWD", "_", "SHLVL", "PWD"}  # what `sh` adds
    for found in facts:
        found["environ"] = {name: value for name, value in found["environ"].items() if name not in shell}
    assert facts[0] == facts[1]
    assert facts[0]["project"] == []


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('a line')", 1, "a line\n"),
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
        ("import atexit; atexit.register(print, 'bye')", 0, "bye\n"),
    ],
)
def test_it_ends_as_the_stage_ends(package: Path, warm: WarmStarts, script: str, status: int, said: str) -> None:
    (package / "end.py").write_text(script)
    assert started(warm, package.parent, "python -m stages.end").wait(60) == status
    assert (package.parent / "log").read_text() == said


def test_an_error_leaves_its_traceback(package: Path, warm: WarmStarts) -> None:
    (package / "wrong.py").write_text("1 / 0\n")
    assert started(warm, package.parent, "python -m stages.wrong").wait(60) == 1
    said = (package.parent / "log").read_text()
    assert f'File "{package / "wrong.py"}", line 1' in said
    assert said.endswith("ZeroDivisionError: division by zero\n")


def test_a_change_of_the_project_s_own_code_counts(package: Path, warm: WarmStarts) -> None:
    (package / "stage.py").write_text("from stages import part; print(part.VALUE)\n")
    for value in ("first", "second, and longer"):
        (package / "part.py").write_text(f"VALUE = {value!r}\n")
        assert started(warm, package.parent, "python -m stages.stage").wait(60) == 0
    assert (package.parent / "log").read_text() == "first\nsecond, and longer\n"


def test_stop_ends_everything(package: Path, warm: WarmStarts) -> None:
    root = package.parent
    (package / "docile.py").write_text(DOCILE)
    command = started(warm, root, f"python -m stages.docile {root} 3")
    wait_for(lambda: len(alive(root)) == 3 and len(list(root.glob("*.pid"))) == 4, 60)
    command.stop()
    assert not alive(root)


def test_what_it_leaves_in_the_background_ends_with_it(package: Path, warm: WarmStarts) -> None:
    root = package.parent
    (root / "docile.py").write_text(DOCILE)
    (package / "leaves.py").write_text(
        f"import subprocess, sys, time, pathlib\nsubprocess.Popen([sys.executable, 'docile.py', {str(root)!r}, '0'])\n"
        f"while not list(pathlib.Path({str(root)!r}).glob('*.pid')):\n    time.sleep(0.02)\n"
    )
    assert started(warm, root, "python -m stages.leaves").wait(60) == 0
    assert not alive(root)


PARENT = """
import os, sys, time
from pathlib import Path
from flows.machine.warm_start import WarmStarts
root = Path(sys.argv[1])
starts = WarmStarts({'stages': ()})
started = starts.start(f"python -m stages.docile {root} 3", root, os.environ, root / "log", [])
time.sleep(300)
"""


def test_no_stage_and_no_server_survives_a_kill_of_the_parent(package: Path) -> None:
    root = package.parent
    (package / "docile.py").write_text(DOCILE)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(root)], env=ENVIRON)
    wait_for(lambda: len(alive(root)) == 3 and len(list(root.glob("*.pid"))) == 4, 60)
    assert len(alive(root)) == 3
    [server] = psutil.Process(parent.pid).children()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not alive(root) and _ended(server), 60)
    assert not alive(root)
    assert _ended(server)


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_stage_survives_its_supervisor(package: Path, warm: WarmStarts, number: signal.Signals) -> None:
    root = package.parent
    (package / "sleeps.py").write_text(
        f"import os, pathlib, time; pathlib.Path({str(root)!r}, f'{{os.getpid()}}.pid').touch(); time.sleep(300)"
    )
    command = started(warm, root, "python -m stages.sleeps")
    wait_for(lambda: alive(root), 60)
    supervisor = psutil.Process(alive(root)[0]).parent()
    assert supervisor is not None
    supervisor.send_signal(number)
    assert command.wait(60) == 137
    wait_for(lambda: not alive(root), 60)
    assert not alive(root)


def test_a_lock_lasts_as_long_as_the_stage(package: Path, warm: WarmStarts) -> None:
    root = package.parent
    (package / "waits.py").write_text(
        "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.02)\n"
    )
    with (root / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        command = warm.start("python -m stages.waits", root, ENVIRON, root / "log", [held.fileno()])
        assert command is not None
        assert command.wait(0.05) is None
    with (root / "lock").open("w") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (root / "go").touch()
        assert command.wait(60) == 0
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_its_server_a_stage_starts_cold(
    package: Path, slow: WarmStarts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is killed while it imports; the stage runs all the same, and so does the next."""
    root = package.parent
    (package / "says.py").write_text("print('here')\n")
    runner = CommandRunner(root, slow)
    grant = Grant(environ={**ENVIRON, "PYTHONPATH": str(root)})

    before, begun, start = set(psutil.Process().children()), threading.Event(), slow.start

    def kill() -> None:
        begun.wait(60)
        for child in set(psutil.Process().children()) - before:
            child.kill()

    def start_and_tell(*arguments: Any) -> WarmCommand | None:
        command = start(*arguments)
        begun.set()
        return command

    monkeypatch.setattr(slow, "start", start_and_tell)
    killer = threading.Thread(target=kill)
    killer.start()
    runner.call("says", "python -m stages.says", root, root / "mlruns/logs/says.log", grant, lambda *_: None)
    killer.join()
    assert (root / "mlruns/logs/says.log").read_text() == "here\n"
    runner.call("says", "python -m stages.says", root, root / "mlruns/logs/says.log", grant, lambda *_: None)
    assert (root / "mlruns/logs/says.log").read_text() == "here\n"
    runner.stop()
    with pytest.raises(StageFailed, match="stopped"):
        runner.call("says", "python -m stages.says", root, root / "mlruns/logs/says.log", grant, lambda *_: None)


RUN = """
import os, sys, time
from pathlib import Path
from flows.machine.warm_start import WarmStarts
folder = Path(sys.argv[1])
starts = WarmStarts({"stages": ("slow_import",)})
environ = {**os.environ, "PYTHONPATH": str(folder)}
assert starts.start("python -m stages.says", folder, environ, folder / "log", [])
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["time.sleep(600)", "while True: pass"])
def test_a_server_does_not_outlive_a_killed_run_by_its_imports(package: Path, how: str) -> None:
    folder = package.parent
    (folder / "slow_import.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(folder)!r}, f'{{os.getpid()}}.pid').touch()\n{how}\n"
    )
    with subprocess.Popen([sys.executable, "-c", RUN, str(folder)], cwd=Path(__file__).parents[3], env=ENVIRON) as run:
        wait_for(lambda: alive(folder), 60)
        [server] = alive(folder)
        run.kill()
    try:
        assert wait_for(lambda: not alive(folder), 60) < 60
    finally:
        if alive(folder):
            os.kill(server, signal.SIGKILL)


def test_a_stop_does_not_wait_for_the_server_s_imports(package: Path, slow: WarmStarts) -> None:
    root = package.parent
    (package / "says.py").write_text("print('here')\n")
    command = started(slow, root, "python -m stages.says", PYTHONPATH=str(root))
    began = time.monotonic()
    slow.close()
    command.stop()
    assert command.wait(0) == NEVER_BEGAN
    assert time.monotonic() - began < 300, "the imports take ten minutes"
    assert (root / "log").read_text() == ""


def test_another_environment_starts_cold(package: Path, warm: WarmStarts) -> None:
    """What posttrain sets for each stage may differ, and nothing else."""
    root = package.parent
    (package / "ends.py").write_text("")

    def start(**changes: str) -> WarmCommand | None:
        return warm.start("python -m stages.ends", root, {**ENVIRON, **changes}, root / "log", [])

    first, second = start(DVC_STAGE="a", MLFLOW_RUN_ID="1"), start(DVC_STAGE="b", MLFLOW_RUN_ID="2")
    assert first is not None
    assert second is not None
    assert [first.wait(60), second.wait(60)] == [0, 0]
    assert start(HF_HUB_OFFLINE="1", DVC_STAGE="a") is None
    assert start(CUDA_VISIBLE_DEVICES="0") is None
    warm.close()
    assert start() is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m tasks.language.dpo --out data/dpo", ("tasks.language.dpo", ["--out", "data/dpo"])),
        ("python -m tasks.offline.bc '{key}' 'a b'/c", ("tasks.offline.bc", ["{key}", "a b/c"])),
        ("python -m tasks.language.dpo {key}", None),
        ("python -m tasks.language.dpo 'a", None),
        ("python -m tasks.language.dpo > log", None),
        ("python -m tasks.language.dpo $HOME", None),
        ("python -m tasks.language.dpo {a,b}", None),
        ("python -m tasks.language.dpo {1..3}", None),
        ("python -m tasks.language.dpo data/*", None),
        ("python -m tasks.language.dpo ~/x", None),
        ("OMP_NUM_THREADS=1 python -m tasks.language.dpo", None),
        ("python -m tasks.language.dpo; echo", None),
        ("python -m", None),
        ("python -m elsewhere.stage", None),
        ("python stage.py", None),
        (["python -m tasks.language.dpo", "echo"], None),
    ],
)
def test_what_needs_a_shell_starts_cold(command: str | list[str], expected: object) -> None:
    assert parse_python_module_command(command, ENVIRON["PATH"], ("tasks.language", "tasks.offline")) == expected


def test_another_python_starts_cold(tmp_path: Path) -> None:
    (tmp_path / "python").touch()
    assert (
        parse_python_module_command(
            "python -m tasks.language.dpo", f"{tmp_path}{os.pathsep}{ENVIRON['PATH']}", ["tasks.language"]
        )
        is None
    )
    assert parse_python_module_command("python -m tasks.language.dpo", "", ["tasks.language"]) is None

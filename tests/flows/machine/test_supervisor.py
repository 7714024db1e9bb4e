import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from flows.machine.supervisor import Command

# A command that ignores SIGTERM, as do its grandchildren, which are in sessions of their own; one of them has lost its
# parent.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder, depth = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(folder / f"{os.getpid()}.pid").write_text("")
if depth:
    subprocess.Popen([sys.executable, __file__, str(folder), str(depth - 1)], start_new_session=True)
if depth == 1:
    sys.exit()  # the deepest is an orphan
time.sleep(300)
"""
DOCILE = STUBBORN.replace("SIG_IGN", "SIG_DFL")  # ends when asked, so that nobody waits for the grace period
PARENT = """
import os, sys, time
from pathlib import Path
from flows.machine.supervisor import Command
Command([[sys.executable, sys.argv[1], sys.argv[2], "3"]], Path.cwd(), os.environ, Path(sys.argv[2], "log"))
time.sleep(300)
"""


def alive(folder: Path) -> list[int]:
    return [int(file.stem) for file in folder.glob("*.pid") if _runs(int(file.stem))]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: object, seconds: float) -> float:
    began = time.monotonic()
    while not condition() and time.monotonic() - began < seconds:  # type: ignore[operator]
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture
def stubborn(tmp_path: Path) -> Path:
    """The program that has to be killed."""
    file = tmp_path / "stubborn.py"
    file.write_text(STUBBORN)
    return file


@pytest.fixture
def docile(tmp_path: Path) -> Path:
    """The program that ends when it is asked to."""
    file = tmp_path / "docile.py"
    file.write_text(DOCILE)
    return file


def test_no_child_survives_a_kill_of_the_parent(docile: Path, tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(docile), str(tmp_path)])
    wait_for(lambda: len(alive(tmp_path)) == 3 and len(list(tmp_path.glob("*.pid"))) == 4, 60)
    assert len(alive(tmp_path)) == 3
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not alive(tmp_path), 60)
    assert not alive(tmp_path)


def test_stop_ends_everything(stubborn: Path, tmp_path: Path) -> None:
    command = Command([[sys.executable, str(stubborn), str(tmp_path), "3"]], tmp_path, os.environ, tmp_path / "log")
    wait_for(lambda: len(alive(tmp_path)) == 3 and len(list(tmp_path.glob("*.pid"))) == 4, 60)
    command.stop()
    assert not alive(tmp_path)


def test_a_command_that_asks_for_it_may_end_in_order(tmp_path: Path) -> None:
    script = "trap 'echo bye > left; exit' TERM; echo > here; while true; do sleep 0.05; done"
    command = Command([["sh", "-c", script]], tmp_path, os.environ, tmp_path / "log")
    wait_for((tmp_path / "here").exists, 60)
    command.stop()
    assert (tmp_path / "left").read_text() == "bye\n"


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_status_is_the_commands(tmp_path: Path, script: str, status: int) -> None:
    command = Command([["sh", "-c", f"echo out; echo err >&2; {script}"]], tmp_path, os.environ, tmp_path / "log")
    assert command.wait(60) == status
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_what_a_command_leaves_in_the_background_ends_with_it(docile: Path, tmp_path: Path) -> None:
    script = f"{sys.executable} {docile} {tmp_path} 0 & while ! ls {tmp_path}/*.pid; do sleep 0.02; done"
    command = Command([["sh", "-c", script]], tmp_path, os.environ, tmp_path / "log")
    assert command.wait(60) == 0
    assert not alive(tmp_path)


def test_a_command_that_does_not_exist_fails(tmp_path: Path) -> None:
    command = Command([["no-such-program"]], tmp_path, os.environ, tmp_path / "log")
    assert command.wait(60) not in (0, None)
    assert "no-such-program" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_no_command_survives_its_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    """Ending the supervisor ends the command too; after a SIGKILL the supervisor's parent does so."""
    script = f"import os, pathlib, time; pathlib.Path('{tmp_path}', f'{{os.getpid()}}.pid').touch(); time.sleep(300)"
    shell = f'{sys.executable} -c "{script}"; true'  # keeps the shell alive as its parent
    command = Command([["sh", "-c", shell]], tmp_path, os.environ, tmp_path / "log")
    wait_for(lambda: alive(tmp_path), 60)
    [child] = alive(tmp_path)
    supervisor = psutil.Process(child).parent().parent()
    supervisor.send_signal(number)
    status = command.wait(60)
    assert status == 128 + (number if number == signal.SIGKILL else signal.SIGTERM)
    wait_for(lambda: not alive(tmp_path), 60)
    assert not alive(tmp_path)


def test_the_end_of_a_command_is_seen_at_once(tmp_path: Path) -> None:
    """Popen.wait with a time limit looks every 50 ms, which a chain of short stages pays at each of them."""
    command = Command([["true"]], tmp_path, os.environ, tmp_path / "log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: pytest.fail("it slept"))
        assert command.wait(30) == 0
    command.stop()
    assert command.wait(1) == 0


def test_many_may_stop_a_command_at_once(tmp_path: Path) -> None:
    """A descriptor that is closed twice may be another file's by then."""
    faults: list[Exception] = []

    def stop(command: Command) -> None:
        try:
            command.stop()
            command.wait(60)
        except Exception as error:
            faults.append(error)

    for _ in range(6):
        command = Command([["cat"]], tmp_path, os.environ, tmp_path / "log")
        threads = [threading.Thread(target=stop, args=[command]) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert faults == []

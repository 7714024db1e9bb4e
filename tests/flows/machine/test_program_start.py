"""Programs whose supervisor a server forks: the same processes as under a supervisor of their own, and the same
ends.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from flows.machine.supervisor import Command
from flows.machine.warm_start import NEVER_BEGAN, WarmCommand, WarmStarts
from tests.flows.machine.test_supervisor import wait_for
from tests.flows.machine.test_warm_start import ENVIRON, PROBE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def ready() -> Iterator[WarmStarts]:
    """With the server of programs."""
    starts = WarmStarts({}).prepare()
    yield starts
    starts.close()


def begun(ready: WarmStarts, folder: Path, line: str, **changes: str) -> WarmCommand:
    found = ready.program(["sh", "-c", line], folder, {**ENVIRON, **changes}, folder / "log", [])
    assert found is not None
    return found


def test_a_program_is_the_process_that_a_supervisor_starts(root: Path, ready: WarmStarts) -> None:
    (root / "stages").mkdir()
    (root / "stages/probe.py").write_text(PROBE)
    facts = []
    line = "python -m stages.probe --a 1 data/x; python -c 'import signal; print(signal.getsignal(signal.SIGPIPE))'"
    for start in (
        lambda: begun(ready, root, line, MINE="only this"),
        lambda: Command([["sh", "-c", line]], root, {**ENVIRON, "MINE": "only this"}, root / "log"),
    ):
        (root / "log").unlink(missing_ok=True)
        command = start()
        assert command.wait(60) == 0
        command.stop()
        facts.append((json.loads((root / "probe.json").read_text()), (root / "log").read_text()))
    assert facts[0] == facts[1]
    assert facts[0][0]["environ"]["MINE"] == "only this"


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("echo out; echo err >&2", 0, "out\nerr\n"),
        ("exit 7", 7, ""),
        ("kill -9 $$", 137, ""),
        ("yes | head -1", 0, "y\n"),
    ],
)
def test_it_ends_as_the_program_ends(root: Path, ready: WarmStarts, line: str, status: int, said: str) -> None:
    assert begun(ready, root, line).wait(60) == status
    assert (root / "log").read_text() == said


def test_a_program_that_is_not_there_is_a_line_in_the_log(root: Path, ready: WarmStarts) -> None:
    command = ready.program(["no-such-shell", "-c", "x"], root, ENVIRON, root / "log", [])
    assert command is not None
    assert command.wait(60) == 127
    assert (root / "log").read_text() == "no-such-shell: No such file or directory\n"


def test_stop_ends_a_program_and_what_it_started(root: Path, ready: WarmStarts) -> None:
    command = begun(ready, root, "(sleep 600 & echo $! > writing; mv writing child; sleep 600)")
    wait_for(lambda: (root / "child").exists(), 60)
    command.stop()
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(int((root / "child").read_text())).status() == psutil.STATUS_ZOMBIE


def test_without_its_server_a_program_starts_as_ever(root: Path, ready: WarmStarts) -> None:
    assert WarmStarts({}).program(["true"], root, ENVIRON, root / "log", []) is None, "it was not prepared"
    assert ready._programs is not None
    ready._programs._process.kill()
    ready._programs._process.wait()
    command = ready.program(["true"], root, ENVIRON, root / "log", [])
    assert command is None or command.wait(60) == NEVER_BEGAN

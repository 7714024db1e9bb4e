"""How much memory a command and all that it started had at most, cold and warm."""

import os
import sys
from pathlib import Path

import pytest

from flows.machine.supervisor import PEAK_MEMORY, Command
from flows.machine.warm_start import WarmStarts

MB = 10**6
# Takes so many megabytes for a moment, alone, or in each of several processes at once, which wait until all have them.
TAKES = """
import os, pathlib, subprocess, sys, time
megabytes, processes = int(sys.argv[1]), int(sys.argv[2])
if processes > 1:
    command = [sys.executable, __file__, sys.argv[1], "1", sys.argv[2]]
    ones = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    [one.wait() for one in ones]
else:
    block = b"x" * (megabytes * 10**6)
    if processes:
        pathlib.Path(f"{os.getpid()}.has").touch()
        while len(list(pathlib.Path().glob("*.has"))) < int(sys.argv[3]):
            time.sleep(0.01)
        time.sleep(1.0)
sys.exit(3 * (processes == 0))
"""


def taken(tmp_path: Path, megabytes: int, processes: int) -> float:
    file, log = tmp_path / "takes.py", tmp_path / "log"
    file.write_text(TAKES)
    environ = {**os.environ, PEAK_MEMORY: str(tmp_path / "peak")}
    command = [sys.executable, str(file), str(megabytes), str(processes)]
    assert Command([command], tmp_path, environ, log).wait() == 3 * (processes == 0), log.read_text()
    return int((tmp_path / "peak").read_text()) / MB


def test_the_peak_of_one_process_is_the_kernel_s_however_short_it_was(tmp_path: Path) -> None:
    before = taken(tmp_path, 0, 0)
    assert 5 < before < 60
    assert taken(tmp_path, 200, 0) == pytest.approx(before + 200, abs=5)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the processes of a tree are not added up")
def test_processes_at_once_are_added_up(tmp_path: Path) -> None:
    assert 3 * 150 < taken(tmp_path, 150, 3) < 3 * 150 + 200


def test_a_second_command_counts_for_itself_and_nothing_is_written_unasked(tmp_path: Path) -> None:
    file = tmp_path / "takes.py"
    file.write_text(TAKES)
    command = Command([[sys.executable, str(file), "1", "0"]], tmp_path, os.environ, tmp_path / "log")
    assert command.wait() == 3
    assert {each.name for each in tmp_path.iterdir()} == {"takes.py", "log"}


@pytest.mark.skipif(sys.platform != "linux", reason="stages start warm on Linux only")
def test_a_stage_that_is_forked_counts_what_it_has_itself(tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "takes.py").write_text(TAKES)
    warm = WarmStarts({"stages": ("json",)})
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = []
    for megabytes in (0, 100):
        environ = {**os.environ, "PATH": path, PEAK_MEMORY: str(tmp_path / "peak")}
        started = warm.start(f"python -m stages.takes {megabytes} 0", tmp_path, environ, tmp_path / "log", [])
        assert started is not None
        assert started.wait() == 3
        found.append(int((tmp_path / "peak").read_text()) / MB)
    warm.close()
    assert found[1] == pytest.approx(found[0] + 100, abs=10)

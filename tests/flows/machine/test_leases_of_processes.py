"""Leases of real processes, ended and stopped in every way."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.machine.devices import list_device_holders, try_lease_devices
from flows.machine.supervisor import Command
from tests.flows.machine.test_supervisor import alive, wait_for

HOLD = """
import sys, time
from flows.machine.devices import try_lease_devices
held = try_lease_devices(["0"], 1, "the holder")
print("held" if held else "not held", flush=True)
time.sleep(300)
"""
# As a run does: a lease, and a command that keeps it.
RUN = """
import os, sys, time
from pathlib import Path
from flows.machine.devices import try_lease_devices
from flows.machine.supervisor import Command
held = try_lease_devices(["0"], 1, "the run")
script = "import os, pathlib, time; pathlib.Path(f'{os.getpid()}.pid').touch(); time.sleep(300)"
Command([["sh", "-c", f'{sys.executable} -c "{script}"; true']], Path.cwd(), os.environ, Path("log"), held.files)
time.sleep(300)
"""
# Takes and frees devices; whoever enters reads who was last in, and that one has left or is dead.
WORK = """
import os, random, sys, time
from pathlib import Path
import psutil
from flows.machine.devices import try_lease_devices

def lives(pid):  # one that was killed has closed its files, and with them the lock, before the kernel calls it dead
    try:
        return psutil.Process(pid).num_fds() > 0
    except psutil.Error:
        return False

chance, until, names = random.Random(int(sys.argv[1])), time.monotonic() + float(sys.argv[2]), ["0", "1", "2"]
while time.monotonic() < until and not Path("shared").exists():
    count = chance.randint(1, 3)
    held = try_lease_devices(chance.sample(names, 3), count, f"pid {os.getpid()}")
    if held is None:
        time.sleep(0.002 * chance.random())
        continue
    assert len(held.names) == count
    for name in held.names:
        inside = Path(f"{name}.inside")
        before = inside.read_text() if inside.exists() else ""
        if before and int(before) != os.getpid() and lives(int(before)):
            Path("shared").write_text(f"{name}: {before} and {os.getpid()}")
        inside.write_text(str(os.getpid()))
    time.sleep(0.004 * chance.random())
    for name in held.names:
        if Path(f"{name}.inside").read_text() != str(os.getpid()):
            Path("shared").write_text(f"{name}: {os.getpid()} found another")
        Path(f"{name}.inside").write_text("")
    with Path("entered").open("a") as file:
        file.write("x")
    held.release()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POSTTRAIN_DEVICES", str(tmp_path / "locks"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def free() -> bool:
    held = try_lease_devices(["0"], 1)
    if held is not None:
        held.release()
    return held is not None


def test_a_stopped_process_keeps_its_lease_and_a_killed_one_does_not(home: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "held\n"
    assert list_device_holders(["0"]) == {"0": "the holder"}
    process.send_signal(signal.SIGSTOP)
    assert not free()
    process.kill()
    process.wait()
    assert free()


@pytest.mark.slow
@pytest.mark.parametrize("supervisor_too", [False, True])
def test_a_lease_lasts_as_long_as_the_command(home: Path, supervisor_too: bool) -> None:
    """After a kill of the run its supervisor ends the command; if that was killed as well, the command lives on and
    keeps the device.
    """
    run = subprocess.Popen([sys.executable, "-c", RUN])
    wait_for(lambda: alive(home), 60)
    [command] = alive(home)
    supervisor = psutil.Process(command).parent().parent()
    assert not free()
    if supervisor_too:
        run.send_signal(signal.SIGSTOP)  # it would end the command of a dead supervisor
        supervisor.kill()
    run.kill()
    run.wait()
    if supervisor_too:
        time.sleep(2)
        assert alive(home) == [command]
        assert not free()
        assert list_device_holders(["0"]) == {"0": "the run"}
        os.kill(command, signal.SIGKILL)
    wait_for(free, 60)
    assert free()
    assert not alive(home)


def test_a_command_that_keeps_nothing_holds_nothing(home: Path) -> None:
    held = try_lease_devices(["0"], 1)
    assert held is not None
    show = "ls -l /proc/self/fd | grep -c locks"
    for keep, count in ((held.files, "2"), ((), "0")):
        log = home / "log"
        log.unlink(missing_ok=True)
        command = Command([["sh", "-c", show]], home, os.environ, log, keep)
        command.wait(60)
        assert log.read_text().strip() == count, "the lock and its folder, or neither"
    held.release()
    assert free()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_no_device_is_shared_while_processes_come_and_are_killed(home: Path, seed: int) -> None:
    """Eight processes take 1 to 3 of three devices, over and over; as they go on, one is killed and another begins."""
    chance, entered = random.Random(seed), home / "entered"

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WORK, str(chance.randrange(10**9)), "600"])

    running = [start() for _ in range(8)]
    try:
        for kills in range(40):
            wait_for(lambda: entered.exists() and entered.stat().st_size > 3 * kills, 60)  # noqa: B023
            victim = running.pop(chance.randrange(len(running)))
            victim.kill()
            victim.wait()
            running.append(start())
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert not (home / "shared").exists(), (home / "shared").read_text()
    assert len(entered.read_text()) > 50
    held = try_lease_devices(["0", "1", "2"], 3)
    assert held is not None, "nothing of the killed is left"
    held.release()


def test_the_stress_would_see_a_shared_device(home: Path) -> None:
    """The worker above with a lease that gives everybody everything."""
    faulty = WORK.replace("from flows.machine.devices import try_lease_devices", "from faulty import try_lease_devices")
    (home / "faulty.py").write_text(
        "class Lease:\n    def release(self): pass\n\n"
        "def try_lease_devices(names, count, holder):\n    held = Lease(); held.names = names[:count]; return held\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(home)}
    both = [subprocess.Popen([sys.executable, "-c", faulty, str(seed), "60"], env=environ) for seed in (1, 2)]
    for process in both:
        process.wait()
    assert (home / "shared").exists()

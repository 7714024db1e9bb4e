"""Coordinators of several repositories on one machine that ask for the same device."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flows.engine.coordinator import Coordinator
from flows.engine.execute import Execution
from flows.engine.plan import PlanError
from flows.machine import devices, resources
from tests.flows.engine import in_order
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import alive, wait_for

RUN = """
import sys
from pathlib import Path
from flows.engine.coordinator import Coordinator
from flows.engine.execute import Execution
from flows.engine.plan import plan_stages
from tests.flows.engine import in_order

def watch(event):
    print(event.stage, event.state, event.reason, flush=True)

root = Path(sys.argv[1])
planned = plan_stages(root, sys.argv[2:])
with Coordinator(root) as coordinator:
    execution = Execution(coordinator, planned, None, watch)
    in_order.run(execution)
"""
# Notes when it begins and ends to use the devices that it sees.
USE = """
import os, pathlib, sys, time
shared, out, seconds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
pathlib.Path(f"{os.getpid()}.pid").touch()
seen = os.environ["CUDA_VISIBLE_DEVICES"]

def note(what):
    with shared.open("a") as file:
        file.write(f"{what} {device}\\n")

for device in seen.split(","):
    note("enter")
time.sleep(seconds)
for device in seen.split(","):
    note("leave")
out.parent.mkdir(exist_ok=True)
out.write_text(seen)
"""


def gpu_stage(toy: Toy, name: str, seconds: float, gpu: int = 1) -> None:
    toy.write("use.py", USE)
    shared = toy.root.parent / "shared"
    cmd = f"python use.py {shared} data/{name} {seconds}"
    toy.stage(name, cmd=cmd, meta={"resources": {"cpu": 1, "gpu": gpu}})


def start(toy: Toy) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(toy.root), *toy.stages]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


def most_at_once(notes: str) -> int:
    """The most stages that used one device at the same time."""
    inside: dict[str, int] = {}
    most = 0
    for line in notes.splitlines():
        what, device = line.split()
        inside[device] = inside.get(device, 0) + (1 if what == "enter" else -1)
        most = max(most, inside[device])
    assert set(inside.values()) <= {0}, "all that came left"
    return most


@pytest.fixture
def two(make_toy: Callable[[str], Toy], monkeypatch: pytest.MonkeyPatch) -> tuple[Toy, Toy]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    return make_toy("one"), make_toy("two")


def test_overlaps_are_seen() -> None:
    assert most_at_once("enter 0\nenter 1\nleave 1\nleave 0\nenter 0\nleave 0\n") == 1
    assert most_at_once("enter 0\nenter 0\nleave 0\nleave 0\n") == 2


@pytest.mark.slow
@pytest.mark.parametrize("visible", ["0", "0,1"])
def test_two_coordinators_never_share_a_device(
    two: tuple[Toy, Toy], monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    """Each has stages for one device and, where there are two, one for both.

    They begin together, when this process lets go.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    held = devices.try_lease_devices(visible.split(","), len(visible.split(",")), "the test")
    assert held is not None
    for toy in two:
        for name in ("a", "b", "c"):
            gpu_stage(toy, name, 0.3)
        gpu_stage(toy, "d", 0.3, gpu=len(visible.split(",")))
    runs = [start(toy) for toy in two]
    for run in runs:
        assert run.stdout is not None
        assert any("waits for device 0, held by the test" in line for line in run.stdout), "it says so before it ends"
    held.release()
    for run in runs:
        run.communicate(timeout=90)
    notes = (two[0].root.parent / "shared").read_text()
    assert most_at_once(notes) == 1
    for toy in two:
        assert {name: toy.read(f"data/{name}") in visible.split(",") for name in "abc"} == dict.fromkeys("abc", True)
        assert toy.read("data/d") == visible
    assert notes.count("enter") == 2 * (3 + len(visible.split(",")))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_device_is_passed_on_when_its_holder_is_dead_and_not_before(
    two: tuple[Toy, Toy], sent: signal.Signals
) -> None:
    one, other = two
    gpu_stage(one, "a", 60)
    gpu_stage(other, "b", 0)
    holder = start(one)
    wait_for(lambda: alive(one.root), 60)
    assert alive(one.root)
    waiting = start(other)
    assert waiting.stdout is not None
    lines = iter(waiting.stdout.readline, "")
    said = next(line for line in lines if "waits" in line)
    assert said.startswith(f"b waiting waits for device 0, held by a of {one.root} (pid {holder.pid} on ")
    holder.send_signal(sent)
    if sent == signal.SIGSTOP:  # a machine that stands still, or a person who thinks
        all_of_it = [*psutil.Process(holder.pid).children(recursive=True), psutil.Process(holder.pid)]
        for process in all_of_it:
            process.suspend()
        time.sleep(2)
        assert not (other.root / "data/b").exists()
        for process in all_of_it:
            process.kill()
    assert waiting.wait(120) == 0
    assert other.read("data/b") == "0"
    assert not alive(one.root)
    for process in (holder, waiting):
        process.communicate()


def test_the_command_itself_holds_the_locks_of_its_device_and_its_stage(two: tuple[Toy, Toy]) -> None:
    toy = two[0]
    cmd = "mkdir -p data; ls -l /proc/self/fd > data/{}"
    toy.stage("a", cmd=cmd.format("a"), meta={"resources": {"gpu": 1}})
    toy.stage("b", cmd=cmd.format("b"))
    assert {result.state for result in toy.run_parallel().values()} == {"ran"}
    locks = {name: [line.split("/")[-1] for line in toy.read(f"data/{name}").splitlines()] for name in "ab"}
    assert {"0.lock", "a.lock"} <= set(locks["a"])
    assert "b.lock" in locks["b"]
    assert not {"0.lock", "a.lock"} & set(locks["b"])


def test_stopping_a_run_that_waits_for_a_device_takes_a_moment(
    two: tuple[Toy, Toy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "POLL_SECONDS", 0.05)
    toy = two[0]
    gpu_stage(toy, "a", 0)
    held = devices.try_lease_devices(["0"], 1, "sft of /elsewhere (pid 1 on host)")
    assert held is not None
    with Coordinator(toy.root) as coordinator:
        execution = Execution(coordinator, toy.plan(), None, toy.events.append)
        results = in_order.start(execution)
        wait_for(lambda: len(toy.events) > 1, 60)
        coordinator.stop()
        [result] = results()  # the device is never free
    assert (result.state, result.reason) == ("skipped", "the run was stopped")
    waits = "waits for device 0, held by sft of /elsewhere (pid 1 on host)"
    assert [(event.state, event.reason) for event in toy.events][1] == ("waiting", waits)
    held.release()


def test_locks_that_cannot_be_used_are_one_line_before_anything_runs(
    two: tuple[Toy, Toy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTTRAIN_DEVICES", "/no/such/folder")
    toy = two[0]
    toy.stage("cpu")
    with Coordinator(toy.root) as coordinator:
        Execution(coordinator, toy.plan(), None, toy.events.append)
        gpu_stage(toy, "a", 0)
        with pytest.raises(PlanError, match="/no/such/folder: the folder of the devices' locks cannot be used"):
            Execution(coordinator, toy.plan(), None, toy.events.append)
    assert not (toy.root / "data").exists()


def test_a_lock_that_breaks_meanwhile_fails_its_stage(two: tuple[Toy, Toy], monkeypatch: pytest.MonkeyPatch) -> None:
    toy = two[0]
    gpu_stage(toy, "a", 0)
    with Coordinator(toy.root) as coordinator:
        execution = Execution(coordinator, toy.plan(), None, toy.events.append)
        monkeypatch.setenv("POSTTRAIN_DEVICES", "/no/such/folder")
        result = execution.start("a").result()
    assert result.state == "failed"
    assert result.reason.startswith("/no/such/folder: the folder of the devices' locks cannot be used: No such file")

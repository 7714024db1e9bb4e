"""Stages whose command stands behind a prefix, with launchers made up for these tests."""

import threading

import pytest

from flows.engine import dvc_command
from flows.engine.coordinator import Coordinator
from flows.engine.execute import Execution
from flows.engine.plan import PlanError
from tests.flows.engine import in_order
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import alive, wait_for

# The first becomes the command, as `nice` does; the second starts it as a child in a session of its own and waits.
LAUNCHERS = {
    "become": '#!/bin/sh\necho "launched $1"; shift; exec "$@"\n',
    "start": """#!/usr/bin/env python
import subprocess, sys
print("launched", sys.argv[1], flush=True)
sys.exit(subprocess.Popen(sys.argv[2:], start_new_session=True).wait())
""",
}
WORK = """
import json, os, pathlib, sys, time
with open(os.environ["POSTTRAIN_PROGRESS"], "a") as file:
    file.write(json.dumps({"step": 3, "total": 4}) + "\\n")
print("at work", flush=True)
pathlib.Path(f"{os.getpid()}.pid").touch()
time.sleep(float(sys.argv[1]))
pathlib.Path("data").mkdir(exist_ok=True)
pathlib.Path("data/a").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def launchers(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Toy:
    for name, text in LAUNCHERS.items():
        toy.write(f"bin/{name}", text).chmod(0o755)
    monkeypatch.setenv("PATH", str(toy.root / "bin"), prepend=":")
    monkeypatch.setattr(dvc_command, "LOOK_SECONDS", 0.02)
    toy.write("slow.py", WORK)
    return toy


def launched(toy: Toy, launcher: str, cmd: str = "python slow.py 0.2 0") -> None:
    toy.stage("a", cmd=cmd, meta={"resources": {"cpu": 1, "gpu": 1, "launcher": launcher}})


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launched_stage_reports_logs_and_is_recorded_as_a_local_one(launchers: Toy, launcher: str) -> None:
    launched(launchers, f"{launcher} 'an argument'")
    result = launchers.run_parallel()["a"]
    assert result.state == "ran", result.reason
    assert launchers.read("mlruns/logs/a.log") == "launched an argument\nat work\n"
    assert (3, 4) in [(event.step, event.total) for event in launchers.events]
    del launchers.stages["a"]["meta"]
    launchers.save()
    assert launchers.reasons() == {"a": None}, "the launcher is in no hash"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_stopping_a_run_ends_what_a_launcher_started(launchers: Toy, launcher: str) -> None:
    launched(launchers, f"{launcher} x", "python slow.py 60 0")
    with Coordinator(launchers.root) as coordinator:
        execution = Execution(coordinator, launchers.plan(), None, launchers.events.append)
        results = in_order.start(execution)
        wait_for(lambda: alive(launchers.root), 20)
        assert alive(launchers.root)
        coordinator.stop()
        [result] = results()
    assert (result.state, result.reason) == ("failed", "stopped")
    assert not alive(launchers.root)


def test_the_exit_status_of_a_launcher_is_the_stages(launchers: Toy) -> None:
    launched(launchers, "bin/start x", "python slow.py 0 7")  # a path is one in the repository
    result = launchers.run_parallel()["a"]
    assert (result.state, result.reason) == ("failed", "at work (exit status 7)")


def test_every_command_of_a_stage_gets_the_launcher(launchers: Toy) -> None:
    launched(launchers, "become x")
    launchers.stages["a"]["cmd"] = ["echo one", "python slow.py 0 0"]
    launchers.save()
    assert launchers.run_parallel()["a"].state == "ran"
    assert launchers.read("mlruns/logs/a.log") == "launched x\none\nlaunched x\nat work\n"


def test_a_launched_stage_holds_nothing_of_this_machine(launchers: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variables are the user's, and it waits neither for the one core nor for a device that it could never get."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    launched(launchers, "become x", "python slow.py 0 0")
    launchers.stages["a"]["meta"]["resources"] |= {"gpu": 8, "cpu": 999}
    launchers.stage("b", cmd="while ! test -e data/a; do sleep 0.02; done; cp data/a data/b")
    done = threading.Event()
    watchdog = threading.Timer(120, lambda: done.is_set() or launchers.write("data/a", "too late"))
    watchdog.start()
    results = launchers.run_parallel(jobs=1)
    done.set()
    watchdog.cancel()
    assert {result.state for result in results.values()} == {"ran"}
    assert launchers.read("data/b") == "0", "as the user has it"


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        (["srun"], r"""expected a command such as "srun --gres=gpu:1", got \['srun'\]"""),
        ("", r"expected a command such as .*, got ''"),
        (" ", "expected a command"),
        (None, "expected a command such as .*, got None"),
        ("srun 'a", '"srun \'a" is no command: No closing quotation'),
        ("no-such-launcher --gres=gpu:1", "no program no-such-launcher on the PATH of this machine"),
        ("./slow.py", r"no program \./slow\.py on the PATH"),
    ],
)
def test_a_wrong_launcher_is_one_line_before_anything_runs(launchers: Toy, launcher: object, said: str) -> None:
    launchers.stage("a", meta={"resources": {"launcher": launcher}})
    with pytest.raises(PlanError, match=rf"^dvc.yaml: stage 'a': meta.resources.launcher: {said}") as raised:
        launchers.plan()
    assert "\n" not in str(raised.value)

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.engine.coordinator import Coordinator
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import alive, wait_for
from tests.tasks import forks

# Slow in its second run only, after it has written half of its out.
SLOW = """
import os, pathlib, sys, time
if pathlib.Path("data/b").exists():
    sys.exit("the out of before is in the way")
pathlib.Path("data/b").write_text("half")
if pathlib.Path("slow").exists():
    pathlib.Path(f"{os.getpid()}.pid").write_text("")
    time.sleep(60)
pathlib.Path("data/b").write_text(pathlib.Path("params.yaml").read_text())
"""


@pytest.fixture(scope="module")
def after_a_kill(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    """A repository whose coordinator was killed during a second run of stage b."""
    root = tmp_path_factory.mktemp("killed") / "toy"
    shutil.copytree(template, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        yield kill(Toy(root))


def kill(toy: Toy) -> Toy:
    """Run both stages, then kill the coordinator while it runs the second one again."""
    toy.write("slow.py", SLOW)
    toy.stage("a")
    toy.stage("b", "a", cmd="python slow.py")
    assert set(toy.states().values()) == {"ran"}
    toy.write("slow", "")
    toy.set(b=2)

    def run() -> None:
        with Coordinator(toy.root) as coordinator:
            coordinator.execute("b", lambda event: None)

    child = forks.start(run)
    wait_for(lambda: alive(toy.root), 60)
    assert alive(toy.root)
    os.kill(child, signal.SIGKILL)
    assert forks.ended(child) == -signal.SIGKILL
    wait_for(lambda: not alive(toy.root), 60)
    assert not alive(toy.root)
    Path(toy.root, "slow").unlink()
    return toy


@pytest.fixture
def killed(after_a_kill: Toy, tmp_path: Path) -> Iterator[Toy]:
    """That repository, which is at the same path as it was then after each test."""
    root, params = after_a_kill.root, dict(after_a_kill.params)
    shutil.copytree(root, tmp_path / "kept", symlinks=True)
    yield after_a_kill
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "kept", root, symlinks=True)
    after_a_kill.params = params


def test_after_a_kill_the_record_is_whole_and_the_next_run_finishes(killed: Toy) -> None:
    assert killed.lock["stages"]["b"]["params"] == {"params.yaml": {"b": 1}}
    assert killed.states() == {"a": "up-to-date", "b": "ran"}
    assert killed.dvc("status").strip() == "Data and pipelines are up to date."


def test_after_a_kill_the_outs_of_before_come_back(killed: Toy) -> None:
    killed.set(b=1)
    killed.run("a")
    assert set(killed.reasons().values()) == {None}
    assert "half" not in killed.read("data/b")


def test_after_a_kill_and_plain_dvc_repro_its_outs_stay(killed: Toy) -> None:
    killed.dvc("repro")
    made = killed.read("data/b")
    assert killed.states() == {"a": "up-to-date", "b": "up-to-date"}
    assert killed.read("data/b") == made

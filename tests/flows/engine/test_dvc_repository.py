"""DVC's lock while another process has it, or has left it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
import zc.lockfile
from dvc.lock import HardlinkLock

from flows.engine import dvc_repository
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import StageResult
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import wait_for

pytestmark = pytest.mark.usefixtures("plain_commands")


@contextmanager
def begun(toy: Toy, stage: str) -> Iterator[tuple[Coordinator, list[StageResult], Thread]]:
    """A stage that is being brought up to date in a thread, with the list that its result comes into."""
    with Coordinator(toy.root) as coordinator:
        results: list[StageResult] = []
        thread = Thread(target=lambda: results.append(coordinator.execute(stage, toy.events.append)))
        thread.start()
        try:
            yield coordinator, results, thread
        finally:
            coordinator.stop()
            thread.join()


def waits(toy: Toy) -> list[str]:
    return [event.reason for event in toy.events if "waits for DVC's lock" in event.reason]


def test_who_has_dvc_s_lock_is_told_at_once_and_the_run_goes_on_when_it_is_free(toy: Toy) -> None:
    toy.stage("a")
    held = zc.lockfile.LockFile(str(toy.root / dvc_repository.LOCK))
    with begun(toy, "a") as (_, results, thread):
        wait_for(lambda: bool(waits(toy)), 60)
        assert f"process {os.getpid()} (" in waits(toy)[0]
        held.close()
        thread.join()
    assert results[0].state == "ran"


def test_a_run_that_waits_for_dvc_s_lock_can_be_stopped(toy: Toy) -> None:
    toy.stage("a")
    held = zc.lockfile.LockFile(str(toy.root / dvc_repository.LOCK))
    with begun(toy, "a") as (coordinator, results, thread):
        wait_for(lambda: bool(waits(toy)), 60)
        coordinator.stop()
        thread.join()  # while the lock is held
    held.close()
    assert (results[0].state, results[0].reason) == ("failed", "stopped")
    assert toy.states() == {"a": "ran"}


def test_what_was_made_while_another_took_the_lock_is_not_lost(toy: Toy) -> None:
    toy.stage("a", cmd="until test -e go; do sleep 0.02; done; mkdir -p data && echo 1 > data/a && echo ran >> log")
    with begun(toy, "a") as (coordinator, results, thread):
        wait_for(lambda: any(event.reason == "never run" for event in toy.events), 60)
        held = zc.lockfile.LockFile(str(toy.root / dvc_repository.LOCK))
        toy.write("go", "")
        wait_for(lambda: bool(waits(toy)), 60)
        coordinator.stop()
        thread.join()
    held.close()
    assert results[0].reason == "stopped"
    assert toy.states() == {"a": "restored"}
    assert toy.read("log") == "ran\n"


@pytest.fixture
def hardlinked(toy: Toy) -> Toy:
    toy.stage("a")
    with (toy.root / ".dvc/config").open("a") as file:
        file.write("    hardlink_lock = true\n")
    return toy


@pytest.mark.parametrize("name", ["lock", "rwlock.lock"])
def test_a_file_that_the_other_kind_of_lock_left_locks_nothing(hardlinked: Toy, name: str) -> None:
    zc.lockfile.LockFile(str(hardlinked.root / ".dvc/tmp" / name)).close()
    assert hardlinked.states() == {"a": "ran"}
    assert not (hardlinked.root / ".dvc/tmp" / name).exists()


def test_a_lock_of_the_other_kind_that_is_held_is_waited_for(hardlinked: Toy) -> None:
    held = zc.lockfile.LockFile(str(hardlinked.root / dvc_repository.LOCK))
    with begun(hardlinked, "a") as (_, results, thread):
        wait_for(lambda: bool(waits(hardlinked)), 60)
        held.close()
        thread.join()
    assert results[0].state == "ran"


def test_a_hard_link_that_a_kill_may_have_left_ends_the_run_with_a_line(
    hardlinked: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dvc_repository, "GIVE_UP_SECONDS", 0.0)
    left = HardlinkLock(str(hardlinked.root / dvc_repository.LOCK), tmp_dir=str(hardlinked.root / ".dvc/tmp"))
    left.lock()
    result = hardlinked.run()["a"]
    assert result.state == "failed"
    assert result.reason.startswith(".dvc/tmp/lock: another process has held DVC's lock")
    left.unlock()
    assert hardlinked.states() == {"a": "ran"}


def conflicted(text: str) -> str:
    """The text with a conflict in its last lines, as git writes one."""
    *lines, last = text.splitlines(keepends=True)
    return "".join([*lines, "<<<<<<< HEAD\n", last, "=======\n", last.upper(), ">>>>>>> theirs\n"])


def test_git_s_conflict_markers_are_named_with_the_way_out(toy: Toy) -> None:
    toy.stage("a")
    toy.run()
    toy.write("dvc.lock", conflicted(toy.read("dvc.lock")))
    line = toy.read("dvc.lock").splitlines().index("<<<<<<< HEAD") + 1
    with pytest.raises(PlanError, match=f"dvc.lock: git's conflict markers from line {line} .*--ours.*--theirs"):
        toy.plan()


DEEP = "x: " + "[" * 20_000 + "]" * 20_000 + "\n"
MANY = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n" + "".join(
    f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 10)}]\n" for level in range(1, 9)
)


@pytest.mark.parametrize("file", ["dvc.yaml", "dvc.lock"])
@pytest.mark.parametrize(
    ("text", "why"), [(DEEP, "nested deeper"), (MANY, "more than"), ("x: &x [*x]\n", "holds itself")]
)
def test_what_dvc_s_reader_would_crash_over_is_one_line(toy: Toy, file: str, text: str, why: str) -> None:
    toy.stage("a")
    toy.run()
    toy.write(file, text)
    with pytest.raises(PlanError, match=rf"^{file}: .*{why}") as caught:
        toy.plan()
    assert len(str(caught.value).splitlines()) == 1


def test_a_stage_twice_in_dvc_lock_is_one_line(toy: Toy) -> None:
    toy.stage("a")
    toy.stage("b", "a")
    toy.run()
    head, a, b = re.split(r"^(?=  \S)", toy.read("dvc.lock"), flags=re.MULTILINE)
    for text in (head + a + a + b, head + a + b + a):
        toy.write("dvc.lock", text)
        for target in ("a", "b"):
            with pytest.raises(PlanError, match=r"^dvc.lock: .*") as caught:
                toy.plan(target)
            assert len(str(caught.value).splitlines()) == 1

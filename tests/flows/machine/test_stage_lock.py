"""The lock of a stage: one writer at a time, for as long as any process has it open."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flows.machine import stage_lock


class WaitedError(Exception):
    pass


def refuse(line: str) -> None:
    raise WaitedError(line)


def test_one_holder_at_a_time_who_is_named(tmp_path: Path) -> None:
    with stage_lock.hold_stage_lock(tmp_path, "sft", "worker w1 on host, process 7", refuse):
        assert stage_lock.find_stage_lock_holder(tmp_path, "sft") == "worker w1 on host, process 7"
        with (
            pytest.raises(WaitedError, match=r"^waits for an earlier attempt to end \(worker w1 on host, process 7\)$"),
            stage_lock.hold_stage_lock(tmp_path, "sft", "another", refuse),
        ):
            pass
        with stage_lock.hold_stage_lock(tmp_path, "evaluate@dpo", "another", refuse):
            pass
    assert stage_lock.find_stage_lock_holder(tmp_path, "sft") is None
    with stage_lock.hold_stage_lock(tmp_path, "sft", "short", refuse):
        assert stage_lock.find_stage_lock_holder(tmp_path, "sft") == "short"


def test_nobody_holds_what_was_never_locked(tmp_path: Path) -> None:
    assert stage_lock.find_stage_lock_holder(tmp_path, "sft") is None
    assert list(tmp_path.iterdir()) == []


def test_a_child_that_inherits_the_lock_keeps_it_though_stopped_and_its_death_frees_it(tmp_path: Path) -> None:
    with stage_lock.hold_stage_lock(tmp_path, "sft", "the command", refuse) as file:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[file])
    try:
        os.kill(child.pid, signal.SIGSTOP)
        assert stage_lock.find_stage_lock_holder(tmp_path, "sft") == "the command"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert stage_lock.find_stage_lock_holder(tmp_path, "sft") is None
    finally:
        child.kill()
        child.communicate()

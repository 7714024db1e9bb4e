"""Journals of runs: what is read of them while they are written, after a kill, and from files whose names another run
takes.
"""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.coordinator import Coordinator
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.execute import Execution
from flows.engine.journals import journal, journalled_run, replay_process
from flows.engine.journals.journal import Journal, Reading
from flows.engine.journals.journalled_run import (
    JournalledRun,
    decode_code_state,
    decode_stage_result,
    encode_code_state,
    encode_stage_result,
)
from flows.engine.stage_types import StageResult
from tasks.common.source_code import CodeState
from tests.flows.engine import in_order
from tests.flows.engine.toy import Toy

KILLED = """
import os, signal, sys
from pathlib import Path
from flows.engine.journals.journal import Journal
Journal(Path(sys.argv[1]), "begin", run="1").write("start", run="2")
os.kill(os.getpid(), signal.SIGKILL)
"""


def kinds(reading: Reading) -> list[str]:
    return [event["kind"] for event in reading.new()]


def test_events_are_read_as_they_come_and_a_torn_one_is_not(tmp_path: Path) -> None:
    written = Journal(tmp_path, "begin", run="1")
    reading = Reading(written.folder)
    assert kinds(reading) == ["begin"]
    with (written.folder / "events").open("a") as file:
        file.write('{"kind": "st')
        file.flush()
        assert kinds(reading) == []
        file.write('art", "run": "2"}\n')
    assert kinds(reading) == ["start"]
    written.close()
    assert kinds(reading) == ["end"]
    reading.close()


def test_a_journal_is_abandoned_when_its_writer_has_gone_and_its_own_process_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    written = Journal(tmp_path, "begin", run="1")
    reading = Reading(written.folder)
    assert not reading.is_abandoned()
    assert journal.list_ended_journals(tmp_path) == []
    written.close()
    assert reading.is_abandoned()
    reading.close()
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    first, second = journal.list_journals(tmp_path)
    assert journal.list_ended_journals(tmp_path) == [first, second]
    assert journal.collect_journal_run_ids(tmp_path) == {"1", "2"}
    killed = Reading(second)
    assert kinds(killed) == ["begin", "start"]
    killed.close()


def test_a_kept_file_stays_what_it_was(tmp_path: Path) -> None:
    log, kept = tmp_path / "a.log", tmp_path / "kept"
    log.write_text("first")
    journal.link_or_copy_file(log, kept)
    log.unlink()
    log.write_text("second")
    assert kept.read_text() == "first"
    journal.link_or_copy_file(log, kept)
    assert kept.read_text() == "second"
    journal.link_or_copy_file(tmp_path / "none", kept)
    assert not kept.exists()


def test_faults_are_told_once_a_line_for_each_run(tmp_path: Path) -> None:
    (tmp_path / journal.FOLDER).mkdir(parents=True)
    journal.append_recording_faults(tmp_path, {"a": "disk full", "b": "disk full"}, "0123456789")
    journal.append_recording_faults(tmp_path, {"": "no database"}, "9876543210")
    assert replay_process.pop_recording_problems(tmp_path) == [
        "what MLflow has of run 01234567 is incomplete: disk full",
        "what MLflow has of run 98765432 is incomplete: no database",
    ]
    assert replay_process.pop_recording_problems(tmp_path) == []


RESULT = StageResult("a", "ran", "x", 1.5, "1", "2", Path("/a.log"), {"data/a": "3"}, ("data/b",), "no")


@pytest.mark.parametrize("result", [RESULT, StageResult("b", "skipped")])
def test_a_result_comes_back_from_an_event(result: StageResult) -> None:
    assert decode_stage_result(json.loads(json.dumps(encode_stage_result(result)))) == result


@pytest.mark.parametrize(
    "source", [CodeState("none", "unknown"), CodeState("ab", "no", None), CodeState("ab", "a", b"\xff\0")]
)
def test_the_state_of_the_code_comes_back_from_an_event(source: CodeState) -> None:
    assert decode_code_state(json.loads(json.dumps(encode_code_state(source)))) == source


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_an_entry_keeps_its_key_in_the_run_cache(params: dict[str, object]) -> None:
    deps = [{"path": "b", "hash": "md5", "md5": "0" * 32, "size": 1}]
    entry = {"cmd": "a", "deps": deps, "params": {"params.yaml": params}, "outs": [{"path": "c"}]}
    assert compute_run_cache_key(json.loads(json.dumps(entry))) == compute_run_cache_key(entry)


def test_a_full_disk_is_a_fault_of_the_records_alone(make_toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment at which the disk is full: the stage has run, its outs are in dvc.lock, and the line is told."""
    toy: Toy = make_toy("toy")
    toy.stage("a")
    toy.stage("b", "a")
    monkeypatch.setattr(journalled_run, "OURS", "python work.py")  # no command that needs its run in MLflow
    monkeypatch.setattr(replay_process, "start_recorder_unless_running", lambda root: None)
    recorder, follow = JournalledRun(toy.root, "language"), JournalledRun.variables

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def variables(self: JournalledRun, run_id: str, log: Path) -> dict[str, str]:
        found = follow(self, run_id, log)
        monkeypatch.setattr(recorder._journal, "_file", SimpleNamespace(write=full, **raw(recorder._journal._file)))
        return found

    monkeypatch.setattr(JournalledRun, "variables", variables)
    with Coordinator(toy.root, recorder) as coordinator:
        execution = Execution(coordinator, toy.plan("a"), 1, toy.events.append)
        [result] = in_order.run(execution)
        with pytest.raises(PlanError, match=r"^mlruns/journals: No space left on device$"):
            coordinator.close_record([result], complete=True)
    assert (result.state, result.unrecorded) == ("ran", "mlruns/journals: No space left on device")
    assert toy.lock["stages"].keys() == {"a"}


def raw(file: Any) -> dict[str, Any]:
    return {"fileno": file.fileno, "close": file.close, "closed": False}


def test_nobody_waits_for_a_journal_behind_one_that_is_still_written(tmp_path: Path) -> None:
    """Another process would be waited for that waits for this one."""
    live, ended = Journal(tmp_path, "begin", run="1"), Journal(tmp_path, "complete", run="2")
    ended.close()
    assert journal.list_ended_journals(tmp_path) == []
    live.leave()
    assert journal.list_ended_journals(tmp_path) == [live.folder, ended.folder]


def test_what_this_run_has_made_is_found_before_it_is_recorded(make_toy: Any) -> None:
    toy: Toy = make_toy("toy")
    toy.stage("a")
    recorder = JournalledRun(toy.root, "language")
    entry = {"cmd": "x", "deps": [], "outs": [{"path": "data/a", "md5": "0" * 32}]}
    recorder.made("1", "a", entry)
    assert recorder.find("a", entry) == "1"
    recorder.leave()


def test_a_commit_during_the_run_is_told_with_the_stages_after_it(
    make_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy: Toy = make_toy("toy")
    toy.stage("a")
    sources = iter([CodeState("1" * 40, "no"), CodeState("1" * 40, "no"), CodeState("2" * 40, "no")])
    monkeypatch.setattr(journalled_run.source_code, "read_code_state", lambda root: next(sources))
    monkeypatch.setattr(journalled_run, "OURS", "x")
    recorder = JournalledRun(toy.root, "language")
    for _ in range(2):
        recorder.start("a", {"cmd": "x"}, "never run")
    recorder.leave()
    [folder] = journal.list_journals(toy.root)
    reading = Reading(folder)
    begun, first, second = reading.new()
    reading.close()
    assert begun["source"]["commit"] == "1" * 40
    assert first["source"] is None
    assert second["source"]["commit"] == "2" * 40


def test_faults_of_other_runs_stay_to_be_told(tmp_path: Path) -> None:
    (tmp_path / journal.FOLDER).mkdir(parents=True)
    journal.append_recording_faults(tmp_path, {"a": "x"}, "1")
    journal.append_recording_faults(tmp_path, {"b": "y"}, "2")
    assert [fault["text"] for fault in journal.pop_recording_faults(tmp_path, "1")] == ["x"]
    assert replay_process.pop_recording_problems(tmp_path) == ["what MLflow has of run 2 is incomplete: y"]


def test_what_kills_leave_of_journals_is_deleted_when_it_is_old(tmp_path: Path) -> None:
    for name in (".01-1", ".02-1"):
        (tmp_path / journal.FOLDER / name).mkdir(parents=True)
    os.utime(tmp_path / journal.FOLDER / ".01-1", (1, 1))
    journal.delete_leftover_journals(tmp_path)
    assert [folder.name for folder in (tmp_path / journal.FOLDER).iterdir()] == [".02-1"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_person_is_told_for_what_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    written = Journal(tmp_path, "begin", run="1")
    written.close()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(replay_process, "TELL_SECONDS", 0.1)

    def start(root: Path) -> Thread:
        process = Thread(target=lambda: (time.sleep(0.4), journal.delete_journal(written.folder)))
        process.start()
        return process

    monkeypatch.setattr(replay_process, "start_recorder_unless_running", start)
    replay_process.wait_for_recorded_runs(tmp_path)
    assert capsys.readouterr().err == ("waits until the last run is recorded\n" if terminal else "")

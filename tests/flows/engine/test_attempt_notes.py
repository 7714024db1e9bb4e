"""Notes of attempts, and the end of writers that a killed coordinator left."""

import threading
import time
from pathlib import Path

import pytest

from flows.engine import attempt_notes
from flows.engine.attempt_notes import AttemptNote
from flows.engine.dvc_repository import PlanError
from flows.machine import stage_lock


def note(stage: str = "sft", shared: bool = True) -> AttemptNote:
    return AttemptNote(stage, "a1", shared, "key", "http://server/api", "run-1")


def test_a_note_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert attempt_notes.read_attempt_note(tmp_path, "sft") is None
    attempt_notes.write_attempt_note(tmp_path, note())
    attempt_notes.write_attempt_note(tmp_path, note("evaluate@dpo"))
    assert attempt_notes.read_attempt_note(tmp_path, "sft") == note()
    assert {found.stage for found in attempt_notes.list_attempt_notes(tmp_path)} == {"sft", "evaluate@dpo"}
    attempt_notes.delete_attempt_note(tmp_path, "sft")
    assert attempt_notes.list_attempt_notes(tmp_path) == [note("evaluate@dpo")]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stage": "sft"}', '{"stage": "sft", "colour": 1}'])
def test_a_torn_note_is_none(tmp_path: Path, content: str) -> None:
    attempt_notes.write_attempt_note(tmp_path, note())
    (tmp_path / attempt_notes.FOLDER / "sft.json").write_text(content)
    assert attempt_notes.read_attempt_note(tmp_path, "sft") is None
    assert attempt_notes.list_attempt_notes(tmp_path) == []


def test_a_writer_in_the_checkout_ends_when_its_note_goes(tmp_path: Path) -> None:
    attempt_notes.write_attempt_note(tmp_path, note())
    attempt_notes.write_attempt_note(tmp_path, note("dpo", shared=False))
    began, seen = threading.Event(), []

    def work() -> None:
        with stage_lock.hold_stage_lock(tmp_path, "sft", "worker", seen.append):
            began.set()
            while attempt_notes.read_attempt_note(tmp_path, "sft") is not None:
                time.sleep(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    attempt_notes.stop_leftover_writers(tmp_path)
    assert stage_lock.find_stage_lock_holder(tmp_path, "sft") is None
    assert attempt_notes.list_attempt_notes(tmp_path) == [note("dpo", shared=False)], "an attempt in a clone goes on"
    thread.join()


def test_a_writer_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_notes, "END_SECONDS", 0.1)
    with (
        stage_lock.hold_stage_lock(tmp_path, "sft", "worker w1 on host, process 7", print),
        pytest.raises(
            PlanError, match=r"^sft: still being written by worker w1 on host, process 7; wait until it ends"
        ),
    ):
        attempt_notes.stop_leftover_writers(tmp_path)

"""The process that writes the journals of runs to MLflow, one after the other: `python -m flows.journal_replayer ROOT`.

It follows the journal of a run that still goes on, and ends when there is no journal left. What cannot be recorded is
noted as a fault, which the next command tells. While the database cannot be used the journals stay; one that cannot be
read is put aside, and every command says so.
"""

import os
import sys
import time
import traceback
from pathlib import Path
from threading import Thread

from flows.engine.dvc_repository import PlanError
from flows.engine.journals import journal, replay_process
from flows.engine.journals.journal import ENDS, FAILED, Event, Reading
from tasks.common import mlflow_address

LOOK_SECONDS = 0.05  # between two looks for new events
NICE = 5  # the stages have the machine first


def main() -> None:
    """Record all journals of the repository at ROOT."""
    root = Path(sys.argv[1])
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # A journal is of the repository's own records, whatever is set by now.
    os.environ.pop(mlflow_address.VARIABLE, None)
    Thread(target=_exit_when_repository_gone, args=(root,), name="repository", daemon=True).start()
    with replay_process.hold_recorder_lock(root) as journals:
        os.nice(NICE)
        journal.delete_leftover_journals(root)
        for folder in journals:
            if why := replay_process.find_database_fault(root):  # the journals stay until the database can be used
                print(why, file=sys.stderr)
                return
            reading = Reading(folder)
            try:
                record_journal(root, reading)
                journal.delete_journal(folder)
            except OSError:  # the disk is full or read-only: the journal stays for the next time
                traceback.print_exc()
                return
            except Exception as error:
                traceback.print_exc()
                move_failed_journal_aside(
                    reading, str(error) if isinstance(error, PlanError) else f"see {replay_process.LOG}"
                )
            reading.close()


def _exit_when_repository_gone(root: Path) -> None:
    """End when the repository is no longer there. The journals have gone with it."""
    while root.exists():
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def move_failed_journal_aside(reading: Reading, why: str) -> None:
    """Keep a journal that cannot be recorded out of the way, once nobody writes it any more; every command says so
    until it is gone.
    """
    (reading.folder / FAILED).write_text(why)
    while not reading.is_abandoned():
        time.sleep(LOOK_SECONDS)
    reading.folder.rename(reading.folder.with_name(journal.ASIDE + reading.folder.name))


def record_journal(root: Path, reading: Reading) -> None:
    """Write all of a journal, which may still be written to; PlanError where nothing of it can be."""
    first = next(reading.new())
    if first["kind"] == "begin":
        _replay_flow_run(root, reading, first)
    elif first["kind"] == "complete" and _wait_for_complete_journal(reading):
        from flows.lineage import pipeline_summary

        pipeline_summary.record_summary_from_journal(root, reading.folder, first)


def _wait_for_complete_journal(reading: Reading) -> bool:
    """Wait until the writer has ended; whether it came to its end."""
    while not reading.is_abandoned():
        time.sleep(LOOK_SECONDS)
    return any(event["kind"] == "end" for event in reading.new())


def _replay_flow_run(root: Path, reading: Reading, first: Event) -> None:
    """Write the run of a flow to MLflow as it goes on, to the end of its journal."""
    from flows.engine.journals.mlflow_replay import JournalReplay

    to_mlflow = JournalReplay(root, reading.folder, first)
    last = first
    went_on = not reading.is_abandoned()
    try:
        while True:
            abandoned = reading.is_abandoned()  # asked first: nothing comes after that
            for last in reading.new():
                to_mlflow.write(last)
            if abandoned:
                break
            time.sleep(LOOK_SECONDS)
        if last["kind"] not in ENDS:
            to_mlflow.end_unfinished_runs(time.time_ns() // 1_000_000 if went_on else last["time"])
    finally:
        journal.append_recording_faults(root, to_mlflow.faults, first["run"])


if __name__ == "__main__":
    main()

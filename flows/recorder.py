"""The process that writes the journals of runs to MLflow and Prefect, one after the other: `python -m flows.recorder ROOT`.

It follows the journal of a run that still goes on, and ends when there is no journal left. What cannot be recorded is noted as a
fault, which the next command tells. While the database cannot be used the journals stay; one that cannot be read is put aside, and every
command says so.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from flows.engine.dvc_repository import PlanError
from flows.engine.prefect_server import be_quiet, store
from flows.engine.recording import journal, settling
from flows.engine.recording.journal import ENDS, FAILED, RECORDED, Event, Reading
from tasks.common import mlflow_address

LOOK_SECONDS = 0.05  # between two looks for new events
FOLLOW_SECONDS = 0.5  # between two looks at the logs of running stages
NICE = 5  # the stages have the machine first


def main() -> None:
    """Record all journals of the repository at ROOT."""
    root = Path(sys.argv[1])
    be_quiet()
    os.environ.pop(
        mlflow_address.VARIABLE, None
    )  # a journal is of the repository's own records, whatever is set by now
    os.environ.update(store(root))
    Thread(target=_end_without, args=(root,), name="repository", daemon=True).start()
    with settling.recording(root) as journals:
        os.nice(NICE)
        journal.remove_left(root)
        for folder in journals:
            if why := settling.unusable(root):  # the journals stay until the database can be used
                print(why, file=sys.stderr)
                return
            reading = Reading(folder)
            try:
                record(root, reading)
                journal.remove(folder)
            except OSError:  # the disk is full or read-only: the journal stays for the next time
                traceback.print_exc()
                return
            except Exception as error:
                traceback.print_exc()
                put_aside(reading, str(error) if isinstance(error, PlanError) else f"see {settling.LOG}")
            reading.close()


def _end_without(root: Path) -> None:
    """End when the repository is no longer there: Prefect would make its folders anew. The journals have gone with it."""
    while root.exists():
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def put_aside(reading: Reading, why: str) -> None:
    """Keep a journal that cannot be recorded out of the way, once nobody writes it any more; every command says so until it is gone."""
    (reading.folder / FAILED).write_text(why)
    while not reading.abandoned():
        time.sleep(LOOK_SECONDS)
    reading.folder.rename(reading.folder.with_name(journal.ASIDE + reading.folder.name))


def record(root: Path, reading: Reading) -> None:
    """Write all of a journal, which may still be written to; PlanError where nothing of it can be."""
    first = next(reading.new())
    if first["kind"] == "begin":
        _Flow(root, reading, first).record()
    elif first["kind"] == "complete" and _whole(reading):
        from flows.lineage import pipeline_record

        pipeline_record.complete_from(root, reading.folder, first)


def _whole(reading: Reading) -> bool:
    """Wait until the writer has ended; whether it came to its end."""
    while not reading.abandoned():
        time.sleep(LOOK_SECONDS)
    return any(event["kind"] == "end" for event in reading.new())


class _Flow:
    """Records the run of a flow: in MLflow as it goes on, and in Prefect, by a thread of its own, once that is imported."""

    def __init__(self, root: Path, reading: Reading, first: Event) -> None:
        self.root, self.reading, self.first = root, reading, first
        self.faults: dict[str, str] = {}  # by stage
        self._to_prefect: SimpleQueue[Event | None] = SimpleQueue()
        self._goes_on = False  # as far as is known
        self._killed = 0  # when it was, in milliseconds

    def record(self) -> None:
        """Follow the journal to its end."""
        from flows.engine.recording.mlflow_replay import Replay

        to_mlflow = Replay(self.root, self.reading.folder, self.first)
        prefect = Thread(target=self._record_in_prefect, name="prefect", daemon=True)
        prefect.start()  # only now: both may make their tables by Alembic, which cannot do that in two threads
        try:
            self._pass_on(to_mlflow.write)
            if self._killed:
                to_mlflow.abandon(self._killed)
            (self.reading.folder / RECORDED).touch()
        finally:
            self._to_prefect.put(None)
            prefect.join()
            journal.add_faults(self.root, {**self.faults, **to_mlflow.faults}, self.first["run"])

    def _pass_on(self, to_mlflow: Callable[[Event], None]) -> None:
        """Write all events to MLflow as they come, and leave them to Prefect's thread."""
        last, went_on = self.first, not self.reading.abandoned()
        self._goes_on = went_on
        while True:
            abandoned = self.reading.abandoned()  # asked first: nothing comes after that
            for last in self.reading.new():
                self._to_prefect.put(last)
                to_mlflow(last)
            self._goes_on = not abandoned and last["kind"] not in ENDS
            if abandoned:
                break
            time.sleep(LOOK_SECONDS)
        if last["kind"] not in ENDS:
            self._killed = time.time_ns() // 1_000_000 if went_on else last["time"]

    def _record_in_prefect(self) -> None:
        from flows.engine.recording import prefect_replay

        try:
            with prefect_replay.replay(self.first) as replay:
                event: Event | None = self.first
                while event is not None:
                    with suppress(Empty):
                        event = self._to_prefect.get(timeout=FOLLOW_SECONDS)
                        if event is not None:
                            replay.write(event, self.reading.folder)
                    if self._goes_on and self._to_prefect.empty():  # else the logs may be those of another run
                        replay.follow()
                if self._killed:
                    replay.abandon(self._killed)
        except Exception as error:  # Prefect's own, or its database's
            traceback.print_exc()
            said = " ".join(str(error).split())[:200]
            self.faults.setdefault("", f"Prefect has not all of it: {said or type(error).__name__}")


if __name__ == "__main__":
    main()

"""The runs in MLflow's records; those of the repository's own database are read without importing MLflow, which takes
seconds.

Only runs that have finished and were not deleted count. Without a database there are no runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.engine.journals import replay_process
from flows.engine.records import provenance, reader
from flows.engine.records.mlflow_remote_reader import SharedReader
from flows.engine.records.provenance import Provenance
from flows.engine.records.reader import RecordsReader
from flows.engine.records.sqlite_reader import LocalReader
from tasks.common import mlflow_address, mlflow_database
from tasks.common.mlflow_database import DATABASE, DatabaseError

PREFIX = reader.PREFIX
# Tags of a run that records no execution, but that a stage stays as it is after an edit.
ACCEPTED = PREFIX + "accepted."
TRIED = 20  # acceptances of one entry that are looked at
PEAK_MEMORY = "system/peak_memory_megabytes"  # metric: the most resident memory that a stage's processes had together
MADE = "SELECT 1 FROM sqlite_master WHERE name = 'tags'"


@dataclass(frozen=True)
class Run:
    """One finished run of a stage or flow."""

    id: str
    started: datetime
    tags: Mapping[str, str]
    params: Mapping[str, str]


def list_finished_runs(root: Path, tags: Mapping[str, str]) -> list[Run]:
    """The newest runs, latest first, that have these tags (named without the prefix)."""
    with open_records_reader(root) as records:
        runs = records.finished({PREFIX + name: value for name, value in tags.items()}) if records else []
        return [_load_run(records, run_id, started) for run_id, started in runs if records]


def get_finished_run(root: Path, run_id: str) -> Run:
    """The finished run with this id, from MLflow or from the record that came with a result; PlanError if there is
    none.
    """
    with open_records_reader(root) as records:
        head = records.head(run_id) if records else None
        if records and head and head.finished:
            return _load_run(records, run_id, head.started)
    if head is None and (record := provenance.find_run_provenance(root, run_id)) is not None:
        return Run(run_id, datetime.fromtimestamp(record.started / 1000), record.tags, record.params)
    raise PlanError(
        f"{mlflow_address.describe_records_address()}: no finished run {run_id}; it was deleted, or has not ended"
    )


def _load_run(records: RecordsReader, run_id: str, started: int) -> Run:
    return Run(run_id, datetime.fromtimestamp(started / 1000), records.tags(run_id), records.params(run_id))


class Index:
    """Which finished run made what, read once: for one question a run, a database of thousands would be searched again
    and again.

    A shared MLflow is asked one by one: it has indices of its own, and may hold the runs of many.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shared = mlflow_address.find_shared_address(root) is not None
        self._by_key: dict[tuple[str, str], str] = {}
        self._by_out: dict[str, list[str]] = {}
        with open_records_reader(root) as records:
            if isinstance(records, LocalReader):
                for run_id, key, outs in records.made():  # the newest first
                    self._by_key.setdefault((key, outs), run_id)
                    for md5 in set(outs.split()):
                        self._by_out.setdefault(md5, []).append(run_id)

    def find(self, key: str, outs: str) -> str | None:
        """The newest run with this run-cache key and these hashes of its outs."""
        if (
            self._shared
            and (key, outs) not in self._by_key
            and (run_id := find_maker_run(self._root, key, outs)) is not None
        ):
            self._by_key[key, outs] = run_id
        return self._by_key.get((key, outs))

    def has(self, run_id: str) -> bool:
        """Whether the run was finished when the index was read."""
        return self._shared or run_id in self._by_key.values()

    def makers(self, md5: str) -> list[str]:
        """The runs that made an out with this hash, the newest first; those that only came with results come last."""
        if self._shared and md5 not in self._by_out:
            with open_records_reader(self._root) as records:
                self._by_out[md5] = records.makers(md5) if isinstance(records, SharedReader) else []
        return [*self._by_out.get(md5, []), *self._carried.get(md5, [])]

    @cached_property
    def _carried(self) -> Mapping[str, list[str]]:
        """Hash of an out -> the runs that made it and that only the records beside the run cache tell of."""
        runs: dict[str, list[str]] = {}
        for record in filter_records_not_in_mlflow(self._root, provenance.list_execution_provenance(self._root)):
            for md5 in set(record.tags.get(PREFIX + "outs", "").split()):
                runs.setdefault(md5, []).append(record.run_id)
        return runs


def filter_records_not_in_mlflow(root: Path, records: Iterable[Provenance]) -> list[Provenance]:
    """Those of the records whose runs MLflow does not have; a run that was deleted there, or has not ended, is as
    MLflow has it.
    """
    listed = list(records)
    if not listed:
        return []
    with open_records_reader(root) as mlflow:
        return [record for record in listed if mlflow is None or mlflow.head(record.run_id) is None]


def find_maker_run(root: Path, key: str, outs: str) -> str | None:
    """The newest finished run with this run-cache key and these hashes of its outs."""
    with open_records_reader(root) as records:
        return records.maker(key, outs) if records else None


def list_acceptances(root: Path, key: str) -> list[tuple[str, str]]:
    """The runs that record the acceptance of an entry with this run-cache key, the newest first, each with the run that
    made its outs.
    """
    with open_records_reader(root) as records:
        accepted = records.versions(f"{ACCEPTED}key.{key}", TRIED) if records else []
        heads = ((run_id, made, records.head(run_id)) for run_id, made in accepted if records)
        return [(run_id, made) for run_id, made, head in heads if head and not head.deleted]


def find_accepted_maker_run(root: Path, key: str, outs: str) -> str | None:
    """The finished run that made these outs, from which an entry with this run-cache key was accepted to differ in
    nothing that counts.
    """
    for _, made in list_acceptances(root, key):
        with open_records_reader(root) as records:
            head = records.head(made) if records else None
            is_finished = head is not None and head.finished
            if records and is_finished and records.tags(made).get(PREFIX + "outs") == outs:
                return made
    return None


def has_unfinished_run(root: Path) -> bool:
    """Whether a run of the engine, of this clone, has not ended: it is at work, or was killed."""
    with open_records_reader(root, settled=False) as records:
        return bool(records and records.has_running_run())


@contextmanager
def open_records_reader(root: Path, local: bool = False, settled: bool = True) -> Iterator[RecordsReader | None]:
    """The records to read from, None if there are none; faults are a PlanError of one line.

    With `local` the repository's own database, wherever MLFLOW_TRACKING_URI points. What has run is recorded to its end
    first, unless `settled` is False.
    """
    with convert_mlflow_errors_to_plan_error():
        elsewhere = not local and mlflow_address.find_shared_address(root) is not None
        if elsewhere:
            client = mlflow_database.find_shared_client(root)
            yield None if client is None else SharedReader(client, mlflow_database.make_clone_tags(root))
            return
    if settled:
        replay_process.wait_for_recorded_runs(root)
    if not (root / DATABASE).exists():
        yield None
        return
    with convert_mlflow_errors_to_plan_error(), closing(mlflow_database.connect_database(root)) as records:
        made = records.execute(MADE).fetchone()  # no tables: the process that made the database was killed before
        yield LocalReader(records) if made else None


@contextmanager
def convert_mlflow_errors_to_plan_error() -> Iterator[None]:
    """Turn every fault of the database into a PlanError of one line; a PlanError stays as it is."""
    plan_error: PlanError | None = None
    try:
        with mlflow_database.raise_as_database_error():
            try:
                yield
            except PlanError as error:
                plan_error = error
    except DatabaseError as error:
        raise PlanError(str(error)) from error.__cause__
    if plan_error is not None:
        raise plan_error


def load_run_metrics(root: Path, run_ids: Iterable[str]) -> dict[str, dict[str, float]]:
    """The last value of each metric of these runs."""
    with open_records_reader(root) as records:
        return {run_id: load_non_nan_metrics(records, run_id) for run_id in run_ids} if records else {}


def load_non_nan_metrics(records: RecordsReader, run_id: str) -> dict[str, float]:
    """The last value of each metric of a run, without those that are no numbers."""
    return {key: value for key, value in records.latest(run_id).items() if value == value}

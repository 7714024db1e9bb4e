"""The MLflow runs of another clone, taken into this repository's database, so that results from there have their lineage here.

Nothing twice and nothing overwritten: a run is known by its id, and what is here stays as it is. All of it is one transaction: a kill
leaves the database as it was, and files without a run, which the next time adds to. Whatever the other database holds is checked, value
by value (`other_database`); a run with a value that MLflow would not have written is refused, and the others are taken.
"""

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

from flows.engine import mlflow_runs, mlflow_seal
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_lock import joined
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import keep_confirmed, run_cache_key
from flows.engine.mlflow_runs import PREFIX
from flows.engine.recording import settling
from flows.lineage.merging import other_database
from flows.lineage.merging.files import Copies
from flows.lineage.merging.models import Models
from flows.lineage.merging.other_database import OtherDatabase, RefusedError, Row, Values, insert, select, shown, write
from tasks.common import mlflow_address, mlflow_database
from tasks.common.mlflow_database import ARTIFACTS, DATABASE

MERGED = PREFIX + "merged_from"  # the repository that a run came from, and when; outside of the run's seal
RUN_ID = re.compile(r"[0-9a-f]{32}")
PARTS = {"tags": "tag", "params": "parameter", "metrics": "metric", "latest_metrics": "latest value of metric"}
MOVES = ("experiment_id", "artifact_uri")  # what of a run differs between two databases
NOTE, LINK = "mlflow.note.content", re.compile(r"(?<=#/experiments/)\d+(?=/runs/)")  # a description, its links to runs
LATEST = 2**43  # milliseconds: no run has begun after the year 2248
LONGEST = 8000  # letters of a tag
CACHE = 500_000  # KB at most of SQLite's memory for the pages that it changes: with the usual 2 MB it writes most of them many times


@dataclass
class Merged:
    """What was taken, and what was not. Runs are named by their ids."""

    origin: str
    taken: dict[str, str] = field(default_factory=dict)  # id -> name
    pipelines: int = 0  # those of `taken` that are runs of a whole pipeline
    same: int = 0  # here already
    running: list[str] = field(default_factory=list)  # not ended there: not taken
    differing: dict[str, list[str]] = field(default_factory=dict)  # id -> what is not as it is here: left as it is here
    refused: dict[str, str] = field(default_factory=dict)  # id, or a model's version -> why it cannot be taken
    experiments: list[str] = field(default_factory=list)  # made here
    versions: list[tuple[str, int, int]] = field(default_factory=list)  # of models: name, number there, number here
    files: int = 0
    size: int = 0  # bytes of the files
    left_out: dict[str, str] = field(default_factory=dict)  # files there that were not copied -> why
    unknown: int = 0  # MLflow's logged models, which are not taken

    @property
    def whole(self) -> bool:
        """Whether everything that has ended there is here now, as it is there."""
        return not (self.differing or self.refused or self.left_out)

    def facts(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {**asdict(self), "whole": self.whole}


def merge(root: Path, path: Path, dry_run: bool = False) -> Merged:
    """Take the runs of the repository, mlruns folder or mlflow.db at `path`; with `dry_run` only tell what would be taken.

    PlanError where there is no such database, it cannot be read, or a run is at work here.
    """
    root = root.absolute()
    with mlflow_runs.one_line():
        elsewhere = mlflow_address.shared(root)
    if elsewhere is not None:
        raise PlanError(
            f"MLflow's records are in {mlflow_address.public(elsewhere)}, which gives each run an id of its own; runs are taken "
            f"with their ids into a repository's own database alone: unset {mlflow_address.VARIABLE}"
        )
    file = other_database.find(path.resolve())
    if (root / DATABASE).exists() and file.samefile(root / DATABASE):
        raise PlanError(f"{shown(path)}: this is the database of this repository; expected another clone's")
    with ExitStack() as stack, _one_line():
        if not dry_run:
            stack.enter_context(Coordinator(root))  # no run is at work here
            settling.settle(root)
        database = root
        if dry_run and not (root / DATABASE).is_file():
            database = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with mlflow_runs.one_line():
            mlflow_database.prepare(database)
        ours = stack.enter_context(closing(mlflow_database.connect(database)))
        ours.isolation_level = None
        ours.execute(f"PRAGMA cache_size = -{CACHE}")
        other = stack.enter_context(closing(OtherDatabase(file, ours)))
        ours.execute("BEGIN IMMEDIATE")
        merging = _Merging(root, ours, other, dry_run)
        merging.take()
        ours.execute("ROLLBACK" if dry_run else "COMMIT")
        if not dry_run:  # else what they made would run again where the run cache here knows other makers of equal outs
            keep_confirmed(root, lambda entry: bool(mlflow_runs.maker(root, run_cache_key(entry), joined(entry))))
    return merging.merged


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn a fault of the database here into a PlanError; those of the other one are PlanErrors already."""
    try:
        yield
    except sqlite3.Error as error:
        raise PlanError(f"{DATABASE}: {error}; nothing was taken") from error


class _Merging:
    """One merge, within a transaction of the database here."""

    def __init__(self, root: Path, ours: sqlite3.Connection, other: OtherDatabase, dry_run: bool) -> None:
        self.root, self.ours, self.other = root, ours, other
        folder = other.file.absolute().parent
        name = folder.parent.name if folder.name == DATABASE.parent.name else folder.name
        self.merged = Merged(shown(name))
        self._copies = Copies(folder / ARTIFACTS.name, root, dry_run)
        self._origin = f"{shown(name)} {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._experiments: dict[object, int] = {}  # id there -> id here
        self._datasets: dict[object, object] = {}  # experiment here and id there -> id here

    def take(self) -> None:
        """Take every run, then the models that these runs made."""
        before = self._names()
        known: set[object] = set()  # what is here now as it is there
        for run_id in self.other.run_ids():
            if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
                self.merged.refused[shown(run_id)] = "a run's id has 32 hexadecimal digits"
                continue
            self.ours.execute("SAVEPOINT run")
            try:
                if self._run(run_id):
                    known.add(run_id)
            except (RefusedError, sqlite3.IntegrityError) as error:
                self.ours.execute("ROLLBACK TO run")
                self._experiments.clear()  # those that were made for this run are gone again
                self._datasets.clear()
                self.merged.refused[run_id] = shown(error)
            self.ours.execute("RELEASE run")
        models = Models(self.other, self.ours, self.root)
        models.take(known)
        merged, copies = self.merged, self._copies
        merged.experiments = sorted(self._names() - before)
        merged.versions, merged.refused = models.taken, merged.refused | models.refused
        merged.files, merged.size, merged.left_out = copies.files, copies.size, copies.left_out
        merged.unknown = self.other.count("logged_models")

    def _names(self) -> set[str]:
        return {str(row["name"]) for row in self._here("experiments", {})}

    def _here(self, table: str, matching: Row) -> list[Row]:
        return self.other.named(table, self._tuples(table, matching))

    def _tuples(self, table: str, matching: Row) -> list[Values]:
        return select(self.ours, self.other.columns[table], table, matching)

    def _run(self, run_id: str) -> bool:
        """Take a run if it is not here; whether it is here then as it is there."""
        of_it: Row = {"run_uuid": run_id}
        run, *more = self.other.rows("runs", of_it)
        if more:
            raise RefusedError("two runs have this id")
        parts = {part: self.other.tuples(part, of_it) for part in PARTS}
        if here := self._here("runs", of_it):
            if differing := self._differences(run, here[0], parts):
                self.merged.differing[run_id] = differing
                return False
            self.merged.same += 1
            if self._here("tags", of_it | {"key": MERGED}):
                self._copies.complete(run_id)  # the files may have come later than the database
        elif run["status"] in ("RUNNING", "SCHEDULED"):
            self.merged.running.append(run_id)
            return False
        else:
            self._insert(run_id, run, parts)
        return True

    def _differences(self, run: Row, here: Row, parts: dict[str, list[Values]]) -> list[str]:
        """What of a run is not as it is here, by name; what says where it came from does not count."""
        found = [key for key, value in run.items() if key not in MOVES and value != here[key]]
        there, ours = run["experiment_id"], here["experiment_id"]
        names = [
            row["name"]
            for row in (
                *self.other.rows("experiments", {"experiment_id": there}),
                *self._here("experiments", {"experiment_id": ours}),
            )
        ]
        if len(set(names)) > 1:
            found.append("experiment")
        for part, word in PARTS.items():
            theirs, known = {*parts[part]}, {*self._tuples(part, {"run_uuid": run["run_uuid"]})}
            if theirs != known:
                differing = {_linked(row, 0) for row in theirs} ^ {_linked(row, 0) for row in known}
                keys = {shown(key) for key, *_ in differing if not str(key).startswith(mlflow_seal.OUTSIDE[1:])}
                found += [f"{word} {key}" for key in sorted(keys)]
        return found

    def _insert(self, run_id: str, run: Row, parts: dict[str, list[Values]]) -> None:
        for part, found in parts.items():
            self.other.check(part, found)
        self.other.checked("runs", [run | {"artifact_uri": ""}])
        times = [run["start_time"], run["end_time"] or 0]
        if not all(isinstance(time, int) and 0 <= time < LATEST for time in times):
            raise RefusedError("its times are none")
        if run["lifecycle_stage"] not in ("active", "deleted") or run["status"] is None:
            raise RefusedError("its status or lifecycle_stage is none of MLflow's")
        if strange := self._metrics("latest_metrics", parts) - self._metrics("metrics", parts):
            raise RefusedError(
                f"the latest value of metric {min(str(key) for key, *_ in strange)} is none of its values"
            )
        experiment = self._experiment(run["experiment_id"])
        uri = str(mlflow_seal.artifacts(self.root, run_id))
        insert(self.ours, "runs", [run | {"experiment_id": experiment, "artifact_uri": uri}])
        before = [str(value) for key, value, *_ in parts["tags"] if key == MERGED]
        parts["tags"] = [_linked(tag, experiment) for tag in parts["tags"] if tag[0] != MERGED]
        for part, found in parts.items():
            write(self.ours, part, [column.name for column in self.other.columns[part]], found)
        origin = "; ".join([*before, self._origin])  # it may have come there from yet another one
        value = origin if len(origin) <= LONGEST else self._origin
        insert(self.ours, "tags", [{"key": MERGED, "value": value, "run_uuid": run_id}])
        self._inputs(run_id, experiment)
        self._copies.take(run_id)
        self.merged.taken[run_id] = shown(run["name"])
        self.merged.pipelines += any(key == PREFIX + "flow" for key, *_ in parts["tags"])

    def _metrics(self, table: str, parts: dict[str, list[Values]]) -> set[Values]:
        """The values of metrics, in one order of the columns for both tables."""
        names = [column.name for column in self.other.columns[table]]
        places = itemgetter(*(names.index(name) for name in ("key", "value", "timestamp", "step", "is_nan")))
        return {*map(places, parts[table])}

    def _experiment(self, there: object) -> int:
        """The experiment here with the same name; it is made if there is none."""
        if there not in self._experiments:
            found = self.other.rows("experiments", {"experiment_id": there})
            if len(found) != 1:
                raise RefusedError("its experiment is not there")
            [theirs] = self.other.checked("experiments", [found[0] | {"artifact_location": ""}])
            of_name: Row = {"workspace": "default", "name": theirs["name"]}
            if not self._here("experiments", of_name):
                place = {"workspace": "default", "artifact_location": str(self.root / ARTIFACTS), "experiment_id": None}
                insert(self.ours, "experiments", [theirs | place])
                [made] = self._here("experiments", of_name)
                tags = self.other.checked(
                    "experiment_tags", self.other.rows("experiment_tags", {"experiment_id": there})
                )
                insert(self.ours, "experiment_tags", [tag | {"experiment_id": made["experiment_id"]} for tag in tags])
            [here] = self._here("experiments", of_name)
            self._experiments[there] = int(str(here["experiment_id"]))
        return self._experiments[there]

    def _inputs(self, run_id: str, experiment: int) -> None:
        """The data sets that a run read."""
        of_it: Row = {"destination_type": "RUN", "destination_id": run_id, "source_type": "DATASET"}
        for row in self.other.checked("inputs", self.other.rows("inputs", of_it)):
            tags = self.other.checked("input_tags", self.other.rows("input_tags", {"input_uuid": row["input_uuid"]}))
            free = not self._here("inputs", {"input_uuid": row["input_uuid"]})
            known = {"input_uuid": row["input_uuid"] if free else uuid4().hex}
            insert(self.ours, "inputs", [row | known | {"source_id": self._dataset(row["source_id"], experiment)}])
            insert(self.ours, "input_tags", [tag | known for tag in tags])

    def _dataset(self, there: object, experiment: int) -> object:
        """The data set here with the same name and digest; it is made if there is none."""
        if (experiment, there) not in self._datasets:
            found = self.other.rows("datasets", {"dataset_uuid": there})
            if len(found) != 1:
                raise RefusedError("a data set that it read is not there")
            [theirs] = self.other.checked("datasets", found)
            same: Row = {"experiment_id": experiment, "name": theirs["name"], "digest": theirs["digest"]}
            if not self._here("datasets", same):
                free = not self._here("datasets", {"dataset_uuid": there})
                insert(self.ours, "datasets", [theirs | same | {"dataset_uuid": there if free else uuid4().hex}])
            [here] = self._here("datasets", same)
            self._datasets[experiment, there] = here["dataset_uuid"]
        return self._datasets[experiment, there]


def _linked(row: Values, experiment: int) -> Values:
    """A run's tag, parameter or metric; the links of its description name the experiment by its number here."""
    key, value, *rest = row
    return (key, LINK.sub(str(experiment), str(value)), *rest) if key == NOTE else row

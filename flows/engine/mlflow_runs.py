"""The runs in MLflow's database, read without importing MLflow, which takes seconds.

Only runs that have finished and were not deleted count. Without a database there are no runs.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from tasks.common import mlflow_database
from tasks.common.mlflow_database import DATABASE, DatabaseError

PREFIX = "posttrain."  # every tag that the engine writes begins with it
KINDS = ("tags", "params")
FINISHED = """
    SELECT runs.run_uuid, runs.start_time FROM runs JOIN experiments USING (experiment_id)
    WHERE runs.status = 'FINISHED' AND runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
"""
MADE = "SELECT 1 FROM sqlite_master WHERE name = 'tags'"
RUNNING = "SELECT 1 FROM runs JOIN tags USING (run_uuid) WHERE runs.status = 'RUNNING' AND tags.key = ? LIMIT 1"
TAGGED = " AND EXISTS (SELECT 1 FROM tags WHERE tags.run_uuid = runs.run_uuid AND tags.key = ? AND tags.value LIKE ?)"
NEWEST = " ORDER BY runs.start_time DESC LIMIT 50"


@dataclass(frozen=True)
class Run:
    """One finished run of a stage or flow."""

    id: str
    started: datetime
    tags: Mapping[str, str]
    params: Mapping[str, str]


def finished(root: Path, tags: Mapping[str, str]) -> list[Run]:
    """The newest runs, latest first, whose tags (named without the prefix) match the patterns of SQL's LIKE."""
    return _select(root, TAGGED * len(tags), [text for name, like in tags.items() for text in (PREFIX + name, like)])


def get(root: Path, run_id: str) -> Run:
    """The finished run with this id."""
    return _select(root, " AND runs.run_uuid = ?", [run_id])[0]


def left_running(root: Path) -> bool:
    """Whether a run of the engine has not ended: it is at work, or was killed."""
    if not (root / DATABASE).exists():
        return False
    with one_line(), closing(mlflow_database.connect(root)) as records:
        return bool(records.execute(MADE).fetchone() and records.execute(RUNNING, [PREFIX + "engine"]).fetchone())


@contextmanager
def one_line() -> Iterator[None]:
    """Turn every fault of the database into a PlanError of one line."""
    try:
        with mlflow_database.one_line():
            yield
    except DatabaseError as error:
        raise PlanError(str(error)) from error


def _select(root: Path, conditions: str, values: Sequence[str]) -> list[Run]:
    if not (root / DATABASE).exists():
        return []
    with one_line(), closing(mlflow_database.connect(root)) as records:
        if not records.execute(MADE).fetchone():
            return []  # the process that made the database was killed before it made tables
        return [
            Run(run_id, datetime.fromtimestamp(started / 1000), *(_facts(records, kind, run_id) for kind in KINDS))
            for run_id, started in records.execute(FINISHED + conditions + NEWEST, values)
        ]


def _facts(records: sqlite3.Connection, kind: str, run_id: str) -> dict[str, str]:
    return dict(records.execute(f"SELECT key, value FROM {kind} WHERE run_uuid = ?", [run_id]))

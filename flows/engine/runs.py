"""The runs in MLflow's database, read without MLflow: importing it takes seconds, and a question should not.

Only what has finished and was not deleted counts. Where there is no database, there are no runs.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flows.engine.pipeline import PlanError

DATABASE = Path("mlruns/mlflow.db")
PREFIX = "posttrain."  # of every tag that the engine writes
WAIT_SECONDS = 30.0  # for a stage that is writing
KINDS = ("tags", "params")
FINISHED = """
    SELECT runs.run_uuid, runs.start_time FROM runs JOIN experiments USING (experiment_id)
    WHERE runs.status = 'FINISHED' AND runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
"""
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
    """The newest runs, the last one first, whose tags (named without the prefix) match the patterns of SQL's LIKE."""
    return _select(root, TAGGED * len(tags), [text for name, like in tags.items() for text in (PREFIX + name, like)])


def get(root: Path, run_id: str) -> Run:
    """The finished run with this id."""
    return _select(root, " AND runs.run_uuid = ?", [run_id])[0]


def _select(root: Path, conditions: str, values: Sequence[str]) -> list[Run]:
    path = root.absolute() / DATABASE
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=WAIT_SECONDS)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'tags'").fetchone():
                return []  # whoever made the database was killed before it had tables
            return [
                Run(run_id, datetime.fromtimestamp(started / 1000), *(_facts(database, kind, run_id) for kind in KINDS))
                for run_id, started in database.execute(FINISHED + conditions + NEWEST, values)
            ]
    except sqlite3.DatabaseError as error:
        raise PlanError(f"{DATABASE}: {error}; if it is damaged, delete mlruns/: only the history is lost") from None


def _facts(database: sqlite3.Connection, kind: str, run_id: str) -> dict[str, str]:
    return dict(database.execute(f"SELECT key, value FROM {kind} WHERE run_uuid = ?", [run_id]))

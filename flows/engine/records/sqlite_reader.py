"""The records in the repository's own SQLite database, asked by SQL: importing MLflow alone takes seconds."""

import math
import sqlite3
from collections.abc import Mapping

from flows.engine.records.reader import PREFIX, MetricValue, RegisteredModel, RunHead

COUNTS = "runs.status = 'FINISHED' AND runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'"
FINISHED = f"""
    SELECT runs.run_uuid, runs.start_time FROM runs JOIN experiments USING (experiment_id)
    WHERE {COUNTS}
"""
TAGGED = " AND runs.run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)"
NEWEST = " ORDER BY runs.start_time DESC LIMIT 50"
MADE_WHAT = f"""
    SELECT runs.run_uuid, keys.value, outs.value FROM tags AS keys
    JOIN tags AS outs ON outs.run_uuid = keys.run_uuid AND outs.key = ?2
    JOIN runs ON runs.run_uuid = keys.run_uuid JOIN experiments USING (experiment_id)
    WHERE keys.key = ?1 AND {COUNTS} ORDER BY runs.start_time DESC
"""
RUNNING = "SELECT 1 FROM runs JOIN tags USING (run_uuid) WHERE runs.status = 'RUNNING' AND tags.key = ? LIMIT 1"
HEAD = """
    SELECT runs.name, runs.status, runs.start_time, runs.end_time,
    runs.lifecycle_stage = 'deleted' OR experiments.lifecycle_stage = 'deleted'
    FROM runs LEFT JOIN experiments USING (experiment_id) WHERE run_uuid = ?
"""
VALUES = "SELECT key, step, timestamp, value, is_nan FROM metrics WHERE run_uuid = ?"
LATEST = "SELECT key, value, is_nan FROM latest_metrics WHERE run_uuid = ? ORDER BY key"
INPUTS = """
    SELECT datasets.name, datasets.digest FROM inputs JOIN datasets ON datasets.dataset_uuid = inputs.source_id
    WHERE inputs.destination_type = 'RUN' AND inputs.destination_id = ? AND inputs.source_type = 'DATASET'
"""
BEGINNING = "SELECT run_uuid FROM runs WHERE run_uuid >= ? AND run_uuid < ? LIMIT 2"
VERSIONS = """
    SELECT run_uuid, value FROM tags JOIN runs USING (run_uuid) WHERE key = ? AND status = 'FINISHED'
    ORDER BY start_time DESC LIMIT ?
"""
LIKE = """
    SELECT runs.run_uuid FROM runs JOIN tags AS stages ON stages.run_uuid = runs.run_uuid AND stages.key = ?1 AND stages.value = ?2
    JOIN tags AS made ON made.run_uuid = runs.run_uuid AND made.key = ?3 AND made.value = ?4
    ORDER BY runs.lifecycle_stage = 'active' DESC, runs.status = 'FINISHED' DESC, runs.start_time DESC LIMIT 5
"""  # noqa: E501
PIPELINES = """
    SELECT runs.run_uuid, runs.name, runs.status, runs.start_time, runs.end_time FROM runs
    WHERE runs.lifecycle_stage = 'active' AND runs.run_uuid IN (SELECT run_uuid FROM tags WHERE key = ?)
"""
LAST_PIPELINES = " ORDER BY runs.start_time DESC, runs.rowid DESC LIMIT ?"
SEALED = """
    SELECT runs.run_uuid, tags.value FROM runs JOIN tags USING (run_uuid)
    WHERE tags.key = ? AND runs.run_uuid IN (SELECT run_uuid FROM tags WHERE key = ?) AND runs.run_uuid != ?
    ORDER BY runs.start_time DESC LIMIT 1
"""
MODEL = """
    SELECT versions.version, versions.run_id, tags.key, tags.value FROM model_versions AS versions
    LEFT JOIN model_version_tags AS tags USING (name, version) WHERE versions.name = ?
"""


class LocalReader:
    """A `Reader` of a connection to the database."""

    def __init__(self, records: sqlite3.Connection) -> None:
        self._ask = records.execute

    def head(self, run_id: str) -> RunHead | None:
        """A run, deleted ones too."""
        for name, status, started, ended, deleted in self._ask(HEAD, [run_id]):
            return RunHead(run_id, name or "", status, started, ended, bool(deleted))
        return None

    def tags(self, run_id: str) -> dict[str, str]:
        """All tags of a run."""
        return dict(self._ask("SELECT key, value FROM tags WHERE run_uuid = ?", [run_id]))

    def params(self, run_id: str) -> dict[str, str]:
        """All parameters of a run."""
        return dict(self._ask("SELECT key, value FROM params WHERE run_uuid = ?", [run_id]))

    def latest(self, run_id: str) -> dict[str, float]:
        """The value of each metric that MLflow's pages show, NaN included."""
        return {key: math.nan if nan else value for key, value, nan in self._ask(LATEST, [run_id])}

    def values(self, run_id: str) -> list[MetricValue]:
        """Every value of every metric."""
        rows = self._ask(VALUES, [run_id])
        return [MetricValue(key, step, time, value, bool(nan)) for key, step, time, value, nan in rows]

    def inputs(self, run_id: str) -> dict[str, str]:
        """Name and digest of each data set that a run read."""
        return dict(self._ask(INPUTS, [run_id]))

    def beginning(self, text: str) -> list[str]:
        """At most two runs whose ids begin so."""
        return [run_id for (run_id,) in self._ask(BEGINNING, _build_prefix_range(text))]

    def finished(self, tags: Mapping[str, str]) -> list[tuple[str, int]]:
        """Id and time of at most 50 finished runs that have these tags, named in full."""
        values = [text for item in tags.items() for text in item]
        return list(self._ask(FINISHED + TAGGED * len(tags) + NEWEST, values))

    def maker(self, key: str, outs: str) -> str | None:
        """The newest finished run with this run-cache key and these hashes."""
        return next((run_id for run_id, _ in self.finished({PREFIX + "key": key, PREFIX + "outs": outs})), None)

    def made(self) -> list[tuple[str, str, str]]:
        """Id, run-cache key and hashes of every finished run."""
        return list(self._ask(MADE_WHAT, [PREFIX + "key", PREFIX + "outs"]))

    def versions(self, tag: str, limit: int) -> list[tuple[str, str]]:
        """Id and value of the newest finished runs that have a tag."""
        return list(self._ask(VERSIONS, [tag, limit]))

    def list_stage_runs_with_tag(self, stage: str, tag: str, value: str) -> list[str]:
        """At most five runs of a stage that have this tag; active and finished ones first."""
        return [run_id for (run_id,) in self._ask(LIKE, [PREFIX + "stage", stage, tag, value])]

    def stage_runs(self) -> list[str]:
        """Every run of a stage."""
        return [run_id for (run_id,) in self._ask("SELECT run_uuid FROM tags WHERE key = ?", [PREFIX + "stage"])]

    def run_ids(self) -> list[str]:
        """Every run, the last one last."""
        return [run_id for (run_id,) in self._ask("SELECT run_uuid FROM runs ORDER BY start_time")]

    def has_running_run(self) -> bool:
        """Whether a run of the engine has not ended."""
        return bool(self._ask(RUNNING, [PREFIX + "engine"]).fetchone())

    def pipelines(self, limit: int | None, flow: str | None, clone_only: bool) -> list[RunHead]:
        """The runs of pipelines that were not deleted."""
        values: list[str | int | None] = [] if flow is None else [PREFIX + "flow", flow]
        parameters = [PREFIX + "flow", *values, -1 if limit is None else limit]
        return self._query_run_heads(TAGGED if values else "", parameters)

    def list_pipelines_by_id_prefix(self, text: str) -> list[RunHead]:
        """At most two of them whose ids begin so."""
        between = " AND runs.run_uuid >= ? AND runs.run_uuid < ?"
        return self._query_run_heads(between, [PREFIX + "flow", *_build_prefix_range(text), 2])

    def _query_run_heads(self, conditions: str, parameters: list[str | int | None]) -> list[RunHead]:
        rows = self._ask(PIPELINES + conditions + LAST_PIPELINES, parameters).fetchall()
        return [RunHead(run_id, name or "", status, started, ended) for run_id, name, status, started, ended in rows]

    def find_previous_sealed_pipeline(self, run_id: str, seal: str) -> tuple[str, str] | None:
        """The newest pipeline run but this one that has the tag `seal`, and its value."""
        row: tuple[str, str] | None = self._ask(SEALED, [seal, PREFIX + "flow", run_id]).fetchone()
        return row

    def model(self, name: str) -> RegisteredModel | None:
        """A registered model."""
        if not self._ask("SELECT 1 FROM registered_models WHERE name = ?", [name]).fetchone():
            return None
        tags: dict[str, dict[str, str]] = {}
        runs: dict[str, str] = {}
        for version, run_id, key, value in self._ask(MODEL, [name]):
            runs[str(version)] = run_id
            of_version = tags.setdefault(str(version), {})
            if key is not None:
                of_version[key] = value
        aliases = self._ask("SELECT alias, version FROM registered_model_aliases WHERE name = ?", [name])
        return RegisteredModel(tags, runs, {alias: str(version) for alias, version in aliases})

    def models(self) -> list[str]:
        """The names of all registered models."""
        return [name for (name,) in self._ask("SELECT name FROM registered_models ORDER BY name")]


def _build_prefix_range(text: str) -> list[str | int | None]:
    return [text, text + "g"]  # ids are hexadecimal, so that "g" comes after each

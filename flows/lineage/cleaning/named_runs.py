"""What MLflow's records say of results: which stage made what, which pipeline runs use it, which registered models are
it.

A run is kept if one of the last pipeline runs made it or names it. Of registered models every version keeps its
content, or only those that an alias points at.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine import mlflow_run_lookup
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records.reader import RecordsReader
from flows.lineage import history

OUT = f"{PREFIX}out."
PARENT = "mlflow.parentRunId"
TAG = PREFIX + "cleaned"  # of a stage's run: when outs of it were removed


@dataclass(frozen=True)
class RecordedStageRun:
    """One execution of a stage: what it made, and the pipeline run that it was part of."""

    stage: str
    outs: frozenset[str]
    parent: str
    cleaned: bool


@dataclass
class CloneRuns:
    """The stage runs of this clone by their ids, those that are kept, and the hashes of models."""

    stages: dict[str, RecordedStageRun] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)  # of stages and of pipelines
    used: dict[str, float] = field(default_factory=dict)  # stage run -> when a pipeline run last used it
    models: dict[str, set[str]] = field(default_factory=dict)  # hash -> `NAME/VERSION`
    pipelines: dict[str, set[str]] = field(default_factory=dict)  # pipeline run -> the stage runs that it names

    def makers(self) -> Iterator[tuple[str, str, RecordedStageRun]]:
        """Hash, run id and run of everything that a run made."""
        for run_id, run in self.stages.items():
            for md5 in run.outs:
                yield md5, run_id, run


def load_clone_runs(root: Path, last: int, old_models: bool) -> CloneRuns:
    """What the records say; with `old_models` only those versions of models count that have an alias."""
    runs = CloneRuns()
    pipelines = history.load_pipeline_runs(root, clone_only=True)
    runs.pipelines = {run.id: set(run.runs.values()) for run in pipelines}
    with mlflow_run_lookup.open_records_reader(root) as records:
        if records is None:
            return runs
        for run_id in records.stage_runs():
            tags = records.tags(run_id)
            made = frozenset(value for key, value in tags.items() if key.startswith(OUT))
            runs.stages[run_id] = RecordedStageRun(
                tags.get(PREFIX + "stage", ""), made, tags.get(PARENT, ""), TAG in tags
            )
        runs.models = _collect_model_versions(records, old_models)
    counted = [*dict.fromkeys(run.sweep or run.id for run in pipelines)][:last]  # a sweep with its points counts as one
    newest = {run.id for run in pipelines if (run.sweep or run.id) in counted}
    paged = next(
        (run.id for run in pipelines if run.pages and not run.sweep), None
    )  # an audit holds the pages against the newest copy
    runs.kept = newest | {run_id for run_id, run in runs.stages.items() if run.parent in newest}
    for run in reversed(pipelines):
        named = set(run.runs.values())
        runs.kept |= named if run.id in newest else set()
        runs.used |= dict.fromkeys(named, run.started.timestamp())
    runs.kept |= {paged} if paged else set()
    return runs


def _collect_model_versions(records: RecordsReader, old_models: bool) -> dict[str, set[str]]:
    versions_by_hash: dict[str, set[str]] = {}
    for name in records.models():
        model = records.model(name)
        tags: Mapping[str, Mapping[str, str]] = model.tags if model else {}
        aliased = set(model.aliases.values()) if model else set()
        for version, facts in tags.items():
            if (md5 := facts.get(PREFIX + "hash")) and (version in aliased or not old_models):
                versions_by_hash.setdefault(md5, set()).add(f"{name}/{version}")
    return versions_by_hash

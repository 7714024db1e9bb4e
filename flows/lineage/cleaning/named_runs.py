"""What MLflow's records say of results: which stage made what, which pipeline runs use it, which registered models are
it.

A run is kept if one of the last pipeline runs made it or names it. Of registered models every version keeps its
content, or only those that an alias points at.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine import mlflow_runs
from flows.engine.mlflow_runs import PREFIX
from flows.engine.records.reader import Reader
from flows.lineage import history

OUT = f"{PREFIX}out."
PARENT = "mlflow.parentRunId"
TAG = PREFIX + "cleaned"  # of a stage's run: when outs of it were removed


@dataclass(frozen=True)
class StageRun:
    """One execution of a stage: what it made, and the pipeline run that it was part of."""

    stage: str
    outs: frozenset[str]
    parent: str
    cleaned: bool


@dataclass
class Runs:
    """The stage runs of this clone by their ids, those that are kept, and the hashes of models."""

    stages: dict[str, StageRun] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)  # of stages and of pipelines
    used: dict[str, float] = field(default_factory=dict)  # stage run -> when a pipeline run last used it
    models: dict[str, set[str]] = field(default_factory=dict)  # hash -> `NAME/VERSION`
    pipelines: dict[str, set[str]] = field(default_factory=dict)  # pipeline run -> the stage runs that it names

    def makers(self) -> Iterator[tuple[str, str, StageRun]]:
        """Hash, run id and run of everything that a run made."""
        for run_id, run in self.stages.items():
            for md5 in run.outs:
                yield md5, run_id, run


def read(root: Path, last: int, old_models: bool) -> Runs:
    """What the records say; with `old_models` only those versions of models count that have an alias."""
    found = Runs()
    pipelines = history.pipelines(root, clone_only=True)
    found.pipelines = {run.id: set(run.runs.values()) for run in pipelines}
    with mlflow_runs.reading(root) as records:
        if records is None:
            return found
        for run_id in records.stage_runs():
            tags = records.tags(run_id)
            made = frozenset(value for key, value in tags.items() if key.startswith(OUT))
            found.stages[run_id] = StageRun(tags.get(PREFIX + "stage", ""), made, tags.get(PARENT, ""), TAG in tags)
        found.models = _models(records, old_models)
    counted = [*dict.fromkeys(run.sweep or run.id for run in pipelines)][:last]  # a sweep with its points counts as one
    newest = {run.id for run in pipelines if (run.sweep or run.id) in counted}
    paged = next(
        (run.id for run in pipelines if run.pages and not run.sweep), None
    )  # an audit holds the pages against the newest copy
    found.kept = newest | {run_id for run_id, run in found.stages.items() if run.parent in newest}
    for run in reversed(pipelines):
        named = set(run.runs.values())
        found.kept |= named if run.id in newest else set()
        found.used |= dict.fromkeys(named, run.started.timestamp())
    found.kept |= {paged} if paged else set()
    return found


def _models(records: Reader, old_models: bool) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in records.models():
        model = records.model(name)
        tags: Mapping[str, Mapping[str, str]] = model.tags if model else {}
        aliased = set(model.aliases.values()) if model else set()
        for version, facts in tags.items():
            if (md5 := facts.get(PREFIX + "hash")) and (version in aliased or not old_models):
                found.setdefault(md5, set()).add(f"{name}/{version}")
    return found

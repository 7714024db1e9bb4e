"""The runs of whole pipelines, as MLflow's database has them: what ran, what changed since the one before, the
headline.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records.reader import RecordsReader, RunHead
from tasks.common.config import BRANCHES

LOOKED_BACK = 128  # pipeline runs at most that are searched for a section's last one
SHORTEST = 6  # letters of a run's id that may stand for it
PAGE = PREFIX + "page."  # tag with the SHA-256 of a kept page, so that the seal covers it
# the stages that measure, one branch a policy -> their flow; their metrics make a pipeline run's headline
EVALUATIONS = {
    "evaluate": "language",
    "returns": "offline",
    "agent_returns": "agents",
}


@dataclass(frozen=True)
class PipelineRun:
    """One run of a flow. `states` and `runs` are by stage; a stage without a run on record is in `states` alone."""

    id: str
    name: str
    flow: str
    status: str  # RUNNING, FINISHED, FAILED, KILLED
    started: datetime
    ended: datetime | None
    states: Mapping[str, str]  # stage -> ran, restored, up-to-date, failed, skipped
    runs: Mapping[str, str]  # stage -> the run that made its outs
    changes: str  # what differed from the pipeline run before
    commit: str
    dirty: str  # "no", or the files that differed from the commit
    metrics: Mapping[str, float]  # headline: "grpo/strict_greedy", "grpo/strict_greedy/low", ...
    params: Mapping[str, str]
    pages: Mapping[str, str]  # kept page -> its SHA-256
    sweep: str = ""  # the run of the sweep that it belongs to
    point: str = ""  # of a point of a sweep: its settings
    number: str = ""  # and its number
    early: str = ""  # the number by which its trainings were stopped early, where they were


def load_pipeline_runs(
    root: Path, limit: int | None = None, flow: str | None = None, clone_only: bool = False
) -> list[PipelineRun]:
    """The pipeline runs, newest first; those of one flow, if it is named, and of this clone alone, if `clone_only`."""
    with mlflow_run_lookup.open_records_reader(root) as records:
        return (
            [_read_pipeline_run(records, head) for head in records.pipelines(limit, flow, clone_only)]
            if records
            else []
        )


def load_newest_pipeline_runs(root: Path, count: int, points: bool) -> list[PipelineRun]:
    """The newest pipeline runs, at most `count`; the points of sweeps count only with `points`."""
    limit = count
    while True:
        runs = load_pipeline_runs(root, limit)
        matches = [run for run in runs if points or not run.point]
        if len(matches) >= count or len(runs) < limit:
            return matches[:count]
        limit *= 8


def find_newest_pipeline_run(
    root: Path, wanted: Callable[[PipelineRun], bool], flow: str | None = None
) -> PipelineRun | None:
    """The newest pipeline run of this clone that is wanted; no more runs are read than that takes."""
    return next(iter(find_newest_pipeline_runs(root, wanted, 1, flow)), None)


def find_newest_pipeline_runs(
    root: Path, wanted: Callable[[PipelineRun], bool], count: int, flow: str | None = None
) -> list[PipelineRun]:
    """The newest pipeline runs of this clone that are wanted, at most `count`; no more runs are read than that
    takes.
    """
    limit = 4 * count
    while True:
        runs = load_pipeline_runs(root, limit, flow, clone_only=True)
        matches = list(filter(wanted, runs))
        if len(matches) >= count or len(runs) < limit:
            return matches[:count]
        limit *= 8


def load_previous_params(root: Path, run_id: str, flow: str, sections: Collection[str]) -> dict[str, str] | None:
    """The parameters of each section as the newest earlier run of the flow that had this section used them; None where
    there is no earlier run.

    Runs have the sections of the stages that their targets need, so that the run before may have others.
    """
    limit = 4
    while True:
        runs = load_pipeline_runs(root, limit, flow, clone_only=True)
        earlier = [run for run in runs if run.id != run_id and not run.sweep]
        params: dict[str, str] = {}
        covered: set[str] = set()
        for run in earlier:
            params |= {key: value for key, value in run.params.items() if get_section_name(key) not in covered}
            covered |= {get_section_name(key) for key in run.params}
        if covered.issuperset(sections) or len(runs) < limit or limit >= LOOKED_BACK:
            return params if earlier else None
        limit *= 8


def get_section_name(key: str) -> str:
    """The section of params.yaml that a dotted key is in; of what stages are run for, `branches.STAGE`."""
    return ".".join(key.split(".")[: 1 + key.startswith(f"{BRANCHES}.")])


def get_pipeline_run(root: Path, text: str) -> PipelineRun:
    """The pipeline run with this id, or with the only id that begins so; PlanError if there is none, or several."""
    matches: list[PipelineRun] = []
    if len(text) >= SHORTEST:
        with mlflow_run_lookup.open_records_reader(root) as records:
            if records is not None:
                matches = [_read_pipeline_run(records, head) for head in records.list_pipelines_by_id_prefix(text)]
    if len(matches) > 1:
        raise PlanError(f"{text}: more than one pipeline run begins so; give more letters")
    if not matches:
        raise PlanError(f"{text}: no pipeline run has this id; `posttrain runs` lists them")
    return matches[0]


def get_stage_run_ids(root: Path, run_id: str) -> dict[str, str]:
    """Stage -> the run that made its outs, as a pipeline run found or left them; a run that failed, or was deleted,
    made none.
    """
    with mlflow_run_lookup.open_records_reader(root) as records:
        made = _group_tags_by_stage(records.tags(run_id), "run") if records else {}
        heads = {stage: records.head(maker_id) for stage, maker_id in made.items()} if records else {}
    return {stage: head.id for stage, head in heads.items() if head and head.finished}


def _read_pipeline_run(records: RecordsReader, head: RunHead) -> PipelineRun:
    tags = records.tags(head.id)
    return PipelineRun(
        head.id,
        head.name,
        tags.get(PREFIX + "flow", ""),
        head.status,
        datetime.fromtimestamp(head.started / 1000),
        datetime.fromtimestamp(head.ended / 1000) if head.ended else None,
        _group_tags_by_stage(tags, "state"),
        _group_tags_by_stage(tags, "run"),
        tags.get(PREFIX + "changes", ""),
        tags.get(PREFIX + "git_commit", "none"),
        tags.get(PREFIX + "git_dirty", "unknown"),
        mlflow_run_lookup.load_non_nan_metrics(records, head.id),
        records.params(head.id),
        {key.removeprefix(PAGE): value for key, value in tags.items() if key.startswith(PAGE)},
        tags.get(PREFIX + "sweep", ""),
        tags.get(PREFIX + "point", ""),
        tags.get(PREFIX + "point_number", ""),
        tags.get(PREFIX + "early", ""),
    )


def _group_tags_by_stage(tags: Mapping[str, str], kind: str) -> dict[str, str]:
    """The tags of one kind by stage; MLflow's tags have a colon in place of the @ of a branch."""
    start = f"{PREFIX}{kind}."
    return {key.removeprefix(start).replace(":", "@"): value for key, value in tags.items() if key.startswith(start)}

"""A sweep in MLflow: one parent, and a run for each point with its parameters and what came out of them.

A point's run is one of a pipeline: `posttrain runs`, `lineage` and `compare` take it as they take any. It keeps the
text of its params.yaml, which `posttrain apply` lays over the workspace's.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flows.engine import mlflow_client, mlflow_run_lookup, mlflow_seal
from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records import mlflow_artifacts
from flows.lineage import history
from flows.lineage.history import PAGE, PipelineRun
from flows.lineage.pipeline_summary import NAME, VALUE, collect_stage_params
from flows.lineage.registered_models import NOT_IN_NAMES
from flows.params.files import PARAMS
from flows.sweeps.outcome import HeadlineValue
from flows.sweeps.sweep import Ended
from tasks.common import mlflow_database
from tasks.common.source_code import CodeState

SWEEP = PREFIX + "sweep"
POINT = PREFIX + "point"
NUMBER = PREFIX + "point_number"
EARLY = PREFIX + "early"
BEHIND = PREFIX + "behind"


@dataclass(frozen=True)
class SweepSummary:
    """What is to be said of the whole sweep: its name, its description and its pages."""

    name: str
    note: str
    pages: Sequence[Path] = ()


def record_point_runs(
    root: Path,
    flow: str,
    parent: str,
    source: CodeState,
    points: Sequence[Ended],
    values: Mapping[int, Mapping[str, HeadlineValue]],
    early: str = "",
) -> dict[int, str]:
    """Make the runs of the points under `parent`; the id of each by its number. `early` is the number by which
    trainings were stopped.

    PlanError if MLflow cannot be written.
    """
    made: dict[int, str] = {}
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        client = mlflow_client.open_mlflow_client_after_recording(root)
        experiment = mlflow_client.get_or_create_experiment_id(client, root, flow)
        with mlflow_run_lookup.open_records_reader(root) as records:
            assert records is not None, "the parent is there"
            seals = {
                run: records.tags(run).get(mlflow_seal.TAG, "none")
                for ended in points
                for run in ended.runs.values()
                if run
            }
        for ended in points:
            tags = {
                **mlflow_database.make_clone_tags(root),
                **mlflow_client.build_source_tags(source),
                PREFIX + "engine": "true",
                PREFIX + "flow": flow,
                SWEEP: parent,
                POINT: ended.point.name[:VALUE],
                NUMBER: str(ended.point.number),
                PREFIX + "changes": f"sweep {parent[:8]}: {ended.point.name}"[:VALUE],
                **({EARLY: early} if early else {}),
                **({BEHIND: ended.behind} if ended.behind else {}),
                "mlflow.parentRunId": parent,
                "mlflow.source.type": "LOCAL",
                "mlflow.source.name": f"posttrain sweep {flow}",
            }
            run_id = client.create_run(experiment, run_name=ended.point.name[:NAME], tags=tags).info.run_id
            made[ended.point.number] = run_id
            numbers = {
                NOT_IN_NAMES.sub("_", f"{key}{end}"): number
                for key, value in values[ended.point.number].items()
                for end, number in (("", value.mean), ("/low", value.low), ("/high", value.high))
                if number is not None
            } | {NOT_IN_NAMES.sub("_", key): number for key, number in ended.reached.items()}
            mlflow_client.log_params_and_metrics(
                client, run_id, collect_stage_params(ended.params, ended.states), numbers
            )
            content = ended.params.encode()
            mlflow_artifacts.save_artifact(root, run_id, PARAMS, content)
            states = {
                PREFIX + mlflow_client.format_tag_name("state", stage): state for stage, state in ended.states.items()
            }
            runs = {
                PREFIX + mlflow_client.format_tag_name("run", stage): run for stage, run in ended.runs.items() if run
            }
            chain = {
                PREFIX + mlflow_client.format_tag_name("seal", stage): seals[run]
                for stage, run in ended.runs.items()
                if run
            }
            kept = {PAGE + PARAMS: hashlib.sha256(content).hexdigest()}
            mlflow_client.set_run_tags(client, run_id, {**states, **runs, **chain, **kept})
            if ended.over:
                mlflow_client.seal_run(client, root, run_id)
            client.set_terminated(run_id, "FINISHED" if ended.over else "FAILED")
    return made


def record_sweep_summary(root: Path, parent: str, summary: SweepSummary) -> None:
    """Name the sweep's own run, say what came out, keep its pages with it, and seal it."""
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        client = mlflow_client.open_mlflow_client_after_recording(root)
        pages = {page.name: page.read_bytes() for page in summary.pages}
        for name, content in pages.items():
            mlflow_artifacts.save_artifact(root, parent, name, content)
        kept = {PAGE + name: hashlib.sha256(content).hexdigest() for name, content in pages.items()}
        tags = {"mlflow.runName": summary.name[:NAME], "mlflow.note.content": summary.note, SWEEP: parent}
        mlflow_client.set_run_tags(client, parent, {**tags, PREFIX + "changes": summary.name[:VALUE], **kept})
        mlflow_client.seal_run(client, root, parent)


def find_same_sweep_runs(
    root: Path, names: Sequence[str], texts: Sequence[str], early: str = ""
) -> dict[int, str] | None:
    """The runs of the newest sweep's points by their numbers, if it has these points with these texts of params.yaml,
    all done, stopped alike.
    """
    newest = history.find_newest_pipeline_run(root, lambda run: bool(run.point))
    if newest is None:
        return None
    of_sweep = partial(_is_point_of_sweep, newest.sweep)
    runs = history.find_newest_pipeline_runs(root, of_sweep, len(names) + 1)
    wanted = {
        str(number): (name, hashlib.sha256(text.encode()).hexdigest(), early)
        for number, (name, text) in enumerate(zip(names, texts, strict=True), 1)
    }
    finished = {run.number: (run.point, run.pages.get(PARAMS), run.early) for run in runs if run.status == "FINISHED"}
    return {int(run.number): run.id for run in runs} if finished == wanted else None


def _is_point_of_sweep(sweep: str, run: PipelineRun) -> bool:
    return bool(run.point) and run.sweep == sweep


def get_run_and_params(root: Path, text: str) -> tuple[PipelineRun, str]:
    """The run that `text` names, and its params.yaml: the id of a pipeline run, or a point of the newest sweep by
    number or name.
    """
    run = _find_newest_sweep_point(root, text) or history.get_pipeline_run(root, text)
    file = mlflow_artifacts.get_or_fetch_artifact_path(root, run.id, PARAMS)
    recorded = run.pages.get(PARAMS)
    if not file.is_file() or recorded is None:
        raise PlanError(f"{text}: run {run.id[:8]} has not kept its params.yaml")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != recorded:
        raise PlanError(f"{file}: is not the params.yaml that run {run.id[:8]} was made with")
    return run, content.decode()


def _find_newest_sweep_point(root: Path, text: str) -> PipelineRun | None:
    """The point of the newest sweep that has points."""
    newest = history.find_newest_pipeline_run(root, lambda run: bool(run.point))
    if newest is None:
        return None
    return history.find_newest_pipeline_run(
        root, lambda run: run.sweep == newest.sweep and text in (run.point, run.number)
    )

"""What a pipeline run says of itself in MLflow: a name that tells what it did, its parameters, its headline, links and
pages.

Written when all has ended. A run that is killed before has the plain name of its flow and no seal.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows.engine import dvc_lock, mlflow_client, mlflow_run_lookup, mlflow_seal
from flows.engine.dvc_lock import Entry
from flows.engine.journals import journal, replay_process
from flows.engine.journals.journal import Event, Journal
from flows.engine.journals.journalled_run import decode_stage_result, encode_stage_result
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records import mlflow_artifacts
from flows.engine.stage_types import PlannedStage, StageResult
from flows.lineage import history, registered_models
from flows.lineage.history import EVALUATIONS, PAGE, get_section_name
from flows.lineage.registered_models import HEADLINE, NOT_IN_NAMES, Left
from flows.params.files import PARAMS, parse_yaml_text
from tasks.common import mlflow_address
from tasks.common.config import BRANCHES

# letters that MLflow takes of a name, a description and a parameter
NAME = 250
NOTE = 7500
VALUE = 5000
# stages and changes that a name lists; of more it gives the number
NAMED = 4
CHANGES = 3
WORDS = {
    "ran": "ran",
    "restored": "restored",
    "failed": "failed",
    "skipped": "skipped",
    "paused": "paused",
    "behind": "behind",
    "up-to-date": "up to date",
}


def record_pipeline_summary(
    root: Path,
    flow: str,
    params: str,
    stages: Iterable[str],
    results: Sequence[StageResult],
    pages: Iterable[Path],
    left: Left | None = None,
) -> None:
    """Write all of it to the run that `results` belong to, with the models that its stages made; `params` is the text
    of params.yaml.

    `left` is what the run left in the workspace, None if that is still as it was.
    """
    left = left or Left.by(root, results)
    run_id = next((result.pipeline_run_id for result in results if result.pipeline_run_id), None)
    if run_id is None:
        return
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        client = mlflow_client.open_mlflow_client_after_recording(root)
        values = collect_stage_params(params, stages)
        before = history.load_previous_params(root, run_id, flow, {get_section_name(key) for key in values})
        changed = describe_run_changes(values, before, results)
        versions = registered_models.register_models(
            client, root, flow, parse_yaml_text(params, "params.yaml"), results, left
        )
        metrics = dict(iterate_headline_metrics(left.metrics, results))
        tags = {
            "mlflow.runName": format_run_name(changed, results),
            "mlflow.note.content": render_run_description(
                client.get_run(run_id).info.experiment_id, changed, results, metrics, versions
            ),
            PREFIX + "changes": "; ".join(changed)[:VALUE],
            **_build_seal_chain_tags(root, run_id, results),
        }
        numbers = {NOT_IN_NAMES.sub("_", key): value for key, value in metrics.items()}
        mlflow_client.log_params_and_metrics(client, run_id, values, numbers)
        mlflow_client.set_run_tags(client, run_id, tags)
        for made_by, description in _render_stage_run_descriptions(
            left.entries, client.get_run(run_id).info.experiment_id, results
        ):
            client.set_tag(made_by, "mlflow.note.content", description)
        for file, content in {**{page.name: page.read_bytes() for page in pages}, PARAMS: params.encode()}.items():
            mlflow_artifacts.save_artifact(root, run_id, file, content)
            client.set_tag(run_id, PAGE + file, hashlib.sha256(content).hexdigest())
        mlflow_client.seal_run(client, root, run_id)


def queue_or_record_pipeline_summary(
    root: Path,
    flow: str,
    params: str,
    planned: Sequence[PlannedStage],
    results: Sequence[StageResult],
    pages: Sequence[Path],
) -> None:
    """Have it written by the process that writes the repository's own records; where MLflow is shared, write it now."""
    stages = [stage.name for stage in planned]
    if mlflow_address.find_shared_address(root) is not None:
        return record_pipeline_summary(root, flow, params, stages, results, pages)
    fields = {
        "flow": flow,
        "params": params,
        "stages": stages,
        "results": [encode_stage_result(result) for result in results],
        "left": vars(Left.by(root, results)),
    }
    written = Journal(root, "complete", run=results[0].pipeline_run_id, pages=[page.name for page in pages], **fields)
    for page in pages:
        journal.link_or_copy_file(page, written.folder / page.name)
    written.close()
    replay_process.start_recorder_unless_running(root)


def record_summary_from_journal(root: Path, folder: Path, event: Event) -> None:
    """Write what `queue_or_record_pipeline_summary` left in a journal's folder; `event` is its first one."""
    results = map(decode_stage_result, event["results"])
    pages = (folder / name for name in event["pages"])
    record_pipeline_summary(
        root, event["flow"], event["params"], event["stages"], [*results], pages, Left(**event["left"])
    )


def collect_stage_params(params: str, stages: Iterable[str]) -> dict[str, str]:
    """SECTION.KEY -> value of every parameter in the sections of these stages, as MLflow keeps it."""
    sections = {stage.partition("@")[0] for stage in stages}
    values = parse_yaml_text(params, "params.yaml")
    kept = {key: value for key, value in values.items() if key in sections}
    entries = {key: value for key, value in (values.get(BRANCHES) or {}).items() if key in sections}
    return dict(_iterate_leaf_texts(kept | ({BRANCHES: entries} if entries else {})))


def _iterate_leaf_texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _iterate_leaf_texts(inner, f"{key}.{name}" if key else str(name))
    elif key:  # else there are no parameters at all
        yield (
            NOT_IN_NAMES.sub("_", key)[:NAME],
            (value if isinstance(value, str) else json.dumps(value, default=str))[:VALUE],
        )


def describe_run_changes(
    values: Mapping[str, str], before: Mapping[str, str] | None, results: Sequence[StageResult]
) -> list[str]:
    """What made this run differ from those before, most important first: parameters, or else what the stages' reasons
    name.

    `before` has the parameters of earlier runs, None where there was none. Of sections that are in one of the two alone
    nothing is said.
    """
    if before is None:
        return ["first run"]
    changed_params = []
    sections = {get_section_name(key) for key in values} & {get_section_name(key) for key in before}
    for key in dict.fromkeys([*values, *before]):
        old = before.get(key)
        new = values.get(key)
        if old != new and get_section_name(key) in sections:
            changed_params.append(f"{key} {_shorten_value(old)} -> {_shorten_value(new)}")
    return changed_params or list(dict.fromkeys(_iterate_rerun_causes(results)))


def _shorten_value(value: str | None) -> str:
    if value is None:
        return "none"
    return value if len(value) <= 40 else value[:37] + "..."


def _iterate_rerun_causes(results: Sequence[StageResult]) -> Iterator[str]:
    """What stages gave as reasons, where that is not another stage's out."""
    outs = {path for result in results for path in result.outs}
    for result in results:
        if result.state not in ("ran", "failed", "restored"):
            continue
        for reason in result.reason.split("; "):
            path = reason.removeprefix("dep ").rpartition(" ")[0]
            if reason == "forced":
                yield f"{result.stage} forced"
            elif reason.startswith("dep ") and not any(path == out or out.startswith(f"{path}/") for out in outs):
                yield reason.removeprefix("dep ")
            elif reason.startswith(("param ", "command ", "out ")) and " and " not in reason:
                yield reason.removeprefix("param ").replace(" changed ", " ", 1)


def format_run_name(changed: Sequence[str], results: Sequence[StageResult]) -> str:
    """What the run did: `dpo.beta 0.1 -> 0.2: dpo, evaluate@dpo, report ran, 19 up to date`."""
    shown = ", ".join(changed[:CHANGES]) + (f" and {len(changed) - CHANGES} more" if len(changed) > CHANGES else "")
    parts = []
    for state, word in WORDS.items():
        stages = [result.stage for result in results if result.state == state]
        few = len(stages) <= NAMED and state != "up-to-date"
        if stages:
            parts.append(f"{', '.join(stages) if few else len(stages)} {word}")
    outcomes = ", ".join(parts)
    room = NAME - len(outcomes) - 2
    shown = shown if len(shown) <= room else f"{shown[: room - 3]}..."
    return f"{shown}: {outcomes}" if shown else outcomes


def iterate_headline_metrics(metrics: Mapping[str, Any], results: Sequence[StageResult]) -> Iterator[tuple[str, float]]:
    """POLICY/METRIC, and /low and /high of its 95 % interval: what a person compares first, of every evaluation."""
    for result in results:
        if result.state in ("ran", "restored", "up-to-date"):
            with suppress(KeyError, TypeError, ValueError):  # another's stage of this name, with other metrics
                yield from iterate_stage_headline_metrics(result.stage, metrics.get(result.stage) or {})


def iterate_stage_headline_metrics(stage: str, metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The same of one stage's metrics file; nothing unless the stage is an evaluation."""
    kind, _, branch = stage.partition("@")
    for key, value in metrics.items() if kind in EVALUATIONS else ():
        if kind != "evaluate":
            units = ("return", "score") if isinstance(value, Mapping) else ()
            yield from ((f"{branch}/{key}/{unit}", float(value[unit])) for unit in units if unit in value)
        elif key.startswith(HEADLINE):
            yield f"{branch}/{key}", float(value["mean"])
            yield from ((f"{branch}/{key}/{end}", float(value[end])) for end in ("low", "high"))


def render_run_description(
    experiment: str,
    changed: Sequence[str],
    results: Sequence[StageResult],
    metrics: Mapping[str, float],
    versions: Mapping[str, str],
) -> str:
    """The run's description: what changed, the headline, and a table with a link to the run that made each stage's
    output.
    """
    lines = [f"**{', '.join(changed) or 'nothing changed'}**", ""]
    shown = [
        key
        for key in metrics
        if not key.endswith(("/low", "/high")) and f"{key}/low" in metrics and "strict_greedy" in key
    ]
    if shown:
        lines += ["| policy | greedy accuracy | 95 % interval |", "|---|---|---|"]
        lines += [
            f"| {key.partition('/')[0]} | {100 * metrics[key]:.1f} % | {100 * metrics[f'{key}/low']:.1f} to "
            f"{100 * metrics[f'{key}/high']:.1f} |"
            for key in shown
        ]
        lines.append("")
    lines += ["| stage | | made by | model |", "|---|---|---|---|"]
    order = sorted(results, key=lambda result: result.state == "up-to-date")
    for index, result in enumerate(order):
        run = result.mlflow_run_id
        made = f"[{run[:8]}](#/experiments/{experiment}/runs/{run})" if run else "no run on record"
        row = (
            f"| {result.stage} | {WORDS.get(result.state, result.state)} | {made} | {versions.get(result.stage, '')} |"
        )
        if sum(map(len, lines)) + len(lines) + len(row) > NOTE:
            lines.append(f"\n{len(order) - index} more stages: their runs are in the tags posttrain.run.STAGE")
            break
        lines.append(row)
    return "\n".join(lines)


def _render_stage_run_descriptions(
    entries: Mapping[str, Entry], experiment: str, results: Sequence[StageResult]
) -> Iterator[tuple[str, str]]:
    """Of each run that was made now: its description, with a link for each input to the run that made it."""
    makers = {path: (result, md5) for result in results for path, md5 in result.outs.items()}
    for result in results:
        if result.state != "ran" or not result.mlflow_run_id:
            continue
        lines = ["| read | hash | made by |", "|---|---|---|"]
        for path, md5 in dvc_lock.get_data_hashes(entries.get(result.stage, {})).items():
            within = [maker for out, maker in makers.items() if out == path or out.startswith(f"{path}/")]
            links = [
                f"[{maker.stage}](#/experiments/{experiment}/runs/{maker.mlflow_run_id})"
                for maker, made in within
                if maker.mlflow_run_id and (made == md5 or path not in makers)
            ]
            lines.append(f"| {path} | {md5[:8]} | {', '.join(dict.fromkeys(links)) or 'raw: no stage makes it'} |")
        yield result.mlflow_run_id, "\n".join(lines)[:NOTE]


def _build_seal_chain_tags(root: Path, run_id: str, results: Sequence[StageResult]) -> dict[str, str]:
    """The tags by which the run's seal covers those of its stages, and names the pipeline run before."""
    with mlflow_run_lookup.open_records_reader(root) as records:
        assert records is not None, "the run is in the database"
        seals = {
            result.stage: records.tags(result.mlflow_run_id).get(mlflow_seal.TAG, "none")
            for result in results
            if result.mlflow_run_id
        }
        before = records.find_previous_sealed_pipeline(run_id, mlflow_seal.TAG)
    seal_tags = {PREFIX + mlflow_client.format_tag_name("seal", stage): seal for stage, seal in seals.items()}
    return {**seal_tags, **({PREFIX + "previous": " ".join(before)} if before else {})}

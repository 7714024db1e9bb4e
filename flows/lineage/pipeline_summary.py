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
from flows.engine.journals.journalled_run import as_result, as_text
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records import mlflow_artifacts
from flows.engine.stage_types import PlannedStage, StageResult
from flows.lineage import history, registered_models
from flows.lineage.history import EVALUATIONS, PAGE, section
from flows.lineage.registered_models import HEADLINE, NOT_IN_NAMES, Left
from flows.params.files import PARAMS, parse
from tasks.common import mlflow_address
from tasks.common.config import BRANCHES

NAME, NOTE, VALUE = 250, 7500, 5000  # letters that MLflow takes of a name, a description and a parameter
NAMED, CHANGES = 4, 3  # stages and changes that a name lists; of more it gives the number
WORDS = {
    "ran": "ran",
    "restored": "restored",
    "failed": "failed",
    "skipped": "skipped",
    "paused": "paused",
    "behind": "behind",
    "up-to-date": "up to date",
}


def complete(
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
    with mlflow_run_lookup.one_line():
        client = mlflow_client.open_store(root)
        values = used(params, stages)
        before = history.previous_params(root, run_id, flow, {section(key) for key in values})
        changed = changes(values, before, results)
        versions = registered_models.register(client, root, flow, parse(params, "params.yaml"), results, left)
        metrics = dict(headline(left.metrics, results))
        tags = {
            "mlflow.runName": name(changed, results),
            "mlflow.note.content": note(client.get_run(run_id).info.experiment_id, changed, results, metrics, versions),
            PREFIX + "changes": "; ".join(changed)[:VALUE],
            **_chained(root, run_id, results),
        }
        numbers = {NOT_IN_NAMES.sub("_", key): value for key, value in metrics.items()}
        mlflow_client.log(client, run_id, values, numbers)
        mlflow_client.set_tags(client, run_id, tags)
        for made_by, description in _origins(left.entries, client.get_run(run_id).info.experiment_id, results):
            client.set_tag(made_by, "mlflow.note.content", description)
        for file, content in {**{page.name: page.read_bytes() for page in pages}, PARAMS: params.encode()}.items():
            mlflow_artifacts.write(root, run_id, file, content)
            client.set_tag(run_id, PAGE + file, hashlib.sha256(content).hexdigest())
        mlflow_client.seal(client, root, run_id)


def hand_over(
    root: Path,
    flow: str,
    params: str,
    planned: Sequence[PlannedStage],
    results: Sequence[StageResult],
    pages: Sequence[Path],
) -> None:
    """Have it written by the process that writes the repository's own records; where MLflow is shared, write it now."""
    stages = [stage.name for stage in planned]
    if mlflow_address.shared(root) is not None:
        return complete(root, flow, params, stages, results, pages)
    fields = {
        "flow": flow,
        "params": params,
        "stages": stages,
        "results": [as_text(result) for result in results],
        "left": vars(Left.by(root, results)),
    }
    written = Journal(root, "complete", run=results[0].pipeline_run_id, pages=[page.name for page in pages], **fields)
    for page in pages:
        journal.keep(page, written.folder / page.name)
    written.close()
    replay_process.start(root)


def complete_from(root: Path, folder: Path, event: Event) -> None:
    """Write what `hand_over` left in a journal's folder; `event` is its first one."""
    results, pages = map(as_result, event["results"]), (folder / name for name in event["pages"])
    complete(root, event["flow"], event["params"], event["stages"], [*results], pages, Left(**event["left"]))


def used(params: str, stages: Iterable[str]) -> dict[str, str]:
    """SECTION.KEY -> value of every parameter in the sections of these stages, as MLflow keeps it."""
    sections, values = {stage.partition("@")[0] for stage in stages}, parse(params, "params.yaml")
    kept = {key: value for key, value in values.items() if key in sections}
    entries = {key: value for key, value in (values.get(BRANCHES) or {}).items() if key in sections}
    return dict(_leaves(kept | ({BRANCHES: entries} if entries else {})))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    elif key:  # else there are no parameters at all
        yield (
            NOT_IN_NAMES.sub("_", key)[:NAME],
            (value if isinstance(value, str) else json.dumps(value, default=str))[:VALUE],
        )


def changes(values: Mapping[str, str], before: Mapping[str, str] | None, results: Sequence[StageResult]) -> list[str]:
    """What made this run differ from those before, most important first: parameters, or else what the stages' reasons
    name.

    `before` has the parameters of earlier runs, None where there was none. Of sections that are in one of the two alone
    nothing is said.
    """
    if before is None:
        return ["first run"]
    changed_params = []
    sections = {section(key) for key in values} & {section(key) for key in before}
    for key in dict.fromkeys([*values, *before]):
        old, new = before.get(key), values.get(key)
        if old != new and section(key) in sections:
            changed_params.append(f"{key} {_short(old)} -> {_short(new)}")
    return changed_params or list(dict.fromkeys(_causes(results)))


def _short(value: str | None) -> str:
    if value is None:
        return "none"
    return value if len(value) <= 40 else value[:37] + "..."


def _causes(results: Sequence[StageResult]) -> Iterator[str]:
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


def name(changed: Sequence[str], results: Sequence[StageResult]) -> str:
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


def headline(metrics: Mapping[str, Any], results: Sequence[StageResult]) -> Iterator[tuple[str, float]]:
    """POLICY/METRIC, and /low and /high of its 95 % interval: what a person compares first, of every evaluation."""
    for result in results:
        if result.state in ("ran", "restored", "up-to-date"):
            with suppress(KeyError, TypeError, ValueError):  # another's stage of this name, with other metrics
                yield from headline_of(result.stage, metrics.get(result.stage) or {})


def headline_of(stage: str, metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The same of one stage's metrics file; nothing unless the stage is an evaluation."""
    kind, _, branch = stage.partition("@")
    for key, value in metrics.items() if kind in EVALUATIONS else ():
        if kind != "evaluate":
            units = ("return", "score") if isinstance(value, Mapping) else ()
            yield from ((f"{branch}/{key}/{unit}", float(value[unit])) for unit in units if unit in value)
        elif key.startswith(HEADLINE):
            yield f"{branch}/{key}", float(value["mean"])
            yield from ((f"{branch}/{key}/{end}", float(value[end])) for end in ("low", "high"))


def note(
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


def _origins(
    entries: Mapping[str, Entry], experiment: str, results: Sequence[StageResult]
) -> Iterator[tuple[str, str]]:
    """Of each run that was made now: its description, with a link for each input to the run that made it."""
    makers = {path: (result, md5) for result in results for path, md5 in result.outs.items()}
    for result in results:
        if result.state != "ran" or not result.mlflow_run_id:
            continue
        lines = ["| read | hash | made by |", "|---|---|---|"]
        for path, md5 in dvc_lock.data(entries.get(result.stage, {})).items():
            within = [maker for out, maker in makers.items() if out == path or out.startswith(f"{path}/")]
            links = [
                f"[{maker.stage}](#/experiments/{experiment}/runs/{maker.mlflow_run_id})"
                for maker, made in within
                if maker.mlflow_run_id and (made == md5 or path not in makers)
            ]
            lines.append(f"| {path} | {md5[:8]} | {', '.join(dict.fromkeys(links)) or 'raw: no stage makes it'} |")
        yield result.mlflow_run_id, "\n".join(lines)[:NOTE]


def _chained(root: Path, run_id: str, results: Sequence[StageResult]) -> dict[str, str]:
    """The tags by which the run's seal covers those of its stages, and names the pipeline run before."""
    with mlflow_run_lookup.reading(root) as records:
        assert records is not None, "the run is in the database"
        seals = {
            result.stage: records.tags(result.mlflow_run_id).get(mlflow_seal.TAG, "none")
            for result in results
            if result.mlflow_run_id
        }
        before = records.sealed_before(run_id, mlflow_seal.TAG)
    seal_tags = {PREFIX + mlflow_client.tag_name("seal", stage): seal for stage, seal in seals.items()}
    return {**seal_tags, **({PREFIX + "previous": " ".join(before)} if before else {})}

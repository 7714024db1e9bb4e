"""The models that stages make, as MLflow's registered models: one a stage, one version for each content that it has
had.

A version has the stage, the path and hash of the output, the run that made it, and what was measured of it. The alias
`best` is at the version with the highest value of the metric that the report's section of params.yaml names
(`best_by`).
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from flows.engine import dvc_lock, mlflow_client, mlflow_run_lookup
from flows.engine.dvc_lock import Entry
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records.reader import RegisteredModel
from flows.engine.stage_types import StageResult

if TYPE_CHECKING:
    from mlflow import MlflowClient

REPORTS = {
    "language": "report",
    "offline": "offline_report",
    "agents": "agents_report",
}  # the section that names the metric
ONE_MEASURE = {"agents": "return"}  # what the alias goes by where the section names nothing
HEADLINE = ("strict_greedy", "strict_mean_at_", "lenient_greedy", "rubric_greedy", "reference_loss", "pair_accuracy")
NOT_IN_NAMES = re.compile(r"[^\w./ :-]")  # what MLflow takes in no name, as in 10%BC
UNITS = ("/return", "/score")
SHOWN = 30  # measures that a version's tags have at most, beside those that the alias goes by
TURNS = 5  # in which the alias is set and looked at again, where another clone sets it at once


@dataclass(frozen=True)
class Left:
    """What a run left in the workspace, which the next run may change before this is recorded.

    All of it can be written as JSON.
    """

    entries: Mapping[str, Entry]  # of dvc.lock
    metrics: Mapping[str, Any]  # stage -> the content of its file of metrics
    models: Sequence[str]  # the paths of outs that are models

    @classmethod
    def by(cls, root: Path, results: Sequence[StageResult]) -> Self:
        """As it is now, after a run with these results."""
        entries = dvc_lock.read_lock_entries(root)
        metrics = dict[str, Any]()
        for stage in dict.fromkeys([*entries, *(result.stage for result in results)]):
            with suppress(OSError, ValueError):
                metrics[stage] = json.loads((root / f"data/metrics/{stage}.json").read_text())
        return cls(
            entries, metrics, [path for result in results for path in result.outs if _is_model_folder(root / path)]
        )


def register_models(
    client: "MlflowClient", root: Path, flow: str, params: Mapping[str, Any], results: Sequence[StageResult], left: Left
) -> dict[str, str]:
    """Give every model among the results its version, and each registered model its alias; stage -> `NAME/VERSION`.

    A version that is there already only gets the measures that it lacks.
    """
    versions = dict[str, str]()
    wanted = str(_get_params_section(params, REPORTS.get(flow, "")).get("best_by", ONE_MEASURE.get(flow, "")))
    for result in results:
        if result.state in ("ran", "restored", "up-to-date") and result.mlflow_run_id:
            for path, md5 in result.outs.items():
                if path in left.models:
                    name = format_registered_model_name(flow, result.stage)
                    evaluations = _find_model_evaluations(params, result.stage, path, md5, left.entries)
                    numbers = dict(_iterate_model_metrics(left.metrics, result.stage, evaluations, wanted))
                    tags = {NOT_IN_NAMES.sub("_", key): f"{value:.6g}" for key, value in numbers.items()}
                    version = _get_or_create_model_version(
                        client, root, name, result, {"path": path, "hash": md5}, tags
                    )
                    _update_best_alias(client, root, name, wanted)
                    versions[result.stage] = f"{name}/{version}"
    return versions


def format_registered_model_name(flow: str, stage: str) -> str:
    """The registered model of a stage; MLflow takes neither a slash nor an @ in it."""
    return f"{flow}.{stage.replace('@', '.')}"


def _is_model_folder(out: Path) -> bool:
    return out.is_dir() and next(out.rglob("*.safetensors"), None) is not None


def _get_or_create_model_version(
    client: "MlflowClient",
    root: Path,
    name: str,
    result: StageResult,
    out: Mapping[str, str],
    measured: Mapping[str, str],
) -> str:
    """The number of the version with this out's hash, which is made if there is none."""
    model = _find_registered_model(root, name)
    for version in model.list_versions_with_tag(PREFIX + "hash", out["hash"]) if model else ():
        for key in measured.keys() - model.tags[version].keys() if model else ():
            mlflow_client.retry_on_unique_conflict(
                partial(client.set_model_version_tag, name, version, key, measured[key])
            )
        return version
    if model is None:
        description = f"What the stage {result.stage} makes; a version for each content that it has had."
        mlflow_client.create_model_if_absent(client, name, description)
    tags = {PREFIX + "stage": result.stage, **{PREFIX + key: value for key, value in out.items()}, **measured}
    source = f"dvc://{out['path']}?md5={out['hash']}"
    made = str(client.create_model_version(name, source, result.mlflow_run_id, tags=tags).version)
    now = _find_registered_model(root, name)
    first = next(iter(now.list_versions_with_tag(PREFIX + "hash", out["hash"])), made) if now else made
    if first != made:  # another clone has registered the same content at once: the first one stays
        client.delete_model_version(name, made)
    return first


def _find_registered_model(root: Path, name: str) -> RegisteredModel | None:
    with mlflow_run_lookup.open_records_reader(root) as records:
        return records.model(name) if records else None


def _update_best_alias(client: "MlflowClient", root: Path, name: str, wanted: str) -> None:
    """Move the alias if another version is the best now; look again after it, since another clone may move it at
    once.
    """
    sign, metric = (-1, wanted[1:]) if wanted.startswith("-") else (1, wanted)
    for _ in range(TURNS):
        model = _find_registered_model(root, name)
        by_key: dict[str, dict[str, float]] = {}
        for version, tags in model.tags.items() if model and metric else ():
            for key, value in tags.items():
                by_key.setdefault(key, {})[version] = _parse_float_or_nan(value)
        scores = _score_model_versions(by_key, metric, sign)
        if not model or not scores:
            return
        best = max(scores, key=lambda candidate: (scores[candidate], -int(candidate)))  # of equals the first
        if model.aliases.get("best") == best:
            return
        with mlflow_client.ignore_missing_resource():
            mlflow_client.retry_on_unique_conflict(partial(client.set_registered_model_alias, name, "best", best))


def _score_model_versions(by_key: Mapping[str, Mapping[str, float]], metric: str, sign: int) -> dict[str, float]:
    """Version -> its score: the metric of this name, or else the largest of those that begin or end so."""
    scores: dict[str, float] = {}
    keys = (
        [metric]
        if metric in by_key
        else [key for key in by_key if key.startswith(f"{metric}_") or key.endswith(f"/{metric}")]
    )
    for key in keys if metric else ():
        for version, value in by_key[key].items():
            if not math.isnan(value):
                scores[version] = max(scores.get(version, -math.inf), sign * value)
    return scores


def _is_metric_match(key: str, metric: str) -> bool:
    return key == metric or key.startswith(f"{metric}_") or key.endswith(f"/{metric}")


def _parse_float_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _iterate_model_metrics(
    metrics: Mapping[str, Any], stage: str, evaluations: Iterable[str], wanted: str
) -> Iterator[tuple[str, float]]:
    """The headline of the evaluations of this model, or else what its own stage measured; in any case what the alias
    goes by.
    """
    for measured_by in (*evaluations, stage):
        means = dict(_iterate_metric_means(metrics.get(measured_by)))
        if means:
            shown = [key for key in means if measured_by == stage or key.startswith(HEADLINE) or key.endswith(UNITS)]
            wanted_keys = [key for key in means if _is_metric_match(key, wanted.removeprefix("-"))]
            yield from ((key, means[key]) for key in dict.fromkeys([*shown[:SHOWN], *wanted_keys]))
            return


def _find_model_evaluations(
    params: Mapping[str, Any], stage: str, path: str, md5: str, entries: Mapping[str, Entry]
) -> Iterator[str]:
    """The evaluations that read this very model."""
    method, _, branch = stage.partition("@")
    offline, agents = (
        _get_params_section(_get_params_section(params, name), "policies")
        for name in ("offline_report", "agents_report")
    )
    evaluations = [
        f"returns@{name}" for name, entry in offline.items() if entry == {"method": method, "dataset": branch}
    ]
    for name, entry in agents.items():
        if (entry["stage"], entry["branch"]) == (method, branch):
            evaluations.append(f"agent_returns@{name}")
    for name in evaluations if branch else [f"evaluate@{stage}"]:
        if dvc_lock.get_entry_hashes(entries.get(name, {}), "deps").get(path) == md5:
            yield name


def _iterate_metric_means(content: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(content, Mapping):
        if "mean" in content and "low" in content:
            yield name, float(content["mean"])
        else:
            for key, inner in content.items():
                yield from _iterate_metric_means(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(content, int | float):
        yield name, float(content)


def _get_params_section(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of params.yaml; empty where there is none, as in a repository with other stages."""
    section = params.get(name)
    return section if isinstance(section, Mapping) else {}

"""Posttrain in Python, for notebooks: run stages and read what they made. docs/python.md shows each function once.

The repository is the one that the current folder is in. What is wrong is one of the exceptions below, whose text is one
line. torch and pandas are imported by the functions that need them.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows import running, stage_outputs
from flows.console.summary import PlainConsole, format_relative_path
from flows.engine.dvc_command import StageFailed
from flows.engine.stage_types import StageResult
from flows.params.files import ParameterError, find_root
from flows.running import WrongUseError
from tasks.common import run_environment
from tasks.common.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from flows.lineage.chain import Link
    from tasks.algorithms.language.causal_lm import PretrainedModel
    from tasks.common.tokenizers import Tokenizer

FUNCTIONS = ("compare", "evaluate", "lineage", "metrics", "model", "run", "status", "sweep", "table")
__all__ = ["DataError", "ParameterError", "StageFailed", "WrongUseError", *FUNCTIONS]
SHOWN = 5  # tables that are named where one was expected


def run(
    *targets: str,
    params: Mapping[str, object] | None = None,
    force: Sequence[str] = (),
    jobs: int | None = None,
    pool: str = "",
    wait: bool = False,
    pull: bool = False,
    quiet: bool = False,
) -> dict[str, StageResult]:
    """Bring flows or stages up to date, the language flow if none is named; the result of each stage that they need, by
    name.

    `params` are values by SECTION.KEY that are written to params.yaml first, and `force` has stages to run in any case,
    as for `posttrain run`; stages with a GPU run on the workers of the work pool `pool`, if one is named. Where people
    have judged too little (state `paused`), what does not depend on them is done and the call returns; with `wait` it
    stays until they have judged enough. With `pull` outs that dvc.lock records and that are not here come from DVC's
    remote first. Progress is printed unless `quiet`. After a failure, which raises StageFailed, what had finished is
    kept.
    """
    run_environment.prepare_environment()
    root, console = find_root(), Console(quiet=True) if quiet else PlainConsole(sys.stdout)
    settings = [f"{key}={json.dumps(value)}" for key, value in (params or {}).items()]
    results = running.run_targets(
        root, console, targets, settings, jobs=jobs, force=force, with_runs=True, pool=pool, wait=wait, pull=pull
    )
    for result in results.values():
        if result.state == "failed":
            log = f"; log: {format_relative_path(result.log, root)}" if result.log else ""
            raise StageFailed(f"{result.stage} failed: {result.reason}{log}")
    return results


def sweep(
    values: Mapping[str, Sequence[object]],
    *targets: str,
    seeds: Sequence[int] = (),
    random: int | None = None,
    metric: str = "",
    early: str = "",
    jobs: int | None = None,
    pool: str = "",
    quiet: bool = False,
) -> "pd.DataFrame":
    """Run the pipeline at every combination of these values of SECTION.KEY, as `posttrain sweep` does, and as far as
    the stages or flows named.

    One row for each point, by its number, in the order of the grid with the seeds last: the values, `run` (its run in
    MLflow), and for each metric its mean and, where it is known, its 95 % interval as METRIC/low and METRIC/high.
    Without targets the evaluations are run, and their main metrics are shown, or the one that `metric` names. `random`
    draws that many points. With `early`, a number of the trainings' curves, those that are behind by it are not trained
    to their end, and a column `behind` says why. StageFailed where a point did not get to its end; the others are kept.
    """
    import pandas as pd

    from flows import sweeping
    from flows.sweeps import axes

    run_environment.prepare_environment()
    root, console = find_root(), Console(quiet=True) if quiet else PlainConsole(sys.stdout)
    varied = [axes.Axis(key, axes.check_distinct_values(key, of)) for key, of in values.items()]
    points = axes.build_grid_points(varied, axes.parse_seeds_axis(",".join(map(str, seeds))), random)
    options = sweeping.SweepOptions(
        jobs, metric=metric, early=early, evaluations=not targets, pool=pool, began=time.monotonic()
    )
    outcome = sweeping.run_sweep_points(
        root, console, points, targets or sweeping.find_varied_flows(root, varied), options
    )
    rows = {point["number"]: _build_point_row(point, bool(early)) for point in outcome.points}
    if not outcome.good:
        raise StageFailed("sweep: some points did not get to their end; what had finished is kept")
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("point")


def _build_point_row(facts: Mapping[str, Any], early: bool) -> dict[str, object]:
    behind = {"behind": facts["behind"]} if early else {}
    row: dict[str, object] = {**facts["settings"], "run": facts["run"], **behind}
    for name, value in facts["metrics"].items():
        row[name] = value["mean"]
        row |= {f"{name}/{end}": value[end] for end in ("low", "high") if value[end] is not None}
    return row


def status(*targets: str) -> dict[str, str | None]:
    """Stage -> why it would run, None where it is up to date; of the flows or stages named, with all that they need."""
    run_environment.prepare_environment()
    parts = running.check_and_plan_targets(find_root(), targets, [])
    return {stage.name: stage.reason for _, planned in parts for stage in planned}


def metrics(stage: str) -> dict[str, Any]:
    """What a stage has measured, as its file in data/metrics has it; docs/metrics says what each number means."""
    with running.convert_errors_to_wrong_use():
        found: dict[str, Any] = json.loads(
            (find_root() / stage_outputs.get_metrics_file(find_root(), stage)).read_text()
        )
    return found


def evaluate(policy: str, quiet: bool = False) -> dict[str, Any]:
    """The metrics of a policy's evaluation, which runs first if it is out of date, with all that it needs."""
    run(f"evaluate@{policy}", quiet=quiet)
    return metrics(f"evaluate@{policy}")


def compare(first: str, second: str) -> "pd.DataFrame":
    """Two evaluated policies, problem by problem: a row for each metric that both have, as `posttrain compare FIRST
    SECOND` has it.

    The first two columns are named by the policies (means over the problems that both answered); `difference` is the
    second less the first, `low` and `high` its paired 95 % interval, by the score test where each problem is right or
    wrong, else by the bootstrap; of right and wrong also `gained`, `lost` and `p` (McNemar's test, without a
    correction).
    """
    import pandas as pd

    from tasks.comparison.evaluations import compare_metrics
    from tasks.language.reporting.differences import read_measures

    root = find_root()
    if first == second:
        raise WrongUseError(f"{first}: expected two policies")
    with running.convert_errors_to_wrong_use():
        files = [stage_outputs.list_table_files(root, f"evaluate@{name}") for name in (first, second)]
    a, b = (read_measures(next(file for file in of if file.name == "measures.parquet")) for of in files)
    both = a.index.intersection(b.index)
    if both.empty:
        raise WrongUseError(f"{first}, {second}: policies can be compared on the same problems only; these share none")
    found = pd.DataFrame.from_dict(compare_metrics(b.loc[both], a.loc[both]), orient="index")
    found = found.rename(columns={"a": first, "b": second}).drop(columns="interval")
    return found[[first, second, *found.columns.drop([first, second])]]


def table(of: str) -> "pd.DataFrame":
    """A table that a stage made: a path such as data/responses/responses.parquet, or a stage that has one table."""
    import pandas as pd

    from tasks import check
    from tasks.common import tables

    with running.convert_errors_to_wrong_use():
        found = stage_outputs.list_table_files(find_root(), of)
    if len(found) > 1:
        names = ", ".join(format_relative_path(file, find_root()) for file in found[:SHOWN])
        raise WrongUseError(
            f"{of}: expected one table, there are {len(found)}: {names}{', ...' * (len(found) > SHOWN)}"
        )
    [file] = found
    schema = check.find_table_schema(file)
    if file.suffix == ".csv":
        return pd.read_csv(file)
    return tables.read_table(schema, file) if schema else pd.read_parquet(file)


def model(of: str) -> "tuple[PretrainedModel, Tokenizer]":
    """A language model or a reward model with its tokenizer, by stage or folder, on the device that stages compute
    on.
    """
    from tasks.common import models
    from tasks.language.rewards import reward_model_files

    with running.convert_errors_to_wrong_use():
        folder = find_root() / stage_outputs.resolve_checkpoint_folder(find_root(), of)
    classifies = "ForSequenceClassification" in (folder / "config.json").read_text()
    loaded = reward_model_files.load_reward_model(folder) if classifies else models.load_model(folder)
    return loaded, models.load_tokenizer(folder)


def lineage(of: str) -> "Link":
    """Where an output comes from, by stage, path or hash: its run, parameters and code, and in `inputs` what it was
    made from.
    """
    from flows.lineage.chain import trace_lineage

    with running.convert_errors_to_wrong_use():
        return trace_lineage(find_root(), of)

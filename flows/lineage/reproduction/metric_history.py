"""The numbers that two runs of a stage logged step by step, and the first step at which they differ.

Weights that differ by a bit lead to metrics that differ a little later; the first step says whether the data, the first
update or something on the way was another.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.engine import mlflow_run_lookup
from flows.engine.records.reader import MetricValue
from flows.engine.records.sqlite_reader import LocalReader

COSTS = re.compile(r"(^|[/_])(seconds|peak_memory_megabytes)$")  # what something took is never the same twice
SYSTEM = "system/"  # processes, threads and GPUs: no results, but results depend on them
History = Mapping[
    int, Mapping[str, frozenset[float | None]]
]  # step -> metric -> its values, None for one that is no number


@dataclass(frozen=True)
class StepDifference:
    """The first step at which two runs logged other numbers.

    Step 0 has a stage's results, which are logged at its end.
    """

    step: int
    metric: str
    recorded: float | None  # None where it was not logged, or is no number
    made: float | None
    metrics: int  # how many metrics differ at this step
    steps: int  # steps that were compared in all

    @property
    def line(self) -> str:
        """For a person."""
        where = f"step {self.step} of {self.steps}" if self.step else "the results at the end"
        others = f", and {self.metrics - 1} more metrics" if self.metrics > 1 else ""
        return (
            f"the metrics first differ at {where}: {self.metric} {_format_number(self.recorded)} recorded, "
            f"{_format_number(self.made)} made{others}"
        )


def load_run_metric_history(root: Path, run_id: str) -> History:
    """What a run logged, without times and memory; nothing without a database."""
    with mlflow_run_lookup.open_records_reader(root) as records:
        return _build_metric_history(records.values(run_id)) if records else {}


def load_copy_metric_history(copy: Path) -> History:
    """What the only run of a scratch copy logged to the copy's own database."""
    with mlflow_run_lookup.open_records_reader(copy, local=True) as records:
        if not isinstance(records, LocalReader) or not (runs := records.run_ids()):
            return {}
        return _build_metric_history(records.values(runs[-1]))


def _build_metric_history(values: Iterable[MetricValue]) -> History:
    history: dict[int, dict[str, frozenset[float | None]]] = {}
    for logged in values:
        if not COSTS.search(logged.key):
            metrics = history.setdefault(logged.step, {})
            metrics[logged.key] = metrics.get(logged.key, frozenset()) | {None if logged.nan else float(logged.value)}
    return history


def find_first_metric_difference(recorded: History, made: History) -> StepDifference | None:
    """The first step at which the runs logged other numbers; None where nothing differs, or one of them logged
    nothing.
    """
    if not recorded or not made:
        return None
    steps = sorted({*recorded, *made}, key=lambda step: (step == 0, step))  # step 0 comes last: the results
    for step in steps:
        before, after = (
            {name: values for name, values in logged.get(step, {}).items() if not name.startswith(SYSTEM)}
            for logged in (recorded, made)
        )
        if names := sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
            first = names[0]
            pair = _get_first_number(before.get(first)), _get_first_number(after.get(first))
            return StepDifference(step, first, *pair, len(names), len([nonzero for nonzero in steps if nonzero]))
    return None


def find_system_metric_differences(recorded: History, made: History) -> dict[str, tuple[str, str]]:
    """How many processes, threads or GPUs a run had, where the other had another number: name -> (recorded, made)."""
    before = recorded.get(0, {})
    after = made.get(0, {})
    return {
        name.removeprefix(SYSTEM): (_format_whole_number(before[name]), _format_whole_number(after[name]))
        for name in sorted(before.keys() & after.keys())
        if name.startswith(SYSTEM) and before[name] != after[name]
    }


def _get_first_number(values: frozenset[float | None] | None) -> float | None:
    numbers = [value for value in values or () if value is not None and not math.isnan(value)]
    return numbers[0] if numbers else None


def _format_whole_number(values: frozenset[float | None]) -> str:
    return _format_number(_get_first_number(values)).removesuffix(".0")


def _format_number(value: float | None) -> str:
    return "nothing" if value is None else repr(value)

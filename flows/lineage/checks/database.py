"""MLflow's database as an audit reads it: deleted and unfinished runs too, and nothing is written."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records.reader import RecordsReader

INFINITE = 1.7976931348623157e308  # what MLflow writes for infinity


@dataclass(frozen=True)
class RunRow:
    """One run as the database has it."""

    records: RecordsReader
    id: str
    name: str
    status: str
    deleted: bool

    @cached_property
    def tags(self) -> Mapping[str, str]:
        """Its tags."""
        return self.records.tags(self.id)

    @cached_property
    def params(self) -> Mapping[str, str]:
        """Its parameters as MLflow's texts."""
        return self.records.params(self.id)

    @cached_property
    def metrics(self) -> Mapping[str, list[tuple[int, int, float]]]:
        """Metric -> step, time and value of each of its values."""
        histories: dict[str, list[tuple[int, int, float]]] = {}
        for logged in self.records.values(self.id):
            histories.setdefault(logged.key, []).append(
                (logged.step, logged.time, math.nan if logged.nan else logged.value)
            )
        return histories

    @cached_property
    def latest(self) -> Mapping[str, float]:
        """Metric -> the value that MLflow's pages show."""
        return self.records.latest(self.id)

    @cached_property
    def inputs(self) -> Mapping[str, str]:
        """Its data sets with their digests."""
        return self.records.inputs(self.id)

    def tag(self, name: str) -> str | None:
        """A tag by its name without the prefix."""
        return self.tags.get(PREFIX + name)


def find_run_row(records: RecordsReader | None, run_id: str) -> RunRow | None:
    """The run with this id, None where the table has none."""
    head = records.head(run_id) if records else None
    return RunRow(records, run_id, head.name, head.status, head.deleted) if records and head else None


def is_same_metric_number(number: float, other: float) -> bool:
    """Whether two numbers are the same, as MLflow keeps them."""
    first, second = (math.copysign(INFINITE, value) if math.isinf(value) else value for value in (number, other))
    return first == second or (math.isnan(first) and math.isnan(second))


def iterate_metric_numbers(content: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """NAME/INNER -> value of every number in a metrics file."""
    if isinstance(content, Mapping):
        for key, inner in content.items():
            yield from iterate_metric_numbers(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(content, int | float):
        yield name, float(content)


def parse_metrics_json(text: bytes) -> Any:
    """The content of a metrics file; nothing if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return {}

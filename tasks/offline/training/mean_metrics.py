"""Metrics of many gradient steps as one row: kept as tensors, since reading one a step would wait for it."""

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor


def iterate_mean_step_metrics(steps: Iterable[Mapping[str, Tensor]], every: int) -> Iterator[dict[str, float]]:
    """The means of each `every` steps' metrics (scalars, detached); an incomplete last group is a row too."""
    totals: dict[str, Tensor] = {}
    count = 0
    for metrics in steps:
        for name, value in metrics.items():
            totals[name] = totals[name] + value if name in totals else value
        count += 1
        if count == every:
            yield {name: total.item() / count for name, total in totals.items()}
            totals = {}
            count = 0
    if count:
        yield {name: total.item() / count for name, total in totals.items()}

"""Pages on suites: a static page for each, with policies, levels, subjects, extraction and all answers; and one table
of all suites.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.common import pages, plots
from tasks.common.estimates import Estimate
from tasks.extensions.suites import answer_rows, measuring, reading
from tasks.extensions.suites.results import SuiteResult, by_suite, difference

TEMPLATES = Path(__file__).parent / "templates"
TEMPERATURE = re.compile(r"_t(\d+\.\d+)$")


@dataclass(frozen=True)
class PageCell:
    """What stands in one cell of a table; all empty where there is nothing to say."""

    text: str = ""
    interval: str = ""
    mark: str = ""  # ▲ or ▼
    flips: str = ""


Cells = list[PageCell]


def write(all_results: Sequence[SuiteResult], baseline: str, out: Path) -> dict[str, Any]:
    """`out`/SUITE/suite.html for each suite, and `out`/benchmarks.html; the numbers of the table."""
    grouped = by_suite(all_results)
    for name, results in grouped.items():
        pages.write(TEMPLATES, "suite", suite_view(name, results, baseline), figures(name, results), out / name)
    view, numbers = table_view(grouped, baseline)
    pages.write(TEMPLATES, "benchmarks", view, {}, out)
    return numbers


def table_view(grouped: Mapping[str, Sequence[SuiteResult]], baseline: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table of policies by suites, with each policy's average over the suites if it was asked all of them."""
    heads = {name: _shared_headline(name, results) for name, results in grouped.items()}
    policies = list(dict.fromkeys(result.policy for results in grouped.values() for result in results))
    rows, numbers = [], dict[str, Any]()
    for policy in policies:
        policy_results = {
            name: result for name, results in grouped.items() for result in results if result.policy == policy
        }
        means = {name: result.estimate(heads[name]).mean for name, result in policy_results.items()}
        cells = [
            cell(policy_results[name].estimate(heads[name])) if name in policy_results else PageCell() for name in heads
        ]
        average = sum(means.values()) / len(means) if len(means) == len(heads) else None
        rows.append((policy, [*cells, PageCell(percent(average)) if average is not None else PageCell()]))
        numbers[policy] = {name: {"mean": mean} for name, mean in means.items()}
        if average is not None:
            numbers[policy]["average"] = average
    columns = [
        {"name": grouped[name][0].metrics["title"], "how": said(metric), "href": f"{name}/suite.html"}
        for name, metric in heads.items()
    ]
    first = next(iter(grouped))
    sentence = _headline(grouped[first][0].metrics["title"], heads[first], grouped[first], baseline)
    return {"sentence": sentence, "columns": columns, "rows": rows, "baseline": baseline}, numbers


def suite_view(name: str, results: Sequence[SuiteResult], baseline: str) -> dict[str, Any]:
    """What the page of one suite shows."""
    suite, first, head = reading.suite(name), results[0], _shared_headline(name, results)
    base = next((result for result in results if result.policy == baseline), None)
    metrics = [key for key, value in first.metrics.items() if isinstance(value, dict)]
    return {
        "title": first.metrics["title"],
        "peer": suite.peer,
        "scoring": suite.scoring,
        "extraction": suite.extraction,
        "shots": first.metrics["shots"],
        "sentence": _headline(first.metrics["title"], head, results, baseline),
        "asked": {result.policy: result.metrics["asked"] for result in results},
        "left_out": {result.policy: result.metrics["left_out"] for result in results if result.metrics["left_out"]},
        "unreadable": max(result.metrics["unreadable"] for result in results),
        "columns": [said(metric) for metric in metrics],
        "rows": [
            (
                result.policy,
                [cell(result.estimate(metric)) if metric in result.metrics else PageCell() for metric in metrics],
            )
            for result in results
        ],
        "baseline": baseline if base is not None else "",
        "changes": [_change(result, base, metrics) for result in results if base is not None and result is not base],
        "groups": [
            {"name": column, "rows": rows}
            for column in ("level", "subject")
            if (rows := _groups(results, head, column))
        ],
        "headline": said(head),
        "policies": [result.policy for result in results],
        "agreement": _agreement(results),
        "data": answer_rows.data(results, baseline),
    }


def figures(name: str, results: Sequence[SuiteResult]) -> dict[str, str]:
    """Accuracy with its interval by policy."""
    head = _shared_headline(name, results)
    values = {result.policy: result.estimate(head) for result in results}
    return {
        "accuracy": plots.categories(
            values, f"right, {said(head)}", f"accuracy-{name}", level=0.0, width=plots.SMALL, form="{:.1%}"
        )
    }


def said(metric: str) -> str:
    """A metric as a column's head: right_mean_at_8_t0.6 is `mean@8 at t 0.6`."""
    name = TEMPERATURE.sub(r" at t \1", metric.removeprefix("right_"))
    return name.replace("_at_", "@").replace("_", " ")


def percent(value: float) -> str:
    """A share in percent, to a tenth."""
    return f"{100 * value:.1f}"


def cell(estimate: Estimate) -> PageCell:
    """A mean in percent with its interval."""
    return PageCell(percent(estimate.mean), f"{percent(estimate.low)} to {percent(estimate.high)}")


def _shared_headline(name: str, results: Sequence[SuiteResult]) -> str:
    """The headline metric that all these results have."""
    common = [metric for metric in results[0].values if all(metric in result.values for result in results)]
    return measuring.headline(reading.suite(name), dict.fromkeys(map(str, common)))


def _headline(title: str, metric: str, results: Sequence[SuiteResult], baseline: str) -> str:
    """One sentence: who is best, and whether that is more than chance."""
    best = max(results, key=lambda result: (result.estimate(metric).mean, result.policy == baseline))
    value = best.estimate(metric)
    start = (
        f"{best.policy} is right on {percent(value.mean)} % of {title}'s problems ({said(metric)}; 95 % interval "
        f"{percent(value.low)} to "
        f"{percent(value.high)})"
    )
    base = next((result for result in results if result.policy == baseline), None)
    if base is None or base is best or (comparison := difference(best, base, metric)) is None:
        return f"{start}."
    change, _ = comparison
    sure = "more than chance explains" if change.low > 0 else "which chance alone may explain"
    return f"{start}, {percent(change.mean)} points above {baseline}, {sure}."


def _change(result: SuiteResult, base: SuiteResult, metrics: Sequence[str]) -> tuple[str, Cells]:
    cells = []
    for metric in metrics:
        comparison = difference(result, base, metric)
        if comparison is None:
            cells.append(PageCell())
            continue
        change, changes = comparison
        mark = "▲" if change.low > 0 else "▼" if change.high < 0 else ""
        flips = f"gained {changes.gained}, lost {changes.lost}, p {changes.p:.2g}" if changes else ""
        interval = f"{100 * change.low:+.1f} to {100 * change.high:+.1f}"
        cells.append(PageCell(f"{100 * change.mean:+.1f}", interval, mark, flips))
    return result.policy, cells


def _groups(results: Sequence[SuiteResult], metric: str, column: str) -> list[tuple[str, int, Cells]]:
    """By level or subject: its name, its number of problems, and a cell for each policy."""
    estimates_by_policy = [measuring.groups(result.asked, result.values[metric], column) for result in results]
    sizes = results[0].asked[column].value_counts()
    return [
        (
            kind,
            int(sizes[kind]),
            [cell(estimates[kind]) if kind in estimates else PageCell() for estimates in estimates_by_policy],
        )
        for kind in sorted(estimates_by_policy[0])
    ]


def _agreement(results: Sequence[SuiteResult]) -> list[tuple[str, Cells]]:
    """By method of extraction: for each policy the accuracy by it, and the share of the answers that it judges as the
    suite's own.
    """
    shares_by_policy = [measuring.agreement(result.answers) for result in results]
    return [
        (
            method,
            [
                PageCell(percent(shares[method][0]), f"agrees on {percent(shares[method][1])}")
                if method in shares
                else PageCell()
                for shares in shares_by_policy
            ],
        )
        for method in shares_by_policy[0]
    ]

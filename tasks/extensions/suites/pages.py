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
from tasks.extensions.suites.results import SuiteResult, estimate_paired_difference, group_results_by_suite

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


def write_suite_pages(all_results: Sequence[SuiteResult], baseline: str, out: Path) -> dict[str, Any]:
    """`out`/SUITE/suite.html for each suite, and `out`/benchmarks.html; the numbers of the table."""
    grouped = group_results_by_suite(all_results)
    for name, results in grouped.items():
        pages.write_report_pages(
            TEMPLATES,
            "suite",
            build_suite_context(name, results, baseline),
            render_suite_figures(name, results),
            out / name,
        )
    view, numbers = build_table_context(grouped, baseline)
    pages.write_report_pages(TEMPLATES, "benchmarks", view, {}, out)
    return numbers


def build_table_context(
    grouped: Mapping[str, Sequence[SuiteResult]], baseline: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table of policies by suites, with each policy's average over the suites if it was asked all of them."""
    heads = {name: _select_shared_headline(name, results) for name, results in grouped.items()}
    policies = list(dict.fromkeys(result.policy for results in grouped.values() for result in results))
    rows = []
    numbers = dict[str, Any]()
    for policy in policies:
        policy_results = {
            name: result for name, results in grouped.items() for result in results if result.policy == policy
        }
        means = {name: result.estimate(heads[name]).mean for name, result in policy_results.items()}
        cells = [
            build_estimate_cell(policy_results[name].estimate(heads[name])) if name in policy_results else PageCell()
            for name in heads
        ]
        average = sum(means.values()) / len(means) if len(means) == len(heads) else None
        rows.append((policy, [*cells, PageCell(format_percentage(average)) if average is not None else PageCell()]))
        numbers[policy] = {name: {"mean": mean} for name, mean in means.items()}
        if average is not None:
            numbers[policy]["average"] = average
    columns = [
        {"name": grouped[name][0].metrics["title"], "how": format_metric_name(metric), "href": f"{name}/suite.html"}
        for name, metric in heads.items()
    ]
    first = next(iter(grouped))
    sentence = _format_headline_sentence(grouped[first][0].metrics["title"], heads[first], grouped[first], baseline)
    return {"sentence": sentence, "columns": columns, "rows": rows, "baseline": baseline}, numbers


def build_suite_context(name: str, results: Sequence[SuiteResult], baseline: str) -> dict[str, Any]:
    """What the page of one suite shows."""
    suite = reading.get_suite(name)
    first = results[0]
    head = _select_shared_headline(name, results)
    base = next((result for result in results if result.policy == baseline), None)
    metrics = [key for key, value in first.metrics.items() if isinstance(value, dict)]
    return {
        "title": first.metrics["title"],
        "peer": suite.peer,
        "scoring": suite.scoring,
        "extraction": suite.extraction,
        "shots": first.metrics["shots"],
        "sentence": _format_headline_sentence(first.metrics["title"], head, results, baseline),
        "asked": {result.policy: result.metrics["asked"] for result in results},
        "left_out": {result.policy: result.metrics["left_out"] for result in results if result.metrics["left_out"]},
        "unreadable": max(result.metrics["unreadable"] for result in results),
        "columns": [format_metric_name(metric) for metric in metrics],
        "rows": [
            (
                result.policy,
                [
                    build_estimate_cell(result.estimate(metric)) if metric in result.metrics else PageCell()
                    for metric in metrics
                ],
            )
            for result in results
        ],
        "baseline": baseline if base is not None else "",
        "changes": [
            _build_change_row(result, base, metrics) for result in results if base is not None and result is not base
        ],
        "groups": [
            {"name": column, "rows": rows}
            for column in ("level", "subject")
            if (rows := _build_group_rows(results, head, column))
        ],
        "headline": format_metric_name(head),
        "policies": [result.policy for result in results],
        "agreement": _build_agreement_rows(results),
        "data": answer_rows.build_answer_data(results, baseline),
    }


def render_suite_figures(name: str, results: Sequence[SuiteResult]) -> dict[str, str]:
    """Accuracy with its interval by policy."""
    head = _select_shared_headline(name, results)
    values = {result.policy: result.estimate(head) for result in results}
    return {
        "accuracy": plots.render_category_intervals(
            values,
            f"right, {format_metric_name(head)}",
            f"accuracy-{name}",
            level=0.0,
            width=plots.SMALL,
            form="{:.1%}",
        )
    }


def format_metric_name(metric: str) -> str:
    """A metric as a column's head: right_mean_at_8_t0.6 is `mean@8 at t 0.6`."""
    name = TEMPERATURE.sub(r" at t \1", metric.removeprefix("right_"))
    return name.replace("_at_", "@").replace("_", " ")


def format_percentage(value: float) -> str:
    """A share in percent, to a tenth."""
    return f"{100 * value:.1f}"


def build_estimate_cell(estimate: Estimate) -> PageCell:
    """A mean in percent with its interval."""
    return PageCell(
        format_percentage(estimate.mean), f"{format_percentage(estimate.low)} to {format_percentage(estimate.high)}"
    )


def _select_shared_headline(name: str, results: Sequence[SuiteResult]) -> str:
    """The headline metric that all these results have."""
    common = [metric for metric in results[0].values if all(metric in result.values for result in results)]
    return measuring.select_headline_metric(reading.get_suite(name), dict.fromkeys(map(str, common)))


def _format_headline_sentence(title: str, metric: str, results: Sequence[SuiteResult], baseline: str) -> str:
    """One sentence: who is best, and whether that is more than chance."""
    best = max(results, key=lambda result: (result.estimate(metric).mean, result.policy == baseline))
    value = best.estimate(metric)
    start = (
        f"{best.policy} is right on {format_percentage(value.mean)} % of {title}'s problems "
        f"({format_metric_name(metric)}; 95 % interval "
        f"{format_percentage(value.low)} to "
        f"{format_percentage(value.high)})"
    )
    base = next((result for result in results if result.policy == baseline), None)
    if base is None or base is best or (comparison := estimate_paired_difference(best, base, metric)) is None:
        return f"{start}."
    change, _ = comparison
    sure = "more than chance explains" if change.low > 0 else "which chance alone may explain"
    return f"{start}, {format_percentage(change.mean)} points above {baseline}, {sure}."


def _build_change_row(result: SuiteResult, base: SuiteResult, metrics: Sequence[str]) -> tuple[str, Cells]:
    cells = []
    for metric in metrics:
        comparison = estimate_paired_difference(result, base, metric)
        if comparison is None:
            cells.append(PageCell())
            continue
        change, changes = comparison
        mark = "▲" if change.low > 0 else "▼" if change.high < 0 else ""
        flips = f"gained {changes.gained}, lost {changes.lost}, p {changes.p:.2g}" if changes else ""
        interval = f"{100 * change.low:+.1f} to {100 * change.high:+.1f}"
        cells.append(PageCell(f"{100 * change.mean:+.1f}", interval, mark, flips))
    return result.policy, cells


def _build_group_rows(results: Sequence[SuiteResult], metric: str, column: str) -> list[tuple[str, int, Cells]]:
    """By level or subject: its name, its number of problems, and a cell for each policy."""
    estimates_by_policy = [
        measuring.estimate_means_by_group(result.asked, result.values[metric], column) for result in results
    ]
    sizes = results[0].asked[column].value_counts()
    return [
        (
            kind,
            int(sizes[kind]),
            [
                build_estimate_cell(estimates[kind]) if kind in estimates else PageCell()
                for estimates in estimates_by_policy
            ],
        )
        for kind in sorted(estimates_by_policy[0])
    ]


def _build_agreement_rows(results: Sequence[SuiteResult]) -> list[tuple[str, Cells]]:
    """By method of extraction: for each policy the accuracy by it, and the share of the answers that it judges as the
    suite's own.
    """
    shares_by_policy = [measuring.compute_extraction_method_shares(result.answers) for result in results]
    return [
        (
            method,
            [
                PageCell(format_percentage(shares[method][0]), f"agrees on {format_percentage(shares[method][1])}")
                if method in shares
                else PageCell()
                for shares in shares_by_policy
            ],
        )
        for method in shares_by_policy[0]
    ]

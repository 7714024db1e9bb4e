"""A comparison as one self-contained page: the differences with their intervals as a plot, what changed, the answers
that flipped.

Answers are what models wrote, and names are what people typed: all text is escaped, and the page may load and run
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from flows.console import comparison as screen
from flows.console import conclusion
from flows.console.conclusion import format_confidence_interval, format_metric_difference, format_metric_value
from flows.lineage.comparison.comparing import StageChange, Ways
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.gate import RequirementVerdict
from flows.lineage.comparison.side_by_side import SideBySide
from flows.web.interval_plot import STYLE as PLOT_STYLE
from flows.web.interval_plot import IntervalLine, render_interval_plot
from flows.web.plain_page import render_html_page


def render_comparison_page(comparison: SideBySide, judged: Sequence[RequirementVerdict] = ()) -> str:
    """The page as HTML."""
    a = comparison.a
    b = comparison.b
    lead = escape(conclusion.format_comparison_conclusion((a.name, b.name), comparison.found)).replace(" %", "\u00a0%")
    body = f"""<p class="note"><b>A</b> {escape(a.about)}<br><b>B</b> {escape(b.about)}</p>
<p class="lead">{lead}</p>
{"".join(_render_verdicts(judged))}
{"".join(_render_overview_plots(comparison.found))}
<h2>What differs in how they were made</h2>
{_render_origin_differences(comparison)}
{"".join(_render_evaluation_comparison(pair) for pair in comparison.found)}
"""
    return render_html_page(f"{a.name} and {b.name} compared", body, PLOT_STYLE)


def _render_verdicts(judged: Sequence[RequirementVerdict]) -> Iterator[str]:
    for verdict, line in zip(judged, screen.format_verdict_lines(judged), strict=True):
        word, _, text = line.partition("  ")
        yield f'<p class="{"holds" if verdict.holds else "fails"}"><b>{word}</b> {escape(text)}</p>\n'


def _render_overview_plots(pairs: Sequence[Compared]) -> Iterator[str]:
    """The headline of every policy in one plot, where there are several."""
    rows = [(pair, metric) for pair in pairs if not pair.same for metric in conclusion.select_headline_metrics(pair)]
    if len(rows) < 2:
        return
    yield "<h2>At a glance</h2>\n"
    for metric in dict.fromkeys(metric for pair, metric in rows if pair.flow == "language"):
        lines = [_make_plot_line(pair.policy, metric, pair.metrics[metric]) for pair, name in rows if name == metric]
        yield f'<p class="note">{escape(metric)}, B minus A, with the paired 95 % intervals</p>\n'
        yield f"{render_interval_plot(lines)}\n"
    if lines := [
        _make_plot_line(f"{pair.policy}: {metric}", metric, pair.metrics[metric])
        for pair, metric in rows
        if pair.flow != "language"
    ]:
        yield (
            '<p class="note">Mean returns, B minus A, with 95 % intervals over seeds (of agents over seeds and '
            f"games)</p>\n{render_interval_plot(lines)}\n"
        )


def _render_origin_differences(comparison: SideBySide) -> str:
    if isinstance(comparison.made, Ways):
        lines = "".join(
            f"<li>{escape(line.strip())}</li>\n" for line in screen.format_policy_origins(comparison.made, full=True)
        )
        return f"<ul>\n{lines}</ul>"
    return _render_stage_changes(comparison.made, len(comparison.b.records))


def _render_stage_changes(changes: Sequence[StageChange], stages: int) -> str:
    """A row for each stage that differs; those that were touched through others alone say through which."""
    *_, same = screen.format_stage_changes(changes, stages, full=False)
    rows = "".join(
        f"<tr><th>{escape(stage)}</th><td>{escape(line)}</td></tr>\n"
        for stage, line in screen.format_lines_by_stage(changes, full=False).items()
    )
    table = f'<table class="stages"><tbody>\n{rows}</tbody></table>\n' if rows else ""
    code = sorted({path for change in changes for path in change.code})
    listed = (
        f"<details><summary>{len(code)} files of code differ</summary>{'<br>'.join(map(escape, code))}</details>"
        if code
        else ""
    )
    return f'{table}<p class="note">{escape(same)}.</p>{listed}'


def _render_evaluation_comparison(pair: Compared) -> str:
    heading = f"<h2>{escape(pair.policy or 'What was measured')}</h2>\n"
    if pair.fault or pair.same:
        paragraphs = "".join(f"<p>{escape(line)}.</p>\n" for line in screen.format_pair_comparison(pair, full=False))
        return heading + paragraphs
    minded = "".join(f'<p class="warning">{escape(caution)}</p>\n' for caution in pair.cautions)
    return (
        f'{heading}<p class="note">{escape(screen.format_compared_sample_counts(pair))}; differences are B minus A, '
        "those of shares in percentage points, "
        f"with paired 95 % intervals.</p>\n{minded}{''.join(_render_metric_plots(pair))}"
        f"<details><summary>all {len(pair.metrics)} "
        f"metrics</summary>{_render_metrics_table(pair)}</details>\n{''.join(_render_flipped_answers(pair))}"
    )


def _render_metric_plots(pair: Compared) -> Iterator[str]:
    """The metrics of the short table: the shares on one scale, every other one on its own."""
    names = [name for name in conclusion.select_table_metrics(pair.metrics) if "incomparable" not in pair.metrics[name]]
    shares = [name for name in names if name.startswith(conclusion.SHARES)]
    groups = [names] if pair.flow != "language" else [shares, *([name] for name in names if name not in shares)]
    for group in filter(None, groups):
        yield render_interval_plot([_make_plot_line(name, name, pair.metrics[name]) for name in group]) + "\n"


def _make_plot_line(label: str, metric: str, row: Mapping[str, Any]) -> IntervalLine:
    """A metric as a line of a plot; a share in percentage points."""
    scale, unit = (100, " points") if metric.startswith(conclusion.SHARES) else (1, "")
    low, high = (None if row[end] is None else scale * row[end] for end in ("low", "high"))
    return IntervalLine(
        label,
        f"{format_metric_difference(metric, row['difference'])}{unit} ({format_confidence_interval(metric, row)})",
        f"{format_metric_value(metric, row['a'])} → {format_metric_value(metric, row['b'])}",
        low,
        scale * row["difference"],
        high,
    )


def _render_metrics_table(pair: Compared) -> str:
    counted = any("gained" in row for row in pair.metrics.values())
    heads = ["", "A", "B", "B - A", "95 % interval", *(["gained", "lost", "p"] if counted else [])]
    rows = "".join(
        "<tr>"
        + f"<th>{escape(name)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in screen.format_metric_row(pair, name)[1:])
        + "</tr>\n"
        for name in pair.metrics
    )
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        f'<div class="wide"><table class="numbers"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'
    )


def _render_flipped_answers(pair: Compared) -> Iterator[str]:
    for way, title in (("gained", "Right in B alone"), ("lost", "Right in A alone")):
        if flips := pair.flips(way):
            count = next((row[way] for row in (pair.metrics.get("strict_greedy", {}),) if way in row), len(flips))
            more = f", the first {len(flips)}" if count > len(flips) else ""
            yield f"<h3>{title}: {count} greedy answer{'s' * (count != 1)}{more}</h3>\n"
            yield from (_render_flipped_answer(flip, way) for flip in flips)


def _render_flipped_answer(flip: Mapping[str, Any], way: str) -> str:
    verdicts = {"a": _render_right_or_wrong(way == "lost"), "b": _render_right_or_wrong(way == "gained")}
    answers = "".join(
        f'<div class="answer"><header><b>{letter.upper()}</b>{verdict}</header>'
        f"<pre>{escape(flip[letter]['answer'])}{'' if flip[letter]['ended'] else ' […]'}</pre></div>\n"
        for letter, verdict in verdicts.items()
    )
    return (
        f'<section class="flip"><p>{escape(flip["question"])}</p>\n<p class="note">{escape(flip["problem"])}, the '
        "right answer: "
        f'{escape(flip["reference"])}</p>\n<div class="answers">{answers}</div></section>\n'
    )


def _render_right_or_wrong(right: bool) -> str:
    return f'<span class="{"right" if right else "wrong"}">{"right" if right else "wrong"}</span>'

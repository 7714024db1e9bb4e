"""A sweep as one self-contained page: what came out against what was varied, the table, what sharing saved."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from flows.console.summary import format_duration
from flows.console.sweep_table import format_interval_legend, format_value_with_interval
from flows.sweeps.outcome import SettingRow, SweepCost
from flows.web import sweep_figure
from flows.web.plain_page import render_html_page

PAGE = Path("sweep.html")
STYLE = ".figure svg { width: 100%; height: auto; max-width: 60rem; }\n"


def write_sweep_page(root: Path, title: str, rows: Sequence[SettingRow], names: Sequence[str], cost: SweepCost) -> Path:
    """Write the page of the last sweep; MLflow keeps that of each."""
    file = root / PAGE
    file.write_text(render_html_page(title, "".join(_render_sweep_body(rows, names, cost)), STYLE))
    return file


def render_sweep_markdown(rows: Sequence[SettingRow], names: Sequence[str]) -> str:
    """The table in Markdown, for the sweep's run in MLflow."""
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    heads = _build_column_headings(rows, keys, names)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(_format_row_cells(row, keys, names)) + " |" for row in rows]
    return "\n".join([*lines[:60], "", format_interval_legend(rows)])


def _render_sweep_body(rows: Sequence[SettingRow], names: Sequence[str], cost: SweepCost) -> list[str]:
    if not names:
        return ["<p>No evaluation has ended at any point.</p>\n"]
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    heads = "".join(f"<th>{escape(name)}</th>" for name in _build_column_headings(rows, keys, names))
    cells = (_format_row_cells(row, keys, names) for row in rows)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in cells)
    many = any(value.seeds > 1 for row in rows for value in row.over_seeds.values())
    dots = " Small dots are single seeds." if many else ""
    saved = (
        f"The stages that ran took {format_duration(cost.ran)}; without sharing it would have been "
        f"{format_duration(cost.alone)}."
    )
    early = "".join(f'<p class="note">{escape(line)}.</p>\n' for line in cost.early)
    return [
        f'<div class="figure">{sweep_figure.render_sweep_figure(rows, names)}</div>\n',
        f'<p class="note">{escape(format_interval_legend(rows))}.{dots}</p>\n',
        '<div class="wide"><table '
        f'class="numbers"><thead><tr>{heads}</tr></thead><tbody>\n{lines}</tbody></table></div>\n',
        early,
        f'<p class="note">{saved} <code>posttrain apply POINT</code> lays the parameters of a point over '
        "params.yaml.</p>\n",
    ]


def _format_row_cells(row: SettingRow, keys: Sequence[str], names: Sequence[str]) -> list[str]:
    values = [
        format_value_with_interval(name, row.over_seeds[name]) if name in row.over_seeds else "" for name in names
    ]
    numbers = ", ".join(str(ended.point.number) for ended in row.points)
    return [*(row.settings.get(key, "") for key in keys), *values, numbers, *([row.behind] if row.behind else [])]


def _build_column_headings(rows: Sequence[SettingRow], keys: Sequence[str], names: Sequence[str]) -> list[str]:
    return [*keys, *names, "points", *(["behind"] if any(row.behind for row in rows) else [])]

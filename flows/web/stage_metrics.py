"""What each stage of a run reports of itself, as tables for the run's page.

Branches are left out: a report is about them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from flows.engine.stage_types import PlannedStage

Reported = Mapping[str, Sequence[tuple[str, str]]]  # stage -> its metrics with their values


def load_stage_metrics(root: Path, planned: Sequence[PlannedStage]) -> Reported:
    """The metrics files of the stages that are no branches and no reports, in the plan's order."""
    reported: dict[str, list[tuple[str, str]]] = {}
    for stage in planned:
        file = root / f"data/metrics/{stage.name}.json"
        if "@" not in stage.name and not stage.name.endswith("report") and file.is_file():
            reported[stage.name] = list(_iterate_metric_leaves(json.loads(file.read_text())))
    return {name: rows for name, rows in reported.items() if rows}


def render_metrics_html(reported: Reported) -> str:
    """One table a stage."""
    tables = [
        f'<section><h3>{escape(name)}</h3><table class="numbers"><tbody>\n'
        + "\n".join(f"<tr><th>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in rows)
        + "\n</tbody></table></section>"
        for name, rows in reported.items()
    ]
    joined = "\n".join(tables)
    heading = "<details><summary>What the stages report</summary>"
    return f'{heading}\n<div class="stages">\n{joined}\n</div></details>\n' if tables else ""


def render_metrics_markdown(reported: Reported) -> str:
    """One table of all stages."""
    lines = [f"| {name} | {key} | {value} |" for name, rows in reported.items() for key, value in rows]
    heading = "<details><summary>What the stages report</summary>\n\n| Stage | Metric | Value |\n|---|---|---:|\n"
    return heading + "\n".join(lines) + "\n\n</details>\n\n" if lines else ""


def _iterate_metric_leaves(metrics: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _iterate_metric_leaves(value, f"{prefix}{key} ")
        elif isinstance(value, int):
            yield prefix + key, f"{value:,}"
        elif isinstance(value, float):
            yield prefix + key, f"{value:.4g}"

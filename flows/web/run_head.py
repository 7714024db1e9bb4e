"""What a report's page says of its run above the fold: when, on what and from which commit, at what cost, and how far
draws spread.

The stage's page has a marker for each, since no out may vary with time or machine. What is put at a marker ends with a
marker of its own, so that an audit can compare the rest of the page with the stage's.
"""

import hashlib
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import PlannedStage, StageResult
from tasks.common.config import BRANCHES

DRAWS = Path("benchmarks/results/default_draws.json")
RIGHT = "strict_greedy"
EVALUATE = "evaluate@"
FILLED = re.compile(r"(<!-- posttrain:(title|draws|costs) -->).*?<!-- /posttrain:\2 -->", re.DOTALL)


def insert_marker_texts(page: str, texts: Mapping[str, str]) -> str:
    """The page with the texts at their markers; a marker without a text, or a text without a marker, is left as it
    is.
    """
    for name, text in texts.items():
        marker = f"<!-- posttrain:{name} -->"
        page = page.replace(marker, f"{marker}{text}<!-- /posttrain:{name} -->", 1) if text else page
    return page


def render_paragraphs(texts: Mapping[str, str], kind: str) -> dict[str, str]:
    """Lines as paragraphs of an HTML or a Markdown page; empty ones stay empty."""
    line = '<p class="note">{}</p>' if kind == "html" else "\n\n{}\n\n"
    return {name: line.format(escape(text, quote=False)) if text else "" for name, text in texts.items()}


def remove_marker_texts(page: str) -> str:
    """The page as `fill` was given it."""
    return FILLED.sub(r"\1", page)


def format_run_title(root: Path, report: str, results: Sequence[StageResult], params: Mapping[str, Any]) -> str:
    """Model, commit, processor and day of the run that made the report, in one line; empty where the records do not
    have it.
    """
    [run_id] = [result.mlflow_run_id for result in results if result.stage == report]
    try:
        run = mlflow_run_lookup.get_finished_run(root, run_id or "")
    except PlanError:
        return ""
    commit, dirty = (run.tags.get(mlflow_run_lookup.PREFIX + name, "") for name in ("git_commit", "git_dirty"))
    edited = f" with changes in {dirty}" if dirty not in ("", "no", "unknown") else ""
    model = [_describe_model(params["pretrained"])] if report == "report" and "pretrained" in params else []
    processor = run.tags.get(mlflow_run_lookup.PREFIX + "env.cpu", "an unknown processor")
    return " · ".join([*model, f"commit {commit[:10] or 'unknown'}{edited}", processor, f"{run.started:%Y-%m-%d}"])


def _describe_model(pretrained: Mapping[str, Any]) -> str:
    if pretrained.get("init") == "scratch":
        return f"a model of {pretrained.get('layers')} layers of width {pretrained.get('width')}, trained from scratch"
    return str(pretrained.get("hub_id" if pretrained.get("init") == "hub" else "path"))


def compute_core_seconds(
    planned: Sequence[PlannedStage], results: Sequence[StageResult], seconds: Mapping[str, float]
) -> list[tuple[str, float, float]]:
    """Of each policy that is evaluated, which is a stage or a branch of one, the core-seconds of its training alone and
    with all that it needs.

    Core-seconds are those that a stage had cores for, whether it kept them busy or not; `seconds` are by run. A stage
    whose run is not on record has none, and neither has what needs it.
    """
    runs = {result.stage: result.mlflow_run_id or "" for result in results}
    stage_costs = {
        stage.name: stage.cpu * seconds[runs[stage.name]] for stage in planned if runs.get(stage.name) in seconds
    }
    needs = {stage.name: stage.upstream for stage in planned}
    evaluated = [name.partition("@")[2] for name in needs if name.startswith(EVALUATE)]
    trained = {name.rpartition("@")[2]: name for name in needs if not name.startswith(EVALUATE)}
    rows = []
    for name in evaluated:
        every = _collect_upstream_stages(trained[name], needs) if name in trained else set()
        if every and every <= stage_costs.keys():
            rows.append((name, stage_costs[trained[name]], sum(stage_costs[other] for other in every)))
    return rows


def _collect_upstream_stages(name: str, needs: Mapping[str, Sequence[str]]) -> set[str]:
    closure = set[str]()
    waiting = [name]
    while waiting:
        stage = waiting.pop()
        if stage not in closure:
            closure.add(stage)
            waiting += needs.get(stage, ())
    return closure


def render_cost_table(rows: Sequence[tuple[str, float, float]], kind: str) -> str:
    """The table of core-seconds for an HTML or a Markdown page; empty without rows."""
    if not rows:
        return ""
    heads = ("", "core-seconds of its training", "with all that it needs")
    cells = [(escape(name), f"{training:,.0f}", f"{every:,.0f}") for name, training, every in rows]
    note = (
        "Core-seconds: the seconds of a stage times the cores that it had, from the records of the runs that "
        "made the models."
    )
    if kind == "md":
        lines = [f"| {' | '.join(row)} |" for row in (heads, ("---", "---:", "---:"), *cells)]
        return "\n\n" + "\n".join(lines) + f"\n\n{note}\n\n"
    body = "".join(f"<tr><th>{name}</th><td>{training}</td><td>{every}</td></tr>" for name, training, every in cells)
    head = "".join(f"<th>{text}</th>" for text in heads)
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide">{table}</div><p class="note">{note}</p>'


def hash_params_without_seeds(params: Mapping[str, Any], sections: Iterable[str]) -> str:
    """The SHA-256 of these sections without their seeds, in which alone draws of one experiment differ."""
    entries = params.get(BRANCHES, {})
    kept = {name: _remove_seeds(params[name]) for name in sections if name in params}
    kept |= {f"{BRANCHES}.{name}": _remove_seeds(entries[name]) for name in sections if name in entries}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


def _remove_seeds(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _remove_seeds(inner) for key, inner in value.items() if key != "seed"}
    return [_remove_seeds(inner) for inner in value] if isinstance(value, list) else value


def format_gain_spread(root: Path, params: Mapping[str, Any], sections: Sequence[str]) -> str:
    """How far each method's gain of right answers spreads over the measured draws of these params; empty where there
    are none.

    The file has `params_hash` and `draws`: of each draw, by policy, its metrics (benchmarks/draws.py).
    """
    file = root / DRAWS
    report = params.get("report", {})
    measured = json.loads(file.read_text())["result"] if file.is_file() else {}
    drawn_sections = [
        name for name in sections if name != "report"
    ]  # what the report shows changes nothing that was drawn
    if (
        not measured
        or len(measured["draws"]) < 2
        or measured["params_hash"] != hash_params_without_seeds(params, drawn_sections)
    ):
        return ""
    names = [name for name in report["policies"] if all(name in draw for draw in measured["draws"])]
    held_against = [name for name in (*report["controls"], report["baseline"]) if name in names]
    methods = names[names.index(report["baseline"]) + 1 :] if held_against else []
    clauses = []
    for name in methods:
        if name not in held_against:
            gains = [
                100 * (draw[name][RIGHT] - max(draw[other][RIGHT] for other in held_against))
                for draw in measured["draws"]
            ]
            spread = f"{min(gains):+.1f} to {max(gains):+.1f}, standard deviation {statistics.stdev(gains):.1f}"
            clauses.append(f"{name} {statistics.fmean(gains):+.1f} points on average ({spread})")
    against = "the better control" if len(held_against) > 1 else held_against[0] if held_against else ""
    count = len(measured["draws"])
    seed_drawn = "" if params.get("seed") not in range(count) else ", of which this seed is one"
    beginning = f"Over {count} measured draws of these params{seed_drawn}, against {against}: "
    return f"{beginning}{'; '.join(clauses)}." if clauses else ""


def extract_params_sections(params: str, names: Iterable[str]) -> str:
    """The text of params.yaml with these sections alone, and the values that they refer to; all of it where no section
    begins a line.
    """
    wanted = set(names)
    kept = list[str]()
    keep = False
    heading = ""
    for line in params.splitlines(keepends=True):
        if section := re.match(r"([\w-]+):(.*)", line):
            heading = line if section[1] == BRANCHES else ""
            keep = section[1] in wanted or section[2].lstrip().startswith("&")
        elif heading and (entry := re.match(r"  ([\w-]+):", line)):
            keep = entry[1] in wanted
            if keep and heading not in kept:
                kept.append(heading)
        elif line[:1] == "#":
            keep = False
        if keep:
            kept.append(line)
    return "".join(kept) or params

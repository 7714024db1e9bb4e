"""How the report was made: the part of report.html and report.md that differs from run to run.

The report stage writes deterministic pages into data/report, since nothing in an out may vary. After a run they are
copied to the repository's root, and the marker in them becomes the graph, the runs, the exact params and the versions.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from flows.engine import environment
from flows.engine.state import PlannedStage, StageResult, State
from flows.graph import Look, mermaid, svg
from flows.parameters import write
from flows.summary import WORDS, duration, tally

MARKER = "<!-- posttrain:run -->"
STAGE, PAGES = "report", Path("data/report")
COLOURS: dict[State, tuple[str, str]] = {  # fill, border
    "ran": ("#dff3e3", "#1f8a3b"),
    "restored": ("#e0ecfb", "#2a6fc9"),
    "up-to-date": ("#f1f1f1", "#888888"),
    "failed": ("#fbe0de", "#c62f26"),
    "skipped": ("#fff3d6", "#b7800d"),
}
STYLE = """
.pt-run table {border-collapse: collapse; font-size: .86em}
.pt-run th, .pt-run td {text-align: left; padding: .25em .8em .25em 0; border-bottom: 1px solid #ddd; vertical-align: top}
.pt-run td:nth-child(2), .pt-run td:nth-child(3) {white-space: nowrap}
.pt-run code {font-size: .82em; overflow-wrap: anywhere}
.pt-run pre {background: #f6f6f6; color: #111; padding: .8em; font-size: .8em; white-space: pre-wrap; overflow-wrap: anywhere}
.pt-run svg {display: block; margin: 1em auto; print-color-adjust: exact; -webkit-print-color-adjust: exact; break-inside: avoid}
.pt-run tr {break-inside: avoid}
@media print {.pt-run table {font-size: .68em}}
"""


def write_pages(root: Path, planned: Sequence[PlannedStage], results: Sequence[StageResult]) -> list[Path]:
    """If the run brought the report up to date, write report.html and report.md to the root; returns what it wrote."""
    if not any(result.stage == STAGE and result.state in ("ran", "restored", "up-to-date") for result in results):
        return []
    params = (root / "params.yaml").read_text()
    sections = {
        "report.html": _html(planned, results, params, provenance(root)),
        "report.md": _markdown(planned, results, params, provenance(root)),
    }
    written = []
    for name, section in sections.items():
        source = root / PAGES / name
        if source.is_file():
            write(root / name, source.read_text().replace(MARKER, section, 1).encode())
            written.append(root / name)
    return written


def is_old(root: Path, planned: Sequence[PlannedStage]) -> bool:
    """Whether the report in the root is missing, or older than what plain `dvc repro` has made since."""
    made, shown = root / PAGES / "report.html", root / "report.html"
    if not made.is_file() or all(stage.name != STAGE for stage in planned):
        return False
    return not shown.is_file() or shown.stat().st_mtime < made.stat().st_mtime


def provenance(root: Path) -> dict[str, str]:
    """The commit, whether files differ from it, and the versions of what computed."""
    commit, dirty = environment.code(root)
    differs = f", with uncommitted changes in {dirty}" if dirty not in ("no", "unknown") else ""
    return {"commit": commit + differs, **environment.versions()}


def _lines(result: StageResult) -> list[str]:
    """What a node of the graph says under the stage's name: how it ended, and the run that made its output."""
    run = [f"run {result.mlflow_run_id[:8]}"] if result.mlflow_run_id else []
    return [" · ".join(filter(None, (WORDS[result.state], _taken(result)))), *run]


def _taken(result: StageResult) -> str:
    return duration(result.seconds) if result.state in ("ran", "failed", "restored") else ""


def _row(result: StageResult) -> tuple[str, str, str, str, list[str]]:
    """A stage's row in the table: name, state, time, run, outs with their hashes."""
    outs = [f"{path} {digest[:12]}" for path, digest in result.outs.items()]
    return result.stage, WORDS[result.state], _taken(result), result.mlflow_run_id or "", outs


HEADINGS = ("Stage", "State", "Time", "MLflow run", "Outs and their hashes")
SAYING = (
    "Each stage is one DVC stage and one MLflow run. A stage that is up to date or restored shows the run that made its "
    "output. Arrows that follow from others are left out."
)


def _html(planned: Sequence[PlannedStage], results: Sequence[StageResult], params: str, facts: dict[str, str]) -> str:
    known = {result.stage: result for result in results}
    graph = {stage.name: stage.upstream for stage in planned}
    looks = {name: Look(_lines(known[name]), *COLOURS.get(known[name].state, COLOURS["up-to-date"])) for name in graph}
    rows = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{state}</td><td>{taken}</td><td><code>{escape(run)}</code></td>"
        f"<td>{'<br>'.join(f'<code>{escape(out)}</code>' for out in outs)}</td></tr>"
        for name, state, taken, run, outs in map(_row, results)
    )
    heads = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    versions = " · ".join(f"{escape(name)} <code>{escape(fact)}</code>" for name, fact in facts.items())
    return f"""<section class="pt-run"><style>{STYLE}</style>
<h2>How it was made</h2>
<p>{_counts(results)}. {SAYING}</p>
{svg(graph, looks)}
<table><thead><tr>{heads}</tr></thead><tbody>
{rows}
</tbody></table>
<h3>Code and versions</h3>
<p>{versions}</p>
<h3>The exact params</h3>
<pre>{escape(params)}</pre>
</section>"""


def _markdown(
    planned: Sequence[PlannedStage], results: Sequence[StageResult], params: str, facts: dict[str, str]
) -> str:
    graph = {stage.name: stage.upstream for stage in planned}
    picture = mermaid(graph, {result.stage: _lines(result) for result in results})
    rows = [
        f"| {name} | {state} | {taken} | `{run}` | {'<br>'.join(f'`{out}`' for out in outs)} |"
        for name, state, taken, run, outs in map(_row, results)
    ]
    table = "\n".join([f"| {' | '.join(HEADINGS)} |", "|---|---|---|---|---|", *rows])
    versions = "\n".join(f"- {name}: `{fact}`" for name, fact in facts.items())
    return f"""## How it was made

{_counts(results)}. {SAYING}

```mermaid
{picture}
```

{table}

### Code and versions

{versions}

### The exact params

```yaml
{params.rstrip()}
```
"""


def _counts(results: Sequence[StageResult]) -> str:
    return f"{len(results)} stages: {tally(result.state for result in results)}"

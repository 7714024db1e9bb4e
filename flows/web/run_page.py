"""How a report was made: the part of its pages that differs from run to run.

A report stage writes deterministic pages, data/<stage>/<stage>.html and .md, since an out may not vary between runs.
After a run they are copied to the repository's root, with the graph, the runs, the exact params and the versions in
place of their marker.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path
from urllib.parse import quote

from flows.console.summary import GOOD, REPORTS, WORDS, format_duration, format_state_counts
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import PlannedStage, StageResult, State
from flows.machine import files
from flows.params.files import parse_params as parsed
from flows.params.files import write_file_atomically
from flows.web import run_head, stage_metrics
from flows.web.graph_layout import Graph
from flows.web.stage_graph import Look, render_graph_svg, render_mermaid_graph
from flows.web.stage_metrics import Reported
from tasks.common import run_environment, source_code

MARKER = "<!-- posttrain:run -->"
WRITTEN = Path(".dvc/tmp/posttrain/pages.json")
COLOURS: dict[State, tuple[str, str]] = {  # fill, border
    "failed": ("#fbe0de", "#c62f26"),
    "skipped": ("#fff3d6", "#b7800d"),
    "paused": ("#fff3d6", "#b7800d"),
    "behind": ("#fff3d6", "#b7800d"),
    "ran": ("#dff3e3", "#1f8a3b"),
    "restored": ("#e0ecfb", "#2a6fc9"),
    "up-to-date": ("#f1f1f1", "#888888"),
}
DRAWN = 30  # with more stages than this, branches share a node
STYLE = """
.pt-run table {border-collapse: collapse; font-size: .86em}
.pt-run th, .pt-run td {text-align: left; padding: .25em .8em .25em 0; border-bottom: 1px solid #ddd; vertical-align: top}
.pt-run td:nth-child(-n+5) {white-space: nowrap}
.pt-run code {font-size: .82em; overflow-wrap: anywhere}
.pt-run pre {background: #f6f6f6; color: #111; padding: .8em; font-size: .8em; white-space: pre-wrap; overflow-wrap: anywhere}
.pt-run svg {display: block; margin: 1em auto; print-color-adjust: exact; -webkit-print-color-adjust: exact; break-inside: avoid}
.pt-run tr {break-inside: avoid}
@media print {.pt-run table {font-size: .68em}}
"""  # noqa: E501


@dataclass(frozen=True)
class Lineage:
    """A page of lineage that was written beside a report, and the address in it of each run that it shows."""

    page: Path
    links: Mapping[str, str]


def write_report_pages(root: Path, planned: Sequence[PlannedStage], results: Sequence[StageResult]) -> list[Path]:
    """Write to the root the pages of each report that is up to date after the run; returns their paths."""
    good = {result.stage for result in results if result.state in GOOD}
    written = []
    for report in good.intersection(REPORTS):
        needed = _select_needed_stages(planned, report)
        ended = [result for result in results if any(result.stage == stage.name for stage in needed)]
        sections = [*dict.fromkeys(stage.name.partition("@")[0] for stage in needed)]
        text = (root / "params.yaml").read_text()
        params = run_head.extract_params_sections(text, sections)
        values = parsed(text)
        lineage = _write_or_remove_lineage_page(root, report)
        costs = _load_run_costs(root, needed, ended)
        head_texts = {
            "title": run_head.format_run_title(root, report, ended, values),
            "draws": run_head.format_gain_spread(root, values, sections),
        }
        rows = run_head.compute_core_seconds(needed, ended, costs.seconds)
        for kind, section in (("html", _render_html_section), ("md", _render_markdown_section)):
            source, target = get_page_paths(root, report, kind)
            if source.is_file():
                before, marked, after = source.read_text().rpartition(MARKER)  # an earlier one is part of a quoted text
                reported = stage_metrics.load_stage_metrics(root, needed)
                box = (
                    section(needed, ended, params, collect_provenance(root), reported, lineage, costs) if marked else ""
                )
                before = run_head.insert_marker_texts(
                    before,
                    run_head.render_paragraphs(head_texts, kind) | {"costs": run_head.render_cost_table(rows, kind)},
                )
                write_file_atomically(target, f"{before}{box}{after}".encode())
                written.append(target)
        written += [lineage.page] if lineage else []
    if written:
        page_digests = {**load_page_digests(root), **{page.name: _hash_page(page) for page in written}}
        page_digests = {name: digest for name, digest in page_digests.items() if (root / name).is_file()}
        files.make_folder(root, WRITTEN.parent)
        write_file_atomically(root / WRITTEN, json.dumps(page_digests).encode())
    return written


def list_page_paths(root: Path) -> list[Path]:
    """Every page that a run may write to the root, and the note of their digests."""
    pages = [get_page_paths(root, report, kind)[1] for report in REPORTS for kind in ("html", "md")]
    return [*pages, *(get_lineage_page_path(root, report) for report in REPORTS), root / WRITTEN]


def has_outdated_pages(root: Path, planned: Sequence[PlannedStage]) -> bool:
    """Whether a report in the root is missing, was edited, or is older than the stage's pages."""
    page_digests = load_page_digests(root)
    reports = [stage.name for stage in planned if stage.name in REPORTS]
    pages = [get_page_paths(root, report, kind) for report in reports for kind in ("html", "md")]
    pages += [(get_page_paths(root, report, "html")[0], get_lineage_page_path(root, report)) for report in reports]
    pages = [(made, shown) for made, shown in pages if shown.name in page_digests or "lineage" not in shown.name]
    return any(
        made.is_file() and not _is_page_current(made, shown, page_digests.get(shown.name)) for made, shown in pages
    )


def _is_page_current(made: Path, shown: Path, digest: str | None) -> bool:
    return shown.is_file() and shown.stat().st_mtime >= made.stat().st_mtime and _hash_page(shown) == digest


def load_page_digests(root: Path) -> dict[str, str]:
    """The digests of the pages in the root as they were written, which tell an edited page from a written one."""
    try:
        return dict(json.loads((root / WRITTEN).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _hash_page(page: Path) -> str:
    return hashlib.sha256(page.read_bytes()).hexdigest()


def get_page_paths(root: Path, report: str, kind: str) -> tuple[Path, Path]:
    """The path of a report's page as the stage writes it, and that of its copy in the root."""
    return root / f"data/{report}/{report}.{kind}", root / f"{report}.{kind}"


def get_lineage_page_path(root: Path, report: str) -> Path:
    """The path of the page of a report's lineage."""
    return root / f"{report.replace('report', 'lineage')}.html"


def _write_or_remove_lineage_page(root: Path, report: str) -> Lineage | None:
    """Write the page of a report's lineage; where the records cannot be read there is none, and an older one is
    removed.
    """
    from flows.lineage.chain import trace_lineage
    from flows.lineage.document import flatten_lineage, format_page_anchor
    from flows.web import lineage_page

    page = get_lineage_page_path(root, report)
    try:
        document = flatten_lineage(trace_lineage(root, report))
        lineage_page.write_lineage_page(root, document, page)
    except PlanError:
        page.unlink(missing_ok=True)
        return None
    return Lineage(page, {run: f"{page.name}#{format_page_anchor('run', run)}" for run in document.runs})


@dataclass(frozen=True)
class Costs:
    """What the stages' outs cost when they were made, by their runs in MLflow: this run may have made none of them."""

    seconds: Mapping[str, float]  # run -> from its start to its end
    cores: Mapping[str, int]  # stage -> that it may use
    megabytes: Mapping[str, float]  # run -> the most memory that its processes had together

    def taken(self, result: StageResult) -> str:
        """How long the run took that made a stage's outs."""
        seconds = self.seconds.get(result.mlflow_run_id or "")
        return "" if seconds is None else format_duration(seconds)

    def memory(self, result: StageResult) -> str:
        """The peak memory of the run that made a stage's outs."""
        peak = self.megabytes.get(result.mlflow_run_id or "")
        return "" if peak is None else f"{peak / 1000:.1f} GB" if peak >= 1000 else f"{peak:.0f} MB"

    def sentence(self, results: Sequence[StageResult]) -> str:
        """What all of them took together; nothing where no run is known."""
        timed = [
            (result, self.seconds[run]) for result in results if (run := result.mlflow_run_id or "") in self.seconds
        ]
        if not timed:
            return ""
        work = sum(seconds * self.cores.get(result.stage, 1) for result, seconds in timed)
        some = "" if len(timed) == len(results) else f" of the {len(timed)} stages whose runs are known"
        return (
            f" Making {'all outs' if not some else 'the outs' + some} took "
            f"{format_duration(sum(seconds for _, seconds in timed))} one after another, {work / 3600:.2f} core hours."
        )


def _load_run_costs(root: Path, needed: Sequence[PlannedStage], results: Sequence[StageResult]) -> Costs:
    """The costs of the runs that made the outs; none where the records cannot be read."""
    from flows.lineage import durations

    seconds = dict[str, float]()
    megabytes = dict[str, float]()
    runs = {result.mlflow_run_id for result in results if result.mlflow_run_id}
    with suppress(PlanError):
        seconds = durations.read_run_durations(root, runs)
        megabytes = durations.read_run_peak_memory(root, runs)
    return Costs(seconds, {stage.name: stage.cpu for stage in needed}, megabytes)


def _select_needed_stages(planned: Sequence[PlannedStage], report: str) -> list[PlannedStage]:
    """The report's stage and all that it needs, in the plan's order."""
    needed = {report}
    for stage in reversed(planned):
        if stage.name in needed:
            needed.update(stage.upstream)
    return [stage for stage in planned if stage.name in needed]


def collect_provenance(root: Path) -> dict[str, str]:
    """The commit, the files that differ from it, and the versions of Python, machine and packages."""
    source = source_code.read_code_state(root)
    differs = f", with uncommitted changes in {source.dirty}" if source.dirty not in ("no", "unknown") else ""
    note = f" ({source.note})" if source.note and source.commit != "none" else ""
    return {"commit": source.commit + differs + note, **run_environment.collect_environment_facts()}


def _build_grouped_graph(
    planned: Sequence[PlannedStage], results: Sequence[StageResult]
) -> tuple[Graph, dict[str, list[StageResult]]]:
    """The graph to draw, and the results in each node: one stage, or all branches of a stage where there are many
    stages.
    """
    by_stage = {result.stage: result for result in results}
    many = len(planned) > DRAWN
    node = {stage.name: stage.name.partition("@")[0] if many else stage.name for stage in planned}
    groups: dict[str, list[StageResult]] = {}
    needs: dict[str, set[str]] = {}
    for stage in planned:
        groups.setdefault(node[stage.name], []).append(by_stage[stage.name])
        needs.setdefault(node[stage.name], set()).update(node[name] for name in stage.upstream)
    order = TopologicalSorter(needs).static_order() if many else groups
    return {name: sorted(needs[name]) for name in order}, groups


def _format_node_lines(results: Sequence[StageResult]) -> list[str]:
    """The lines under a node's name: how the stage ended and which run made its output, or a count for several
    branches.
    """
    if len(results) > 1:
        return [
            format_state_counts(result.state for result in results),
            format_duration(sum(result.seconds for result in results)),
        ]
    [result] = results
    run = [f"run {result.mlflow_run_id[:8]}"] if result.mlflow_run_id else []
    return [" · ".join(filter(None, (WORDS[result.state], _format_stage_duration(result)))), *run]


def _choose_node_style(results: Sequence[StageResult]) -> Look:
    """How a node is drawn: its colour is that of the most urgent state."""
    states = {result.state for result in results}
    colours = next((colours for state, colours in COLOURS.items() if state in states), COLOURS["up-to-date"])
    return Look(_format_node_lines(results), *colours)


def _format_stage_duration(result: StageResult) -> str:
    return format_duration(result.seconds) if result.state in ("ran", "failed", "restored") else ""


def _build_stage_row(result: StageResult, costs: Costs) -> tuple[str, str, str, str, str]:
    """A stage's row in the table: name, state, time in this run, time and peak memory of the run that made its outs."""
    return result.stage, WORDS[result.state], _format_stage_duration(result), costs.taken(result), costs.memory(result)


HEADINGS = ("Stage", "State", "This time", "When it was made", "Peak memory", "MLflow run", "Outs and their hashes")
SAYING = (
    "Each stage is one DVC stage and one MLflow run. A stage that is up to date or restored shows "
    "the run that made its "
    "output. Arrows that follow from others are left out."
)


def _render_html_section(
    planned: Sequence[PlannedStage],
    results: Sequence[StageResult],
    params: str,
    facts: dict[str, str],
    reported: Reported,
    lineage: Lineage | None,
    costs: Costs,
) -> str:
    graph, groups = _build_grouped_graph(planned, results)
    looks = {name: _choose_node_style(ended) for name, ended in groups.items()}
    rows = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{state}</td><td>{seconds}</td><td>{made}</td><td>{memory}</td>"
        f"<td>{_render_run_link(result.mlflow_run_id or '', lineage)}</td>"
        f"<td>{'<br>'.join(_render_out_link(path, digest) for path, digest in result.outs.items())}</td></tr>"
        for result in results
        for name, state, seconds, made, memory in [_build_stage_row(result, costs)]
    )
    heads = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    versions = " · ".join(f"{escape(name)} <code>{escape(fact)}</code>" for name, fact in facts.items())
    link = _format_lineage_sentence(lineage, '<a href="{0}">{0}</a>')
    return f"""<section class="pt-run"><style>{STYLE}</style>
{stage_metrics.render_metrics_html(reported)}<h2 id="made">How it was made</h2>
<p>{_format_stage_counts(results)}.{costs.sentence(results)} {SAYING}{link}</p>
<div class="wide">{render_graph_svg(graph, looks)}</div>
<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>
{rows}
</tbody></table></div>
<h3>Code and versions</h3>
<p>{versions}</p>
<details><summary>The exact params of its stages</summary>
<pre>{escape(params)}</pre></details>
</section>"""


def _render_markdown_section(
    planned: Sequence[PlannedStage],
    results: Sequence[StageResult],
    params: str,
    facts: dict[str, str],
    reported: Reported,
    lineage: Lineage | None,
    costs: Costs,
) -> str:
    graph, groups = _build_grouped_graph(planned, results)
    picture = render_mermaid_graph(graph, {name: _format_node_lines(ended) for name, ended in groups.items()})
    rows = [
        f"| {name} | {state} | {seconds} | {made} | {memory} | `{result.mlflow_run_id or ''}` | {outs} |"
        for result in results
        for name, state, seconds, made, memory in [_build_stage_row(result, costs)]
        for outs in ["<br>".join(f"`{path} {digest[:12]}`" for path, digest in result.outs.items())]
    ]
    table = "\n".join([f"| {' | '.join(HEADINGS)} |", "|---|---|---|---|---|---|---|", *rows])
    versions = "\n".join(f"- {name}: `{fact}`" for name, fact in facts.items())
    return f"""{stage_metrics.render_metrics_markdown(reported)}## How it was made

{_format_stage_counts(results)}.{costs.sentence(results)} {SAYING}{_format_lineage_sentence(lineage, "[{0}]({0})")}

```mermaid
{picture}
```

{table}

### Code and versions

{versions}

<details><summary>The exact params of its stages</summary>

```yaml
{params.rstrip()}
```

</details>
"""


def _render_out_link(path: str, digest: str) -> str:
    """An out with its hash, as a link to it beside the page."""
    return f'<a href="{escape(quote(path))}"><code>{escape(path)}</code></a> <code>{digest[:12]}</code>'


def _render_run_link(run: str, lineage: Lineage | None) -> str:
    """A run's id, as a link to its node in the lineage."""
    link = lineage.links.get(run) if lineage else None
    shown = f"<code>{escape(run)}</code>"
    return f'<a href="{escape(link)}">{shown}</a>' if link else shown


def _format_lineage_sentence(lineage: Lineage | None, link: str) -> str:
    return f" What went into each of them: {link.format(lineage.page.name)}." if lineage else ""


def _format_stage_counts(results: Sequence[StageResult]) -> str:
    return f"{len(results)} stages: {format_state_counts(result.state for result in results)}"

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

from flows.console.summary import GOOD, REPORTS, WORDS, duration, tally
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import PlannedStage, StageResult, State
from flows.machine import files
from flows.params.files import params as parsed
from flows.params.files import write
from flows.web import run_head, stage_metrics
from flows.web.graph_layout import Graph
from flows.web.stage_graph import Look, mermaid, svg
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


def write_pages(root: Path, planned: Sequence[PlannedStage], results: Sequence[StageResult]) -> list[Path]:
    """Write to the root the pages of each report that is up to date after the run; returns their paths."""
    good = {result.stage for result in results if result.state in GOOD}
    written = []
    for report in good.intersection(REPORTS):
        needed = _needed(planned, report)
        ended = [result for result in results if any(result.stage == stage.name for stage in needed)]
        sections = [*dict.fromkeys(stage.name.partition("@")[0] for stage in needed)]
        text = (root / "params.yaml").read_text()
        params, values = run_head.own_sections(text, sections), parsed(text)
        lineage, costs = _lineage(root, report), _costs(root, needed, ended)
        head_texts = {
            "title": run_head.title(root, report, ended, values),
            "draws": run_head.draws(root, values, sections),
        }
        rows = run_head.core_seconds(needed, ended, costs.seconds)
        for kind, section in (("html", _html), ("md", _markdown)):
            source, target = places(root, report, kind)
            if source.is_file():
                before, marked, after = source.read_text().rpartition(MARKER)  # an earlier one is part of a quoted text
                reported = stage_metrics.read(root, needed)
                box = section(needed, ended, params, provenance(root), reported, lineage, costs) if marked else ""
                before = run_head.fill(
                    before, run_head.paragraphs(head_texts, kind) | {"costs": run_head.costs(rows, kind)}
                )
                write(target, f"{before}{box}{after}".encode())
                written.append(target)
        written += [lineage.page] if lineage else []
    if written:
        page_digests = {**digests(root), **{page.name: _digest(page) for page in written}}
        page_digests = {name: digest for name, digest in page_digests.items() if (root / name).is_file()}
        files.make_folder(root, WRITTEN.parent)
        write(root / WRITTEN, json.dumps(page_digests).encode())
    return written


def all_places(root: Path) -> list[Path]:
    """Every page that a run may write to the root, and the note of their digests."""
    pages = [places(root, report, kind)[1] for report in REPORTS for kind in ("html", "md")]
    return [*pages, *(lineage_place(root, report) for report in REPORTS), root / WRITTEN]


def is_old(root: Path, planned: Sequence[PlannedStage]) -> bool:
    """Whether a report in the root is missing, was edited, or is older than the stage's pages."""
    page_digests = digests(root)
    reports = [stage.name for stage in planned if stage.name in REPORTS]
    pages = [places(root, report, kind) for report in reports for kind in ("html", "md")]
    pages += [(places(root, report, "html")[0], lineage_place(root, report)) for report in reports]
    pages = [(made, shown) for made, shown in pages if shown.name in page_digests or "lineage" not in shown.name]
    return any(made.is_file() and not _is_new(made, shown, page_digests.get(shown.name)) for made, shown in pages)


def _is_new(made: Path, shown: Path, digest: str | None) -> bool:
    return shown.is_file() and shown.stat().st_mtime >= made.stat().st_mtime and _digest(shown) == digest


def digests(root: Path) -> dict[str, str]:
    """The digests of the pages in the root as they were written, which tell an edited page from a written one."""
    try:
        return dict(json.loads((root / WRITTEN).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _digest(page: Path) -> str:
    return hashlib.sha256(page.read_bytes()).hexdigest()


def places(root: Path, report: str, kind: str) -> tuple[Path, Path]:
    """The path of a report's page as the stage writes it, and that of its copy in the root."""
    return root / f"data/{report}/{report}.{kind}", root / f"{report}.{kind}"


def lineage_place(root: Path, report: str) -> Path:
    """The path of the page of a report's lineage."""
    return root / f"{report.replace('report', 'lineage')}.html"


def _lineage(root: Path, report: str) -> Lineage | None:
    """Write the page of a report's lineage; where the records cannot be read there is none, and an older one is
    removed.
    """
    from flows.lineage.chain import chain
    from flows.lineage.document import anchor, flat
    from flows.web import lineage_page

    page = lineage_place(root, report)
    try:
        document = flat(chain(root, report))
        lineage_page.write_page(root, document, page)
    except PlanError:
        page.unlink(missing_ok=True)
        return None
    return Lineage(page, {run: f"{page.name}#{anchor('run', run)}" for run in document.runs})


@dataclass(frozen=True)
class Costs:
    """What the stages' outs cost when they were made, by their runs in MLflow: this run may have made none of them."""

    seconds: Mapping[str, float]  # run -> from its start to its end
    cores: Mapping[str, int]  # stage -> that it may use
    megabytes: Mapping[str, float]  # run -> the most memory that its processes had together

    def taken(self, result: StageResult) -> str:
        """How long the run took that made a stage's outs."""
        seconds = self.seconds.get(result.mlflow_run_id or "")
        return "" if seconds is None else duration(seconds)

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
            f"{duration(sum(seconds for _, seconds in timed))} one after another, {work / 3600:.2f} core hours."
        )


def _costs(root: Path, needed: Sequence[PlannedStage], results: Sequence[StageResult]) -> Costs:
    """The costs of the runs that made the outs; none where the records cannot be read."""
    from flows.lineage import durations

    seconds, megabytes = dict[str, float](), dict[str, float]()
    runs = {result.mlflow_run_id for result in results if result.mlflow_run_id}
    with suppress(PlanError):
        seconds, megabytes = durations.of_runs(root, runs), durations.memory_of_runs(root, runs)
    return Costs(seconds, {stage.name: stage.cpu for stage in needed}, megabytes)


def _needed(planned: Sequence[PlannedStage], report: str) -> list[PlannedStage]:
    """The report's stage and all that it needs, in the plan's order."""
    needed = {report}
    for stage in reversed(planned):
        if stage.name in needed:
            needed.update(stage.upstream)
    return [stage for stage in planned if stage.name in needed]


def provenance(root: Path) -> dict[str, str]:
    """The commit, the files that differ from it, and the versions of Python, machine and packages."""
    source = source_code.state(root)
    differs = f", with uncommitted changes in {source.dirty}" if source.dirty not in ("no", "unknown") else ""
    note = f" ({source.note})" if source.note and source.commit != "none" else ""
    return {"commit": source.commit + differs + note, **run_environment.versions()}


def _grouped(
    planned: Sequence[PlannedStage], results: Sequence[StageResult]
) -> tuple[Graph, dict[str, list[StageResult]]]:
    """The graph to draw, and the results in each node: one stage, or all branches of a stage where there are many
    stages.
    """
    by_stage, many = {result.stage: result for result in results}, len(planned) > DRAWN
    node = {stage.name: stage.name.partition("@")[0] if many else stage.name for stage in planned}
    groups: dict[str, list[StageResult]] = {}
    needs: dict[str, set[str]] = {}
    for stage in planned:
        groups.setdefault(node[stage.name], []).append(by_stage[stage.name])
        needs.setdefault(node[stage.name], set()).update(node[name] for name in stage.upstream)
    order = TopologicalSorter(needs).static_order() if many else groups
    return {name: sorted(needs[name]) for name in order}, groups


def _lines(results: Sequence[StageResult]) -> list[str]:
    """The lines under a node's name: how the stage ended and which run made its output, or a count for several
    branches.
    """
    if len(results) > 1:
        return [tally(result.state for result in results), duration(sum(result.seconds for result in results))]
    [result] = results
    run = [f"run {result.mlflow_run_id[:8]}"] if result.mlflow_run_id else []
    return [" · ".join(filter(None, (WORDS[result.state], _taken(result)))), *run]


def _look(results: Sequence[StageResult]) -> Look:
    """How a node is drawn: its colour is that of the most urgent state."""
    states = {result.state for result in results}
    colours = next((colours for state, colours in COLOURS.items() if state in states), COLOURS["up-to-date"])
    return Look(_lines(results), *colours)


def _taken(result: StageResult) -> str:
    return duration(result.seconds) if result.state in ("ran", "failed", "restored") else ""


def _row(result: StageResult, costs: Costs) -> tuple[str, str, str, str, str]:
    """A stage's row in the table: name, state, time in this run, time and peak memory of the run that made its outs."""
    return result.stage, WORDS[result.state], _taken(result), costs.taken(result), costs.memory(result)


HEADINGS = ("Stage", "State", "This time", "When it was made", "Peak memory", "MLflow run", "Outs and their hashes")
SAYING = (
    "Each stage is one DVC stage and one MLflow run. A stage that is up to date or restored shows "
    "the run that made its "
    "output. Arrows that follow from others are left out."
)


def _html(
    planned: Sequence[PlannedStage],
    results: Sequence[StageResult],
    params: str,
    facts: dict[str, str],
    reported: Reported,
    lineage: Lineage | None,
    costs: Costs,
) -> str:
    graph, groups = _grouped(planned, results)
    looks = {name: _look(ended) for name, ended in groups.items()}
    rows = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{state}</td><td>{seconds}</td><td>{made}</td><td>{memory}</td>"
        f"<td>{_linked(result.mlflow_run_id or '', lineage)}</td>"
        f"<td>{'<br>'.join(_out(path, digest) for path, digest in result.outs.items())}</td></tr>"
        for result in results
        for name, state, seconds, made, memory in [_row(result, costs)]
    )
    heads = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    versions = " · ".join(f"{escape(name)} <code>{escape(fact)}</code>" for name, fact in facts.items())
    return f"""<section class="pt-run"><style>{STYLE}</style>
{stage_metrics.html(reported)}<h2 id="made">How it was made</h2>
<p>{_counts(results)}.{costs.sentence(results)} {SAYING}{_sentence(lineage, '<a href="{0}">{0}</a>')}</p>
<div class="wide">{svg(graph, looks)}</div>
<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>
{rows}
</tbody></table></div>
<h3>Code and versions</h3>
<p>{versions}</p>
<details><summary>The exact params of its stages</summary>
<pre>{escape(params)}</pre></details>
</section>"""


def _markdown(
    planned: Sequence[PlannedStage],
    results: Sequence[StageResult],
    params: str,
    facts: dict[str, str],
    reported: Reported,
    lineage: Lineage | None,
    costs: Costs,
) -> str:
    graph, groups = _grouped(planned, results)
    picture = mermaid(graph, {name: _lines(ended) for name, ended in groups.items()})
    rows = [
        f"| {name} | {state} | {seconds} | {made} | {memory} | `{result.mlflow_run_id or ''}` | {outs} |"
        for result in results
        for name, state, seconds, made, memory in [_row(result, costs)]
        for outs in ["<br>".join(f"`{path} {digest[:12]}`" for path, digest in result.outs.items())]
    ]
    table = "\n".join([f"| {' | '.join(HEADINGS)} |", "|---|---|---|---|---|---|---|", *rows])
    versions = "\n".join(f"- {name}: `{fact}`" for name, fact in facts.items())
    return f"""{stage_metrics.markdown(reported)}## How it was made

{_counts(results)}.{costs.sentence(results)} {SAYING}{_sentence(lineage, "[{0}]({0})")}

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


def _out(path: str, digest: str) -> str:
    """An out with its hash, as a link to it beside the page."""
    return f'<a href="{escape(quote(path))}"><code>{escape(path)}</code></a> <code>{digest[:12]}</code>'


def _linked(run: str, lineage: Lineage | None) -> str:
    """A run's id, as a link to its node in the lineage."""
    link = lineage.links.get(run) if lineage else None
    shown = f"<code>{escape(run)}</code>"
    return f'<a href="{escape(link)}">{shown}</a>' if link else shown


def _sentence(lineage: Lineage | None, link: str) -> str:
    return f" What went into each of them: {link.format(lineage.page.name)}." if lineage else ""


def _counts(results: Sequence[StageResult]) -> str:
    return f"{len(results)} stages: {tally(result.state for result in results)}"

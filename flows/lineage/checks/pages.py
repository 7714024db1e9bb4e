"""The report pages in the repository's root: against the stage's own page, the metrics files, and the copies that
pipeline runs kept.

Outside of the run's sections a page is the stage's page to the byte. The last of them is compared with the digest of
the page as it was written, with the copies, and its tables with the metrics files.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from html import escape
from pathlib import Path

from flows.console.summary import REPORTS
from flows.engine import mlflow_run_lookup
from flows.engine.records import mlflow_artifacts
from flows.engine.stage_types import PlannedStage
from flows.lineage.checks.findings import SHORT, Audit
from flows.lineage.history import PAGE, PipelineRun
from flows.web import run_head, run_page, stage_metrics
from tasks.common import mlflow_address

CHECK = "pages"
KINDS = ("html", "md")
AROUND = 24  # letters before and after a difference that are shown
STOPPED = "pipeline run {} was stopped while it wrote its pages; `posttrain run` writes them again"
NUMBER = re.compile(r"\d")


class Pages:
    """One check of every page in the root."""

    def __init__(self, audit: Audit, root: Path, pipelines: Sequence[PipelineRun], unsealed: Collection[str]) -> None:
        self.audit = audit
        self.root = root
        self.pipelines = pipelines
        self.unsealed = unsealed
        self.digests_by_page = run_page.load_page_digests(root)

    def check(self, stages: Collection[str]) -> None:
        """Check the pages of those of the stages that are reports."""
        for report in REPORTS:
            if report in stages:
                self._check_kept_pages(report)
            for kind in KINDS if report in stages else ():
                source, page = run_page.get_page_paths(self.root, report, kind)
                if source.is_file() and page.is_file():
                    self._check_report_page(report, kind, source, page, stages)
            lineage = run_page.get_lineage_page_path(self.root, report)
            if report in stages and lineage.is_file() and lineage.name in self.digests_by_page:
                self._check_lineage_page(report, lineage)

    def _check_kept_pages(self, report: str) -> None:
        """The newest copy of each of the report's pages has the digest that its pipeline run noted under its seal."""
        pages = [run_page.get_page_paths(self.root, report, kind)[1] for kind in KINDS]
        for page in (*pages, run_page.get_lineage_page_path(self.root, report)):
            for run_id, file in list(self._collect_page_copies(page.name).items())[:1]:
                with mlflow_run_lookup.open_records_reader(self.root) as records:
                    tags = records.tags(run_id) if records else {}
                if tags.get(PAGE + page.name, _compute_file_sha256(file)) != _compute_file_sha256(file):
                    what = f"the copy of {page.name} that it keeps was edited"
                    self.audit.fault(CHECK, f"pipeline run {run_id[:SHORT]}", what, report, run_id)

    def _check_lineage_page(self, report: str, page: Path) -> None:
        """The page of the report's lineage has the digest that was noted, or a pipeline run kept it so."""
        copies = self._collect_page_copies(page.name)
        digest = _compute_file_sha256(page)
        if digest == self.digests_by_page[page.name] or any(
            _compute_file_sha256(file) == digest for file in copies.values()
        ):
            return
        if stopped := self._find_stopped_run(page, copies):
            self._add_remark(page, STOPPED.format(stopped.id[:SHORT]), report)
            return
        shown = page.read_bytes().decode(errors="replace")
        self.audit.fault(CHECK, page.name, self._format_page_edit(shown, next(iter(copies.items()), None)), report)

    def _check_report_page(self, report: str, kind: str, source: Path, page: Path, stages: Collection[str]) -> None:
        made, whole = (file.read_bytes().decode(errors="replace") for file in (source, page))
        shown = run_head.remove_marker_texts(whole)
        digest = hashlib.sha256(page.read_bytes()).hexdigest()
        as_written = self.digests_by_page.get(page.name) == digest
        copies = self._collect_page_copies(page.name)
        keeper = next((run_id for run_id, file in copies.items() if _compute_file_sha256(file) == digest), None)
        before, marked, after = made.rpartition(run_page.MARKER)
        outside = not marked or (
            shown.startswith(before) and shown.endswith(after) and len(shown) >= len(before) + len(after)
        )
        if not outside and (keeper or as_written) and page.stat().st_mtime < source.stat().st_mtime:
            self._add_remark(page, "is of an earlier run; `posttrain run` writes it again", report, keeper)
            return
        faults = list(_iterate_outside_differences(shown, before, after)) if not outside else []
        section = shown[len(before) : len(shown) - len(after)] if outside else shown
        faults += [line for line in self._iterate_table_faults(kind, section, stages) if not (keeper and as_written)]
        if not faults and not as_written and keeper is None:
            newest = next(iter(copies.items()), None)
            if stopped := self._find_stopped_run(page, copies):
                self._add_remark(page, STOPPED.format(stopped.id[:SHORT]), report)
                return
            faults += [self._format_page_edit(whole, newest)] if self.digests_by_page.get(page.name) or newest else []
            if not faults:
                self._add_remark(
                    page, "no run kept a copy or a digest of it, so that its section on the run is not checked", report
                )
        elif not faults and keeper is None and copies:
            self._add_remark(
                page, f"was written again after pipeline run {next(iter(copies))[:SHORT]} had kept its copy", report
            )
        for what in faults:
            self.audit.fault(CHECK, page.name, what, report, None)

    def _iterate_table_faults(self, kind: str, section: str, stages: Collection[str]) -> Iterator[str]:
        """What of the tables of the stages' metrics is not what their files say."""
        planned = [PlannedStage(name, None, (), 1, 0) for name in stages]
        for stage, rows in stage_metrics.load_stage_metrics(self.root, planned).items():
            heading = f"<section><h3>{escape(stage)}</h3>" if kind == "html" else f"| {stage} |"
            if heading not in section:
                continue
            of_stage = section[section.index(heading) :].partition("</section>")[0] if kind == "html" else section
            for key, value in rows:
                self.audit.counts["numbers"] += bool(NUMBER.search(value))
                if kind == "html":
                    start = f"<tr><th>{escape(key)}</th><td>"
                    end = "</td>"
                else:
                    start = f"| {stage} | {key} | "
                    end = " |"
                cell = of_stage.partition(start)[2].partition(end)[0]
                expected = escape(value) if kind == "html" else value
                if cell != expected:
                    yield f"{stage} {key} is {cell or 'missing'}, data/metrics/{stage}.json has {value}"

    def _find_stopped_run(self, page: Path, copies: Collection[str]) -> PipelineRun | None:
        """The newest pipeline run, if it kept no copy and the page may be its own."""
        newest = next(iter(self.pipelines), None)
        mine = newest is not None and newest.id not in copies and page.stat().st_mtime >= newest.started.timestamp()
        return newest if mine and newest is not None and newest.id in self.unsealed else None

    def _format_page_edit(self, shown: str, newest: tuple[str, Path] | None) -> str:
        """Where the page differs from the newest copy."""
        if newest is not None:
            run_id, file = newest
            kept = f"the copy of pipeline run {run_id[:SHORT]}"
            for line in _iterate_differing_lines(
                shown.splitlines(), file.read_bytes().decode(errors="replace").splitlines(), kept
            ):
                return f"was edited after it was written: {line}"
        return "was edited after it was written: its digest is not the one that was noted then"

    def _collect_page_copies(self, name: str) -> dict[str, Path]:
        """Run -> its copy of the page, the newest first."""
        every = mlflow_address.find_shared_address(self.root) is None  # one elsewhere is not fetched for nothing
        keepers = [run.id for run in self.pipelines if every or name in run.pages]
        files = {run_id: mlflow_artifacts.get_or_fetch_artifact_path(self.root, run_id, name) for run_id in keepers}
        return {run_id: file for run_id, file in files.items() if file.is_file()}

    def _add_remark(self, page: Path, what: str, report: str, run_id: str | None = None) -> None:
        self.audit.remark(CHECK, page.name, what, report, run_id)


def _iterate_outside_differences(shown: str, before: str, after: str) -> Iterator[str]:
    """The first line that differs from the stage's page, above the run's section or else below it."""
    above = before.split("\n")[:-1]
    lines = shown.split("\n")
    below = after.split("\n")[1:]
    ends = lines[len(lines) - len(below) :] if below else []
    offset = len(lines) - len(ends)
    for actual, expected, first in ((lines, above, 0), (ends, below, offset)):
        for line in _iterate_differing_lines(actual[: len(expected)], expected, "the stage's own page", first):
            yield line
            return
    yield "outside of the section on the run it is not the stage's own page"


def _iterate_differing_lines(
    actual: Sequence[str], expected: Sequence[str], source: str, first: int = 0
) -> Iterator[str]:
    for index in range(max(len(actual), len(expected))):
        line = actual[index] if index < len(actual) else ""
        expected_line = expected[index] if index < len(expected) else ""
        if line != expected_line:
            has = _extract_differing_part(line, expected_line)
            had = _extract_differing_part(expected_line, line)
            yield f"line {first + index + 1} has '{has}', {source} has '{had}'"


def _extract_differing_part(line: str, other: str) -> str:
    """The part of a line that differs from another, with some letters around it."""
    same = next(
        (at for at, (letter, other_letter) in enumerate(zip(line, other, strict=False)) if letter != other_letter),
        min(len(line), len(other)),
    )
    tail = next(
        (
            at
            for at, (letter, other_letter) in enumerate(zip(line[::-1], other[::-1], strict=False))
            if letter != other_letter
        ),
        0,
    )
    part = line[max(same - AROUND, 0) : max(len(line) - tail + AROUND, same)]
    return part if len(part) <= 5 * AROUND else f"{part[: 5 * AROUND]} ..."


def _compute_file_sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()

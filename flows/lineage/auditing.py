"""An audit: every link from a result back to raw data is verified, or what is wrong with it is named.

The order of the checks is that of a person: are the bytes those of the records, do the records agree with each other,
is the run in MLflow as it ended, is the code the commit's, and do the pages say what the files do.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flows.engine import dvc_lock, mlflow_run_lookup
from flows.engine.dvc_lock import Entry
from flows.engine.dvc_repository import PlanError, convert_dvc_errors_to_plan_error
from flows.engine.dvc_stage import compute_run_cache_key
from flows.lineage import chain, execution_record, history
from flows.lineage.acceptance import acceptance_runs as acceptance
from flows.lineage.chain import Link
from flows.lineage.checks import database, dvc_pipeline
from flows.lineage.checks.accepted import Accepted
from flows.lineage.checks.content_hashes import Bytes
from flows.lineage.checks.dvc_pipeline import RunCache
from flows.lineage.checks.evaluation_means import EvaluationCheck
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.md5_cache import Memory, OnProgress
from flows.lineage.checks.origins import Origins
from flows.lineage.checks.pages import Pages
from flows.lineage.checks.pipelines import Pipelines
from flows.lineage.checks.rebuilt_reports import Remade
from flows.lineage.checks.record_agreement import Records, find_likely_run
from flows.lineage.checks.runs import RunsCheck
from flows.lineage.checks.sources import CodeCheck
from flows.lineage.checks.subjects import Subject, Unfinished, load_unfinished_work
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.history import PipelineRun

NEWEST = 50  # pipeline runs among which those are looked for that a result belongs to


@dataclass(frozen=True)
class Scope:
    """What is audited."""

    subjects: Sequence[Subject]
    pipelines: Sequence[PipelineRun]


def audit_lineage(
    root: Path,
    target: str | None = None,
    everything: bool = False,
    full: bool = False,
    on_progress: OnProgress | None = None,
) -> Audit:
    """Check what dvc.lock records now; the chain behind `target` alone; or `everything` that the database has too.

    In an MLflow that is shared, that is what this clone has there, with the runs of others that its results come from.
    `full` reads all bytes, also of files that have not changed since the last audit. `on_progress` hears of the bytes
    read and to be read. PlanError where the records cannot be read at all.
    """
    began = time.monotonic()
    findings = Audit()
    root = root.absolute()
    with convert_dvc_errors_to_plan_error():
        entries = dvc_lock.read_lock_entries(root)
    link = chain.trace_lineage(root, target) if target is not None else None
    wanted = {node.stage for node in _iterate_chain_links(link) if node.stage} if link is not None else None
    pipeline = dvc_pipeline.load_dvc_pipeline(root, wanted)
    pipelines = history.load_pipeline_runs(root, None if everything else NEWEST, clone_only=True)
    left = load_unfinished_work(root, pipelines, entries)
    cache = RunCache(root)
    fits = _Fit(root, pipelines, cache)
    scope = _select_audit_scope(root, link, everything, entries, pipeline.stages, fits)
    memory = Memory(root, full)
    if not entries:
        findings.remark("record", "dvc.lock", "records nothing yet; `posttrain run` makes the first results")
    _add_unfinished_remarks(findings, left, sorted(entries.keys() - pipeline.stages) if link is None else [])
    outs = {path for entry in entries.values() for path in dvc_lock.get_entry_hashes(entry, "outs")}
    Bytes(findings, root, memory, Origins(root, entries), pipeline, left, on_progress or _ignore_progress).check(
        scope.subjects, outs
    )
    records = Records(findings, root, left, cache)
    records.check(scope.subjects)
    with mlflow_run_lookup.open_records_reader(root) as rows:
        RunsCheck(findings, root, rows, memory).check(scope.subjects)
        Accepted(findings, root, rows).check(scope.subjects, everything)
        of_pipelines = Pipelines(findings, root, rows, memory)
        of_pipelines.check(scope.pipelines, scope.subjects, everything)
    CodeCheck(findings, root, memory, left).check(scope.subjects)
    current = [subject for subject in scope.subjects if subject.current]
    _check_edited_settings(
        findings,
        root,
        left,
        current,
        {name: pipeline.edited.get(name, ()) for name in pipeline.stages - records.altered},
    )
    Pages(findings, root, pipelines, of_pipelines.unsealed).check([subject.stage for subject in current])
    EvaluationCheck(findings, root).check(current)
    Remade(findings, root, full).check(current)
    memory.save()
    findings.read = memory.read
    findings.seconds = time.monotonic() - began
    return findings


def _ignore_progress(done: int, total: int) -> None:
    """Nobody listens."""


def _select_audit_scope(
    root: Path,
    link: Link | None,
    everything: bool,
    entries: Mapping[str, Entry],
    defined: frozenset[str],
    fits: "_Fit",
) -> Scope:
    """The executions and pipeline runs to check; stages that dvc.yaml does not have any more are left out."""
    if link is not None:
        subjects = list(_iterate_chain_subjects(root, link, entries, fits))
    else:
        subjects = [
            fits.current(made)
            for stage, made in execution_record.load_current_records(root).items()
            if stage in defined
        ]
    if everything:
        run_ids = {subject.run_id for subject in subjects}
        subjects += [
            Subject(made, current=False) for made in _iterate_finished_executions(root) if made.run_id not in run_ids
        ]
        return Scope(subjects, fits.pipelines)
    made_by = {subject.run_id for subject in subjects}
    newest = {run.flow: run for run in reversed(fits.pipelines) if made_by.intersection(run.runs.values())}
    latest = {run.flow: run for run in reversed(fits.pipelines)}  # one that did not finish may name no runs
    chosen = {run.id: run for run in (*newest.values(), *(latest[flow] for flow in (newest if link else latest)))}
    return Scope(subjects, list(chosen.values()))


@dataclass(frozen=True)
class _Fit:
    """Finds the run of a result that dvc.lock records, where none fits exactly."""

    root: Path
    pipelines: Sequence[PipelineRun]
    cache: RunCache

    def current(self, made: ExecutionRecord) -> Subject:
        """The result with its run; with the one that fits best where none fits exactly."""
        run_id = made.run_id or find_likely_run(self.root, made.stage, made.entry, self.pipelines, self.cache)
        if made.run_id is None and run_id is not None:
            try:
                like = execution_record.load_run_record(self.root, run_id)
            except PlanError:  # only its files are left
                like = ExecutionRecord(made.stage, made.entry, run_id)
            made = replace(like, stage=made.stage, entry=made.entry, accepted=made.accepted)
        return Subject(made, current=True)


def _iterate_chain_links(link: Link) -> Iterator[Link]:
    """Every link of a chain, each once; a raw one too."""
    seen = set[tuple[str, str]]()
    todo = [link]
    while todo:
        node = todo.pop()
        if (node.path, node.hash) not in seen:
            seen.add((node.path, node.hash))
            todo += node.inputs
            yield node


def _iterate_chain_subjects(root: Path, link: Link, entries: Mapping[str, Entry], fits: _Fit) -> Iterator[Subject]:
    """The executions behind an output, each once."""
    seen = set[tuple[str, str | None]]()
    for node in _iterate_chain_links(link):
        if node.stage is None or (node.stage, node.run_id) in seen:
            continue
        seen.add((node.stage, node.run_id))
        made = execution_record.load_run_record(root, node.run_id) if node.run_id else None
        entry = entries.get(node.stage, {})
        current = dvc_lock.get_entry_hashes(entry, "outs").get(node.path) == node.hash
        steps = acceptance.list_acceptance_steps(root, node.stage, entry) if current else ()
        entry = steps[-1].before if steps else entry
        if current and (made is None or compute_run_cache_key(made.entry) == compute_run_cache_key(entry)):
            base = made or ExecutionRecord(node.stage, entry)
            yield fits.current(replace(base, stage=node.stage, entry=entry, accepted=steps))
        elif made is not None:
            yield Subject(made, current=False)


def _iterate_finished_executions(root: Path) -> Iterator[ExecutionRecord]:
    """Every finished run of a stage that made something."""
    with mlflow_run_lookup.open_records_reader(root) as rows:
        for run_id in rows.stage_runs() if rows else ():
            row = database.find_run_row(rows, run_id)
            if row is not None and row.status == "FINISHED" and not row.deleted and row.tag("outs"):
                yield execution_record.load_run_record(root, run_id)


def _add_unfinished_remarks(findings: Audit, left: Unfinished, undefined: Sequence[str]) -> None:
    if left.at_work:
        findings.remark("record", "posttrain run", "is at work here now; what it makes is not recorded yet")
    for stage in sorted(left.stages):
        what = "did not finish: its outs of before are set aside, and the next `posttrain run` goes on"
        findings.remark("record", stage, what)
    for stage in undefined:
        findings.remark("record", stage, "is in dvc.lock, but not in dvc.yaml any more; it is not checked")


def _check_edited_settings(
    findings: Audit, root: Path, left: Unfinished, current: Sequence[Subject], edited: Mapping[str, Sequence[str]]
) -> None:
    """params.yaml and dvc.yaml as they are now, against what the current results were made with."""
    for subject in current:
        for what in edited.get(subject.stage, ()):
            line = f"{what} since {subject.stage} ran: it is out of date"
            file_name = "dvc.yaml" if what.startswith("command") else "params.yaml"
            if (run := left.find_explaining_run(subject.made, root / file_name)) is not None:
                line = f"{line}, since the run of {run.started:%Y-%m-%d %H:%M:%S} did not finish"
                findings.remark("params", file_name, line, subject.stage, subject.run_id)
            else:
                findings.fault("params", file_name, line, subject.stage, subject.run_id)

"""The records of one execution against each other: dvc.lock, the run's record.json and DVC's run cache, and each stage
against its upstream.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows.engine import dvc_lock, mlflow_run_lookup
from flows.engine.dvc_lock import Entry, get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.mlflow_seal import RECORD
from flows.engine.records import mlflow_artifacts, provenance
from flows.lineage import execution_record
from flows.lineage.checks.dvc_pipeline import RunCache
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.lock_differences import (
    EntryDifference,
    flatten_entry_params,
    format_entry_value,
    list_entry_differences,
)
from flows.lineage.checks.subjects import Subject, Unfinished
from flows.lineage.history import PipelineRun
from tasks.common import mlflow_address

CHECK = "record"
NAMED = 5  # differences of one record that are named each


def find_likely_run(
    root: Path, stage: str, entry: Entry, pipelines: Sequence[PipelineRun], cache: RunCache
) -> str | None:
    """The run that made an entry which fits no run exactly: of those that made these outs, or were made from the same,
    the one that fits best; or else the one that the newest pipeline run names, if nothing is left of it.

    Where the run cache has this very entry, plain `dvc repro` may have made it, and a run that differs from it is
    another one.
    """
    key = compute_run_cache_key(entry)
    outs = dvc_lock.join_out_hashes(entry)
    confirmed = any(whole and dvc_lock.join_out_hashes(candidate) == outs for _, candidate, whole in cache.entries(key))
    candidates = list[str]()
    with mlflow_run_lookup.open_records_reader(root) as records:
        for tag, value in (("outs", outs), ("key", key)):
            candidates += records.list_stage_runs_with_tag(stage, PREFIX + tag, value) if records else []
    carried = [run for run in provenance.list_execution_provenance(root) if run.tags[PREFIX + "stage"] == stage]
    candidates += [
        run.run_id for run in carried if outs == run.tags.get(PREFIX + "outs") or key == run.tags.get(PREFIX + "key")
    ]
    by_fit = {
        candidate: len(list_entry_differences(run_entry, entry))
        for candidate in candidates
        if (run_entry := load_entry_of_run_record(root, candidate)) is not None
    }
    by_fit = {candidate: count for candidate, count in by_fit.items() if not (confirmed and count)}
    if by_fit:
        return min(by_fit, key=lambda run_id: by_fit[run_id])
    named = next((run.runs[stage] for run in pipelines if stage in run.runs), None)
    if named is not None and load_entry_of_run_record(root, named) is None:
        return named
    old = [] if confirmed else candidates
    return next(
        (
            run_id
            for run_id, run_entry in _iterate_leftover_records(root)
            if not list_entry_differences(run_entry, entry)
        ),
        next(iter(old), None),
    )


def _iterate_leftover_records(root: Path) -> Iterator[tuple[str, Entry]]:
    """Run and entry of every record.json, which stays where a run is deleted from the table."""
    everywhere = mlflow_artifacts.get_artifact_folder(root, "*").parent.parent
    for file in everywhere.glob(f"*/artifacts/{RECORD}") if mlflow_address.find_shared_address(root) is None else ():
        run_id = file.parent.parent.name
        if (entry := load_entry_of_run_record(root, run_id)) is not None:
            yield run_id, entry


def load_record_json_or_none(root: Path, run_id: str) -> Mapping[str, Any] | None:
    """The run's record.json, None where it has none or a torn one."""
    return execution_record.load_valid_record_json(root, run_id) or None


def load_entry_of_run_record(root: Path, run_id: str) -> Entry | None:
    """The entry of dvc.lock in the run's record.json."""
    content = load_record_json_or_none(root, run_id)
    entry: Entry | None = content["entry"] if content else None
    return entry


class Records:
    """One check of many executions; remembers whose entry in dvc.lock was found to be altered."""

    def __init__(self, audit: Audit, root: Path, unfinished: Unfinished, cache: RunCache) -> None:
        self.audit = audit
        self.root = root
        self.unfinished = unfinished
        self.cache = cache
        self.altered: set[str] = set()

    def check(self, subjects: Sequence[Subject]) -> None:
        """Compare the records of each execution, then those of the current ones along the graph."""
        for subject in subjects:
            self.audit.counts["parameters"] += len(flatten_entry_params(subject.entry))
            self._check_carried_records(subject)
            self._compare_execution_records(subject)
        self._check_upstream_agreement([subject for subject in subjects if subject.current])

    def _check_carried_records(self, subject: Subject) -> None:
        """Name each record that travels with the result and is not as it was written."""
        for entry in (subject.entry, *(step.after for step in subject.made.accepted)):
            for file in provenance.list_altered_record_files(self.root, entry):
                where = str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)
                self._add_fault(
                    subject,
                    where,
                    "this record of a run was changed after it was written: its name is the hash of other bytes",
                )

    def _compare_execution_records(self, subject: Subject) -> None:
        """Name each value that one record of the execution has differently from the others."""
        source = "dvc.lock" if subject.current else RECORD
        claims: dict[str, Entry] = {source: subject.entry}
        if subject.run_id and (entry := load_entry_of_run_record(self.root, subject.run_id)) is not None:
            claims[RECORD] = entry
        for entry in self._check_and_iterate_cache_entries(subject, list(claims.values())):
            claims.setdefault("the run cache", entry)
        if subject.run_id and len(claims) == 1:  # a run from before record.json, or one that was deleted
            with suppress(PlanError):
                if "params" in (entry := execution_record.load_run_record(self.root, subject.run_id).entry):
                    claims["the run cache"] = entry
        for other, entry in list(claims.items())[1:]:
            differing = list_entry_differences(claims[source], entry)
            for difference in differing[:NAMED]:
                self._report_difference(subject, source, difference, claims)
            if len(differing) > NAMED:
                more = f"{len(differing) - NAMED} more values differ from {other}"
                self._add_fault(subject, f"{source}: {subject.stage}", more)

    def _check_and_iterate_cache_entries(self, subject: Subject, claims: Sequence[Entry]) -> Iterator[Entry]:
        """What the run cache has for these: under one of their keys, with the outs of one of them."""
        outs = {dvc_lock.join_out_hashes(entry) for entry in claims}
        for key in dict.fromkeys(compute_run_cache_key(entry) for entry in claims):
            for file, entry, whole in self.cache.entries(key):
                if not whole:
                    where = str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)
                    self._add_fault(
                        subject, where, "this entry of the run cache is not the one that its name is the hash of"
                    )
                elif dvc_lock.join_out_hashes(entry) in outs:
                    yield entry

    def _report_difference(
        self, subject: Subject, source: str, difference: EntryDifference, claims: Mapping[str, Entry]
    ) -> None:
        """Blame the record that stands alone; where there are only two, say both."""
        holding: dict[str, list[str]] = {}
        for name, entry in claims.items():
            value = next(
                (
                    two.second
                    for two in list_entry_differences(claims[source], entry)
                    if _has_same_kind_and_name(two, difference)
                ),
                difference.first,
            )
            holding.setdefault(format_entry_value(value), []).append(name)
        alone = [names[0] for names in holding.values() if len(names) == 1] if len(claims) > 2 else [source]
        odd = alone[0] if len(alone) == 1 else source
        value = next(text for text, names in holding.items() if odd in names)
        others = "; ".join(
            f"{' and '.join(names)} {_conjugate_have(names)} {text}"
            for text, names in holding.items()
            if odd not in names
        )
        if odd == "dvc.lock":
            self.altered.add(subject.stage)
        self._add_fault(subject, f"{odd}: {subject.stage}", f"{difference.label} is {value}; {others}")

    def _check_upstream_agreement(self, current: Sequence[Subject]) -> None:
        """Each stage has read what its upstream has made, or is out of date."""
        made = {
            path: (md5, producer)
            for producer in current
            for path, md5 in get_entry_hashes(producer.entry, "outs").items()
        }
        for subject in current:
            for path, md5 in get_entry_hashes(subject.entry, "deps").items():
                now, maker = made.get(path, (md5, subject))
                if now == md5 or subject.stage in self.altered:
                    continue
                where = f"dvc.lock: {subject.stage}"
                what = f"it read {path} {md5[:8]}, and {maker.stage} has made {now[:8]}: {subject.stage} is out of date"
                if self.unfinished.find_explaining_run(subject.made):
                    self.audit.remark(
                        CHECK, where, f"{what}, since a run did not finish", subject.stage, subject.run_id
                    )
                else:
                    self._add_fault(subject, where, what)

    def _add_fault(self, subject: Subject, where: str, what: str) -> None:
        self.audit.fault(CHECK, where, what, subject.stage, subject.run_id)


def _has_same_kind_and_name(difference: EntryDifference, other: EntryDifference) -> bool:
    return (difference.kind, difference.name) == (other.kind, other.name)


def _conjugate_have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"

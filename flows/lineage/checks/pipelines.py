"""The runs of whole pipelines: their seals, the runs that they name, the chain from each to the one before it, and
their headline.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine import mlflow_seal
from flows.engine.dvc_lock import get_entry_hashes
from flows.engine.records.reader import RecordsReader
from flows.lineage import cache_objects
from flows.lineage.checks import database
from flows.lineage.checks.database import RunRow
from flows.lineage.checks.findings import SHORT, Audit
from flows.lineage.checks.md5_cache import Memory
from flows.lineage.checks.record_agreement import load_entry_of_run_record
from flows.lineage.checks.subjects import UNFINISHED, Subject, format_unfinished_run
from flows.lineage.history import EVALUATIONS, PipelineRun
from flows.lineage.pipeline_summary import iterate_stage_headline_metrics
from flows.lineage.registered_models import NOT_IN_NAMES

CHECK = "pipeline"


@dataclass
class Pipelines:
    """One check of several pipeline runs; each seal is computed once."""

    audit: Audit
    root: Path
    records: RecordsReader | None
    memory: Memory
    seals: dict[str, str] = field(default_factory=dict)
    unsealed: set[str] = field(default_factory=set)  # pipeline runs that have no seal (yet)

    def check(self, pipelines: Sequence[PipelineRun], subjects: Sequence[Subject], everything: bool) -> None:
        """Check these pipeline runs, and that those which made the executions are still there.

        Of the runs that they name, those of other stages are left out, unless it is about `everything`.
        """
        stages = None if everything else {subject.stage for subject in subjects}
        for pipeline in pipelines:
            row = database.find_run_row(self.records, pipeline.id)
            if row is None:
                continue
            self.audit.counts["runs"] += 1
            if pipeline.status in UNFINISHED:
                self.audit.remark(CHECK, f"pipeline run {pipeline.id[:SHORT]}", format_unfinished_run(pipeline))
            named = self._check_stage_run_seals(pipeline, row, subjects, stages)
            named = self._check_headline(pipeline, row) or named
            self._check_seal(pipeline, row, named)
            self._check_previous_run(pipeline, row)
        self._check_parent_runs(subjects)

    def _check_stage_run_seals(
        self, pipeline: PipelineRun, row: RunRow, subjects: Sequence[Subject], stages: set[str] | None
    ) -> bool:
        """The runs that it names are there, and have the seals that it saw."""
        subject_runs = {subject.run_id for subject in subjects}
        seal_differs = False
        for stage, run_id in pipeline.runs.items():
            if stages is not None and stage not in stages:
                continue
            of_stage = database.find_run_row(self.records, run_id)
            where = f"pipeline run {pipeline.id[:SHORT]}"
            if of_stage is None or of_stage.deleted:
                how = "from MLflow's database" if of_stage is None else "in MLflow; its pages can restore it"
                if of_stage is None or run_id not in subject_runs:
                    self.audit.fault(
                        CHECK, where, f"the run that it names for {stage} was deleted {how}", stage, run_id
                    )
                continue
            seal = row.tag(f"seal.{stage.replace('@', ':')}")
            now = of_stage.tag("seal")
            if seal not in (None, "none", now):
                what = (
                    f"the run of {stage} has another seal than when it ended: {_truncate_seal(now)}, it was "
                    f"{_truncate_seal(seal)}"
                )
                self.audit.fault(CHECK, where, what, stage, run_id)
                seal_differs = True
        return seal_differs

    def _check_headline(self, pipeline: PipelineRun, row: RunRow) -> bool:
        """Its headline is what the metrics files of its evaluations say."""
        differs = False
        for key in sorted(row.latest.keys() - row.metrics.keys()):
            what = f"MLflow's pages show metric {key} as {row.latest[key]!r}, its history has no value"
            self.audit.fault(CHECK, f"pipeline run {pipeline.id[:SHORT]}", what, None, pipeline.id)
        for stage, run_id in pipeline.runs.items():
            if stage.partition("@")[0] not in EVALUATIONS or not row.metrics:
                continue
            for key, value in self._load_stage_headline(stage, run_id):
                key = NOT_IN_NAMES.sub("_", key)
                logged = [number for _, _, number in row.metrics.get(key, ())]
                self.audit.counts["numbers"] += 1
                for kind, numbers in (
                    ("metric", logged),
                    ("latest metric", [row.latest[key]] if key in row.latest else []),
                ):
                    if numbers and not any(database.is_same_metric_number(number, value) for number in numbers):
                        what = f"{kind} {key} is {numbers[0]!r}, data/metrics/{stage}.json has {value!r}"
                        self.audit.fault(CHECK, f"pipeline run {pipeline.id[:SHORT]}", what, stage, run_id)
                        differs = True
        return differs

    def _load_stage_headline(self, stage: str, run_id: str) -> list[tuple[str, float]]:
        """What the stage's metrics file said, by its hash in the run's record; nothing where it is gone or no metrics
        file.
        """
        path = f"data/metrics/{stage}.json"
        md5 = get_entry_hashes(load_entry_of_run_record(self.root, run_id) or {}, "outs").get(path)
        for file in (cache_objects.find_cache_object(self.root, md5), self.root / path) if md5 else ():
            if file is not None and self.memory.digests([file])[file] == md5:
                with suppress(TypeError, KeyError, ValueError, AttributeError):
                    return list(iterate_stage_headline_metrics(stage, database.parse_metrics_json(file.read_bytes())))
        return []

    def _check_seal(self, pipeline: PipelineRun, row: RunRow, named: bool) -> None:
        seal = row.tag("seal")
        where = f"pipeline run {pipeline.id[:SHORT]}"
        if seal is None:
            self.unsealed.add(pipeline.id)
            if pipeline.status not in UNFINISHED:
                what = "it has no seal: it was stopped after its last stage, or is from before runs had seals"
                self.audit.remark(CHECK, where, what)
        elif seal != self._compute_seal_once(pipeline.id) and not named:
            what = "a tag, a parameter or a metric of the pipeline run was changed after it ended"
            self.audit.fault(CHECK, where, what, None, pipeline.id)

    def _check_previous_run(self, pipeline: PipelineRun, row: RunRow) -> None:
        """The pipeline run before it is there, with the seal that this one saw."""
        run_id, _, seal = (row.tag("previous") or "").partition(" ")
        if not run_id:
            return
        before = database.find_run_row(self.records, run_id)
        where = f"pipeline run {pipeline.id[:SHORT]}"
        if before is None or before.deleted:
            how = "from MLflow's database" if before is None else "in MLflow; its pages can restore it"
            what = f"the pipeline run before it, {run_id[:SHORT]}, was deleted {how}"
            self.audit.fault(CHECK, where, what, None, pipeline.id)
        elif before.tag("seal") != seal:
            what = f"the pipeline run before it, {run_id[:SHORT]}, has another seal than it had then"
            self.audit.fault(CHECK, where, what, None, pipeline.id)
        elif self._compute_seal_once(run_id) != seal:
            what = (
                f"a tag, a parameter or a metric of the pipeline run was changed after {pipeline.id[:SHORT]} "
                "had seen its seal"
            )
            self.audit.fault(CHECK, f"pipeline run {run_id[:SHORT]}", what, None, run_id)

    def _check_parent_runs(self, subjects: Sequence[Subject]) -> None:
        """The pipeline run of each execution is there."""
        parents: dict[str, list[Subject]] = {}
        for subject in subjects:
            row = database.find_run_row(self.records, subject.run_id) if subject.run_id else None
            if row is not None and (parent := row.tags.get("mlflow.parentRunId")):
                parents.setdefault(parent, []).append(subject)
        for parent, members in parents.items():
            row = database.find_run_row(self.records, parent)
            if row is None or row.deleted:
                how = "from MLflow's database" if row is None else "in MLflow; its pages can restore it"
                names = ", ".join(dict.fromkeys(member.stage for member in members[:4]))
                self.audit.fault(CHECK, f"pipeline run {parent[:SHORT]}", f"it made {names}, and was deleted {how}")

    def _compute_seal_once(self, run_id: str) -> str:
        if run_id not in self.seals:
            self.seals[run_id] = mlflow_seal.compute_run_seal(self.root, run_id)
        return self.seals[run_id]


def _truncate_seal(seal: str | None) -> str:
    return seal[:12] if seal else "none"

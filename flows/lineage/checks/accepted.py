"""What was accepted between an execution and dvc.lock: that it is as it was written down, and who vouches for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine import mlflow_seal
from flows.engine.dvc_lock import join_out_hashes
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records import provenance
from flows.engine.records.reader import RecordsReader
from flows.lineage.acceptance import acceptance_runs
from flows.lineage.acceptance.acceptance_runs import AcceptanceStep
from flows.lineage.checks import database
from flows.lineage.checks.findings import SHORT, Audit
from flows.lineage.checks.lock_differences import list_entry_differences
from flows.lineage.checks.subjects import Subject

CHECK = "accepted"
SAID = re.compile(r"\(([0-9a-f]{8})\)(?:; |$)")  # how a run's tag names an acceptance


@dataclass
class Accepted:
    """One check of the acceptances that stages came through; what several have in common is looked at once."""

    audit: Audit
    root: Path
    records: RecordsReader | None
    _sound: dict[str, bool] = field(default_factory=dict)  # acceptance -> whether its run is as it ended

    def check(self, subjects: Sequence[Subject], everything: bool = False) -> None:
        """Check each step of these; with `everything` also the acceptances that no current result comes from."""
        steps = [step for subject in subjects for step in subject.made.accepted]
        if everything:
            covered = {(step.run_id, step.stage) for step in steps}
            runs = [run_id for run_id, _ in self.records.versions(acceptance_runs.HOW, 10**6)] if self.records else []
            others = (
                step for run_id in runs for step in acceptance_runs.load_acceptance_steps(self.root, run_id).values()
            )
            steps += [step for step in others if (step.run_id, step.stage) not in covered]
        for step in steps:
            self.audit.counts["accepted changes"] += 1
            if self._check_acceptance_run(step):
                self._check_step(step)
        for subject in subjects:
            if subject.current and not subject.made.accepted:
                self._check_deleted_acceptances(subject)

    def _check_deleted_acceptances(self, subject: Subject) -> None:
        """The run that made the same outs says what was accepted since; nothing of that is gone, where the result has
        no run now.
        """
        made = (
            self.records.list_stage_runs_with_tag(subject.stage, PREFIX + "outs", join_out_hashes(subject.entry))
            if self.records
            else []
        )
        exact = (
            self.records.maker(compute_run_cache_key(subject.entry), join_out_hashes(subject.entry))
            if self.records
            else None
        )
        for run_id in made if exact is None else ():
            row = database.find_run_row(self.records, run_id)
            for short in SAID.findall(row.tags.get(mlflow_seal.LATER, "") if row else ""):
                rows = (
                    [database.find_run_row(self.records, acceptance) for acceptance in self.records.beginning(short)]
                    if self.records
                    else []
                )
                if not any(acceptance is not None and not acceptance.deleted for acceptance in rows):
                    what = (
                        f"what was accepted after run {run_id[:SHORT]} had made it, acceptance {short}, was "
                        "deleted from MLflow"
                    )
                    self.audit.fault(CHECK, f"dvc.lock: {subject.stage}", what, subject.stage, run_id)

    def _check_acceptance_run(self, step: AcceptanceStep) -> bool:
        """Whether the acceptance's run is there and as it ended."""
        if step.run_id not in self._sound:
            row = database.find_run_row(self.records, step.run_id)
            carried = provenance.find_run_provenance(self.root, step.run_id) if row is None else None
            sealed = row is not None and row.tag("seal") == mlflow_seal.compute_run_seal(self.root, step.run_id)
            if not sealed and carried is None:
                what = "a tag or record.json of this acceptance was changed after it was written"
                self._add_fault(step, what, named=False)
            how = row.tag("accepted.how") if row else carried.tags.get(acceptance_runs.HOW) if carried else None
            if (sealed or carried) and how != step.how:
                self._add_fault(step, f"its tag says {how}, its record {step.how}", named=False)
            self._sound[step.run_id] = (sealed or carried is not None) and how == step.how
        return self._sound[step.run_id]

    def _check_step(self, step: AcceptanceStep) -> None:
        if join_out_hashes(step.before) != join_out_hashes(step.after):
            self._add_fault(step, "its record has other outs after than before, and nothing was executed")
        elif step.how == acceptance_runs.PERSON:
            self._add_person_remark(step)
        elif step.how == acceptance_runs.EDIT:
            self._add_edit_remark(step)
        else:
            self._add_fault(step, f"its record says neither {acceptance_runs.EDIT} nor {acceptance_runs.PERSON}")

    def _add_person_remark(self, step: AcceptanceStep) -> None:
        changes = [
            difference
            for difference in list_entry_differences(step.before, step.after)
            if "size" not in difference.kind
        ]
        changed = ", ".join(difference.label.removeprefix("dep ") for difference in changes) or "nothing"
        when = f" on {step.when:%Y-%m-%d}" if step.when else ""
        what = f"{step.by} accepted a change of {changed}{when}: {step.why}. It is vouched for, not proven"
        self.audit.remark(CHECK, step.stage, what, None, step.run_id)

    def _add_edit_remark(self, step: AcceptanceStep) -> None:
        files = ", ".join(step.files) or "its code"
        what = f"an older version found that an edit of {files} has no effect; this is not proven again"
        self.audit.remark(CHECK, step.stage, what, None, step.run_id)

    def _add_fault(self, step: AcceptanceStep, what: str, named: bool = True) -> None:
        where = f"acceptance {step.run_id[:SHORT]}"
        self.audit.fault(CHECK, where, what, step.stage if named else None, step.run_id if named else None)

"""The reports made again from the tables that they were made of, and what `verify` has found of other results.

A report is made in seconds and has the sentences that people read. So an audit makes it again, as `verify` does, once
for each result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.console.summary import REPORTS
from flows.lineage import verdicts, verifying
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.subjects import Subject
from flows.lineage.verdicts import ReproductionVerdict
from flows.lineage.verifying import CannotReproduceError

CHECK = "verify"
DECISIVE = ("bytes", "record", "run")  # checks whose faults leave nothing to be made again from, or compared with


@dataclass(frozen=True)
class Remade:
    """One check of the current results; `full` makes reports again whatever was noted of them."""

    audit: Audit
    root: Path
    full: bool

    def check(self, subjects: Sequence[Subject]) -> None:
        """Name each result that is another when it is made again; one that is at fault already is not made again."""
        at_fault = {finding.stage for finding in self.audit.faults if finding.check in DECISIVE}
        for subject in subjects:
            if subject.run_id is None or subject.stage in at_fault:
                continue
            verdict = (
                None
                if self.full and subject.stage in REPORTS
                else verdicts.read_reproduction_verdict(self.root, subject.entry)
            )
            if verdict is None and subject.stage in REPORTS:
                verdict = self._remake_report(subject)
            if verdict is not None and not verdict.equal:
                self._report_difference(subject, verdict)

    def _remake_report(self, subject: Subject) -> ReproductionVerdict | None:
        try:
            verifying.verify_execution(self.root, subject.made, _ignore_progress, _ignore_progress, outs_only=True)
        except CannotReproduceError as error:
            self.audit.remark(CHECK, subject.stage, f"cannot be made again: {error}", None, subject.run_id)
        return verdicts.read_reproduction_verdict(self.root, subject.entry)

    def _report_difference(self, subject: Subject, verdict: ReproductionVerdict) -> None:
        what = f"made again from what {subject.stage} read, it differs: {verdict.what}"
        if verdict.environment:
            what = (
                f"{what}; {', '.join(verdict.environment)} {'is' if len(verdict.environment) == 1 else 'are'} "
                "not as on record"
            )
            self.audit.remark(CHECK, verdict.path, what, subject.stage, subject.run_id)
        else:
            self.audit.fault(CHECK, verdict.path, what, subject.stage, subject.run_id)


def _ignore_progress(*progress: object) -> None:
    """The progress of the command is not shown."""

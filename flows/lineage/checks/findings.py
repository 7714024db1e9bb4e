"""What an audit says: faults and remarks, each one line, and how much was looked at."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

WHERE_ANY = ("accepted changes",)  # told only where there are any
COUNTED = ("outs", "files", "runs", "parameters", "code files", "numbers")
SHORT = 8  # letters of a run's id


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it was recorded, or that cannot be checked.

    A fault contradicts the records. A remark does not: something was collected, made elsewhere, or never finished.
    """

    kind: Literal["fault", "remark"]
    check: str  # bytes, record, run, pipeline, code, params or pages
    where: str  # the path, the entry or the run
    what: str  # what is there, and what was expected
    stage: str | None = None  # who made or recorded it
    run_id: str | None = None

    @property
    def line(self) -> str:
        """The finding for a person: where, what, and whose it is."""
        run = f"run {self.run_id[:SHORT]}" if self.run_id else None
        who = ", ".join(filter(None, (self.stage, run)))
        text = " ".join(f"{self.where}: {self.what}{f' ({who})' if who else ''}".split())
        return "".join(letter if letter.isprintable() else "?" for letter in text)


@dataclass
class Audit:
    """All findings of one audit, in the order of the checks, and the counts of what was checked."""

    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    read: int = 0  # bytes that were hashed now; the others were known by size and time

    def fault(self, check: str, where: str, what: str, stage: str | None = None, run_id: str | None = None) -> None:
        """Note what contradicts the records."""
        self._add_finding_once(Finding("fault", check, where, what, stage, run_id))

    def remark(self, check: str, where: str, what: str, stage: str | None = None, run_id: str | None = None) -> None:
        """Note what cannot be checked, or did not finish."""
        self._add_finding_once(Finding("remark", check, where, what, stage, run_id))

    def _add_finding_once(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    @property
    def faults(self) -> list[Finding]:
        """What contradicts the records."""
        return [finding for finding in self.findings if finding.kind == "fault"]

    @property
    def remarks(self) -> list[Finding]:
        """The rest."""
        return [finding for finding in self.findings if finding.kind == "remark"]

    def build_audit_document(self) -> Mapping[str, Any]:
        """The audit as plain data."""
        return {
            "clean": not self.faults,
            "faults": [{**asdict(finding), "line": finding.line} for finding in self.faults],
            "remarks": [{**asdict(finding), "line": finding.line} for finding in self.remarks],
            "checked": {name: self.counts[name] for name in (*COUNTED, *WHERE_ANY)},
            "bytes_read": self.read,
            "seconds": round(self.seconds, 3),
        }

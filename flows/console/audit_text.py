"""What an audit found, in the terminal: faults first, then what cannot be checked or did not finish, and what was
checked.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.text import Text

from flows.lineage.checks.findings import COUNTED, WHERE_ANY, Audit, Finding
from flows.lineage.checks.md5_cache import OnProgress

MOST = 12  # remarks of one kind that are shown one by one
LARGE = 2**28  # bytes to read from which on a bar is shown


def print_audit(console: Console, audit: Audit) -> None:
    """Print every fault, the remarks, and one line on what was checked."""
    for finding in audit.faults:
        console.print(Text.assemble(("fault   ", "bold red"), finding.line))
    for line in _format_remark_lines(audit.remarks):
        console.print(Text.assemble(("remark  ", "yellow"), line))
    console.print(format_audit_summary(audit), style="bold red" if audit.faults else "green", markup=False)


def format_audit_summary(audit: Audit) -> str:
    """What was checked and in what time: `no faults: 47 outs, 210 files, ... checked in 1.2 s (34 MB read)`."""
    faults = len(audit.faults)
    remarks = len(audit.remarks)
    totals = [f"{faults} fault{'s' * (faults != 1)}" if faults else "no faults"]
    totals += [f"{remarks} remark{'s' * (remarks != 1)}"] if remarks else []
    counted = [*COUNTED, *(name for name in WHERE_ANY if audit.counts[name])]
    counts = ", ".join(f"{audit.counts[name]:,} {name}" for name in counted)
    return f"{', '.join(totals)}: {counts} checked in {audit.seconds:.1f} s ({_format_bytes(audit.read)} read)"


@contextmanager
def open_progress_bar() -> Iterator[OnProgress]:
    """A bar on standard error for the bytes that are read, where they are many and a person watches."""
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading", visible=False)

        def told(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=total > LARGE)

        yield told


def _format_remark_lines(remarks: Sequence[Finding]) -> Iterator[str]:
    """The lines of the remarks; of many from one check the first, and how many more there are."""
    by_check: dict[str, list[Finding]] = {}
    for finding in remarks:
        by_check.setdefault(finding.check, []).append(finding)
    for check, findings in by_check.items():
        shown = findings if len(findings) <= MOST else findings[: MOST - 1]
        yield from (finding.line for finding in shown)
        if len(findings) > len(shown):
            yield f"{check}: {len(findings) - len(shown)} more remarks; --json has them all"


def _format_bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"

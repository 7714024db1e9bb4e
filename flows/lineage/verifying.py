"""Makes what a stage once made again, from its recorded inputs in a scratch copy, and says whether it is equal to the
bit.

Nothing of the repository changes: the command runs elsewhere, with a database of its own, and without checkpoints to go
on from.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from flows.engine.dvc_command import Progress
from flows.engine.dvc_lock import get_entry_hashes, is_code_path
from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_run_lookup import Index
from flows.lineage import execution_record, target, verdicts
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.reproduction import command, metric_history, output_differences, scratch_copy
from flows.lineage.reproduction.digests import Files
from flows.lineage.reproduction.metric_history import StepDifference
from flows.lineage.reproduction.output_differences import FileDifference
from flows.lineage.reproduction.scratch_copy import CannotReproduceError
from flows.lineage.verdicts import ReproductionVerdict
from tasks.common import run_environment

Say = Callable[[str], None]


@dataclass
class Verification:
    """What came of making a stage's outs again."""

    record: ExecutionRecord
    notes: list[str] = field(default_factory=list)  # what was not taken from where the record says
    inputs: Mapping[str, Files] = field(default_factory=dict)  # dep -> its files
    made: Mapping[str, Files] = field(default_factory=dict)  # out -> the files that were made now
    differences: list[FileDifference] = field(default_factory=list)
    step: StepDifference | None = None
    environment: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # what differs: recorded, here
    laid_out: float = 0.0  # seconds before the command started
    ran: float = 0.0  # seconds of the command
    seconds: float = 0.0  # of all
    copy: Path | None = None  # where the scratch copy is, if it was kept

    @property
    def verdict(self) -> Literal["equal", "differs"]:
        """Whether every byte of every out is as it was recorded, and every number that was logged."""
        return "differs" if self.differences or self.step else "equal"


def resolve_execution_record(root: Path, text: str) -> ExecutionRecord:
    """The record of the execution that made what `text` names; PlanError where no stage makes it."""
    named = target.resolve_lineage_target(root, text)
    if named.run_id is not None:
        return execution_record.load_run_record(root, named.run_id)
    if named.stage is None:
        raise PlanError(f"{named.path}: raw data: no stage makes it, so there is nothing to verify")
    recorded = execution_record.load_current_records(root)[named.stage]
    return recorded if recorded.run_id else _attach_equivalent_run(root, recorded)


def _attach_equivalent_run(root: Path, recorded: ExecutionRecord) -> ExecutionRecord:
    """For an entry of dvc.lock without a run of its own: the run that made the same outs, of which the commit and
    numbers are known.
    """
    outs = get_entry_hashes(recorded.entry, "outs")
    for run_id in Index(root).makers(next(iter(outs.values()), "")):
        made = execution_record.load_run_record(root, run_id)
        if made.stage == recorded.stage and get_entry_hashes(made.entry, "outs") == outs:
            return replace(made, entry=recorded.entry)
    return recorded


def _list_record_contradictions(root: Path, execution: ExecutionRecord) -> list[str]:
    """Whether the run says that it had another command, other inputs or parameters than the entry that is to be
    verified.
    """
    if execution.run_id is None:
        return []
    run_entry = execution_record.load_run_record(root, execution.run_id).entry
    entry_deps, run_deps = (
        get_entry_hashes(execution.entry, "deps"),
        get_entry_hashes(run_entry, "deps"),
    )  # of an old run only some deps may be known
    other = {
        "another command": run_entry.get("cmd") and run_entry["cmd"] != execution.entry.get("cmd"),
        "other inputs": any(entry_deps[path] != run_deps[path] for path in {*entry_deps} & {*run_deps}),
        "other parameters": "params" in run_entry and run_entry["params"] != execution.entry.get("params"),
    }
    run = execution.run_id[: scratch_copy.SHORT]
    return [f"dvc.lock has {part} than its run {run} had" for part, differs in other.items() if differs]


def verify_execution(
    root: Path, execution: ExecutionRecord, say: Say, tell: Progress, keep: bool = False, outs_only: bool = False
) -> Verification:
    """Make the recorded outs again and compare them; CannotReproduceError where that is not possible, in one line.

    `say` gets a line for each step on the way, `tell` the command's progress. With `keep` the scratch copy stays. With
    `outs_only` what is logged on the way is not compared. What came of it is noted for audits.
    """
    root = root.absolute()
    began = time.monotonic()
    verification = Verification(execution)
    with _open_scratch_folder(keep) as folder:
        verification.copy = folder if keep else None
        made = scratch_copy.make_scratch_copy(root, execution, folder)
        since = [f"{step.line}; made again with the code that ran" for step in execution.accepted]
        verification.notes = [*_list_record_contradictions(root, execution), *since, *made.notes]
        verification.inputs = made.inputs
        verification.laid_out = time.monotonic() - began
        code = sum(is_code_path(path) for path in made.inputs)
        say(
            f"scratch copy: {code} code files and {len(made.inputs) - code} inputs as recorded "
            f"({verification.laid_out:.1f} s)"
        )
        for note in verification.notes:
            say(f"note: {note}")
        say(f"running: {execution.entry['cmd']}")
        started = time.monotonic()
        command.run_recorded_command(execution, folder, say, tell, to_mlflow=not outs_only)
        verification.ran = time.monotonic() - started
        verification.made = output_differences.compute_output_digests(execution, folder)
        verification.differences = output_differences.compare_outputs(root, execution, folder, verification.made)
        verification.environment = output_differences.find_environment_differences(execution)
        if execution.run_id is not None and not execution.elsewhere and not outs_only:
            histories = (
                metric_history.load_run_metric_history(root, execution.run_id),
                metric_history.load_copy_metric_history(folder),
            )
            verification.step = metric_history.find_first_metric_difference(*histories)
            verification.environment = {
                **metric_history.find_system_metric_differences(*histories),
                **verification.environment,
            }
    verification.seconds = time.monotonic() - began
    verdicts.record_reproduction_verdict(root, execution.entry, _build_verdict(verification))
    return verification


def _build_verdict(verification: Verification) -> ReproductionVerdict:
    """What is noted of the outcome."""
    if verification.verdict == "equal":
        return ReproductionVerdict(True)
    first = (
        verification.differences[0]
        if verification.differences
        else FileDifference(f"MLflow's run of {verification.record.stage}", "")
    )
    what = first.what or (verification.step.line if verification.step else "")
    injected = run_environment.filter_foreign_injections(verification.record.environment)
    return ReproductionVerdict(
        False, first.path, what, [name for name in verification.environment if name not in injected]
    )


@contextmanager
def _open_scratch_folder(keep: bool) -> Iterator[Path]:
    """An empty folder among the temporary ones; removed at the end, unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="posttrain-verify-")).resolve()
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


__all__ = ["CannotReproduceError", "Verification", "resolve_execution_record", "verify_execution"]

"""What a person sees of `posttrain verify`: the steps on the way, the verdict, the first differences and their likely
cause.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from flows.console.summary import format_duration
from flows.lineage import verifying
from flows.lineage.reproduction.digests import Files
from flows.lineage.verifying import CannotReproduceError, Verification
from tasks.common.source_code import NO_COMMIT

MOST = 10  # differing files that are shown
SHORT = 8  # letters of a run or commit


def verify_and_print_result(root: Path, console: Console, text: str, keep: bool) -> tuple[Verification | None, str]:
    """Make what `text` names again and show what came of it: the outcome, or why it was not possible."""
    target = verifying.resolve_execution_record(root, text)
    run = f"run {target.run_id[:SHORT]}" if target.run_id else "no run on record"
    when = f" of {target.started:%Y-%m-%d %H:%M}" if target.started else ""
    commit = f", commit {target.commit[:SHORT]}" if target.commit and target.commit not in NO_COMMIT else ""
    _print_sanitized_line(
        console,
        f"{target.stage}: {run}{when}{commit}{'' if target.dirty in (None, 'no', 'unknown') else ' and a patch'}",
    )
    status = console.status(f"{target.stage}: starting") if console.is_terminal else nullcontext()
    try:
        with status as line:
            outcome = verifying.verify_execution(
                root, target, lambda message: _print_sanitized_line(console, message), _Steps(target.stage, line), keep
            )
    except CannotReproduceError as error:
        _print_sanitized_line(console, f"cannot be made again: {error}")
        return None, str(error)
    _print_verification(console, outcome)
    if outcome.copy is not None:
        _print_sanitized_line(console, f"scratch copy: {outcome.copy}")
    return outcome, ""


class _Steps:
    """Shows a command's steps in the line at the bottom of a terminal; nowhere else."""

    def __init__(self, stage: str, line: Status | None) -> None:
        self.stage = stage
        self.line = line

    def __call__(self, step: int, total: int, seconds: float, measure: str) -> None:
        if self.line is not None:
            progress = ", ".join(filter(None, (f"step {step}/{total}", measure, format_duration(seconds))))
            self.line.update(f"{self.stage}: {progress}")


def _print_verification(console: Console, outcome: Verification) -> None:
    files = [digest for out in outcome.made.values() for digest in out.values()]
    took = f"{format_duration(outcome.ran)} for the command, {format_duration(outcome.seconds)} in all"
    if outcome.verdict == "equal":
        size = f"{len(files)} file{'s' * (len(files) != 1)}, {sum(digest.size for digest in files):,} bytes"
        _print_sanitized_line(console, f"equal to the bit: {', '.join(outcome.made)} ({size}; {took})")
        return
    if not outcome.differences:
        _print_sanitized_line(
            console, f"differs: the files are equal to the bit, but MLflow has other numbers of the run ({took})"
        )
    else:
        equal = max(len(files) - len(outcome.differences), 0)
        _print_sanitized_line(
            console, f"differs: {len(outcome.differences)} of {len(files)} files, {equal} are equal ({took})"
        )
    for difference in outcome.differences[:MOST]:
        _print_sanitized_line(console, f"  {difference.line}")
    if len(outcome.differences) > MOST:
        _print_sanitized_line(console, f"  and {len(outcome.differences) - MOST} more files")
    if outcome.step is not None:
        _print_sanitized_line(console, f"  {outcome.step.line}")
    for line in format_likely_causes(outcome):
        _print_sanitized_line(console, f"  {line}")


def format_likely_causes(outcome: Verification) -> list[str]:
    """What is another here than on record, as the likely cause of a difference."""
    if not outcome.record.environment:
        return ["versions and machine of the recorded run are not on record"]
    if not outcome.environment:
        return [
            "versions, machine and threads are the recorded ones: the command itself is not deterministic, or the "
            "record is wrong"
        ]
    pairs = [f"{name} {now} here, {before} on record" for name, (before, now) in outcome.environment.items()]
    return [f"likely cause: {'; '.join(pairs)}"]


def build_verification_json(text: str, outcome: Verification | None, problem: str) -> dict[str, Any]:
    """The outcome as plain data."""
    if outcome is None:
        return {"of": text, "verdict": "failed", "problem": problem}
    return {
        "of": text,
        "stage": outcome.record.stage,
        "run_id": outcome.record.run_id,
        "commit": outcome.record.commit,
        "verdict": outcome.verdict,
        "notes": outcome.notes,
        "differences": [{"path": each.path, "what": each.what, **each.facts} for each in outcome.differences],
        "step": asdict(outcome.step) if outcome.step else None,
        "environment": {
            name: {"recorded": recorded, "here": other} for name, (recorded, other) in outcome.environment.items()
        },
        "command": outcome.record.entry["cmd"],
        "inputs": _convert_digests_to_dicts(outcome.inputs),
        "outs": _convert_digests_to_dicts(outcome.made),
        "scratch_copy": str(outcome.copy) if outcome.copy else None,
        "seconds": {"laid_out": outcome.laid_out, "command": outcome.ran, "all": outcome.seconds},
    }


def _convert_digests_to_dicts(paths: Mapping[str, Files]) -> dict[str, dict[str, dict[str, Any]]]:
    return {path: {name: asdict(digest) for name, digest in files.items()} for path, files in paths.items()}


def _print_sanitized_line(console: Console, line: str) -> None:
    console.print("".join(char if char.isprintable() else "?" for char in line), markup=False, highlight=False)

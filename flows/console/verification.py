"""What a person sees of `posttrain verify`: the steps on the way, the verdict, the first differences and their likely cause."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from flows.console.summary import duration
from flows.lineage import verifying
from flows.lineage.reproduction.digests import Files
from flows.lineage.verifying import CannotReproduceError, Verification
from tasks.common.source_code import NO_COMMIT

MOST = 10  # differing files that are shown
SHORT = 8  # letters of a run or commit


def verify(root: Path, console: Console, text: str, keep: bool) -> tuple[Verification | None, str]:
    """Make what `text` names again and show what came of it: the outcome, or why it was not possible."""
    of = verifying.wanted(root, text)
    run = f"run {of.run_id[:SHORT]}" if of.run_id else "no run on record"
    when = f" of {of.started:%Y-%m-%d %H:%M}" if of.started else ""
    commit = f", commit {of.commit[:SHORT]}" if of.commit and of.commit not in NO_COMMIT else ""
    _print(console, f"{of.stage}: {run}{when}{commit}{'' if of.dirty in (None, 'no', 'unknown') else ' and a patch'}")
    status = console.status(f"{of.stage}: starting") if console.is_terminal else nullcontext()
    try:
        with status as line:
            found = verifying.verify(root, of, lambda said: _print(console, said), _Steps(of.stage, line), keep)
    except CannotReproduceError as error:
        _print(console, f"cannot be made again: {error}")
        return None, str(error)
    _show(console, found)
    if found.copy is not None:
        _print(console, f"scratch copy: {found.copy}")
    return found, ""


class _Steps:
    """Shows a command's steps in the line at the bottom of a terminal; nowhere else."""

    def __init__(self, stage: str, line: Status | None) -> None:
        self.stage, self.line = stage, line

    def __call__(self, step: int, total: int, seconds: float, measure: str) -> None:
        if self.line is not None:
            told = ", ".join(filter(None, (f"step {step}/{total}", measure, duration(seconds))))
            self.line.update(f"{self.stage}: {told}")


def _show(console: Console, found: Verification) -> None:
    files = [digest for out in found.made.values() for digest in out.values()]
    took = f"{duration(found.ran)} for the command, {duration(found.seconds)} in all"
    if found.verdict == "equal":
        size = f"{len(files)} file{'s' * (len(files) != 1)}, {sum(digest.size for digest in files):,} bytes"
        _print(console, f"equal to the bit: {', '.join(found.made)} ({size}; {took})")
        return
    if not found.differences:
        _print(console, f"differs: the files are equal to the bit, but MLflow has other numbers of the run ({took})")
    else:
        equal = max(len(files) - len(found.differences), 0)
        _print(console, f"differs: {len(found.differences)} of {len(files)} files, {equal} are equal ({took})")
    for difference in found.differences[:MOST]:
        _print(console, f"  {difference.line}")
    if len(found.differences) > MOST:
        _print(console, f"  and {len(found.differences) - MOST} more files")
    if found.step is not None:
        _print(console, f"  {found.step.line}")
    for line in likely(found):
        _print(console, f"  {line}")


def likely(found: Verification) -> list[str]:
    """What is another here than on record, as the likely cause of a difference."""
    if not found.record.environment:
        return ["versions and machine of the recorded run are not on record"]
    if not found.environment:
        return [
            "versions, machine and threads are the recorded ones: the command itself is not deterministic, or the record is wrong"
        ]
    pairs = [f"{name} {here} here, {before} on record" for name, (before, here) in found.environment.items()]
    return [f"likely cause: {'; '.join(pairs)}"]


def facts(text: str, found: Verification | None, problem: str) -> dict[str, Any]:
    """The outcome as plain data."""
    if found is None:
        return {"of": text, "verdict": "failed", "problem": problem}
    return {
        "of": text,
        "stage": found.record.stage,
        "run_id": found.record.run_id,
        "commit": found.record.commit,
        "verdict": found.verdict,
        "notes": found.notes,
        "differences": [{"path": each.path, "what": each.what, **each.facts} for each in found.differences],
        "step": asdict(found.step) if found.step else None,
        "environment": {name: {"recorded": one, "here": other} for name, (one, other) in found.environment.items()},
        "command": found.record.entry["cmd"],
        "inputs": _digests(found.inputs),
        "outs": _digests(found.made),
        "scratch_copy": str(found.copy) if found.copy else None,
        "seconds": {"laid_out": found.laid_out, "command": found.ran, "all": found.seconds},
    }


def _digests(paths: Mapping[str, Files]) -> dict[str, dict[str, dict[str, Any]]]:
    return {path: {name: asdict(digest) for name, digest in files.items()} for path, files in paths.items()}


def _print(console: Console, line: str) -> None:
    console.print("".join(char if char.isprintable() else "?" for char in line), markup=False, highlight=False)

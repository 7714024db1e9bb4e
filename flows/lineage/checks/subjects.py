"""What is audited: executions of stages, each as some record claims it was, and what a run left that did not finish."""

import fcntl
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine.dvc_lock import Entry
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.history import PipelineRun

HOME = Path(".dvc/tmp/posttrain")
UNFINISHED = ("RUNNING", "KILLED", "FAILED")


@dataclass(frozen=True)
class Subject:
    """One execution of a stage; `current` where dvc.lock records it now, so that its outs are in the workspace too."""

    made: ExecutionRecord
    current: bool

    @property
    def stage(self) -> str:
        """The stage's name."""
        return self.made.stage

    @property
    def entry(self) -> Entry:
        """What went in and came out, as the record claims."""
        return self.made.entry

    @property
    def run_id(self) -> str | None:
        """The run that made it, where one is known."""
        return self.made.run_id


@dataclass(frozen=True)
class Unfinished:
    """What runs left that were stopped, that failed or that are still at work. None of it is a fault."""

    at_work: bool = False  # a run holds the repository now
    aside: Mapping[str, Path] = field(default_factory=dict)  # out -> where its last good copy is kept meanwhile
    stages: frozenset[str] = frozenset()  # whose outs are kept aside
    pipelines: tuple[PipelineRun, ...] = ()  # the newest of each flow, where it did not end well

    def find_explaining_run(self, made: ExecutionRecord, *changed: Path) -> PipelineRun | None:
        """The unfinished pipeline run that was to bring this result up to date: it began after the result was made and
        after the change.
        """
        for run in self.pipelines:
            later = made.started is None or made.started <= run.started
            if later and all(
                _get_modification_time(file) <= run.started.timestamp() for file in changed if file.exists()
            ):
                return run
        return None


def load_unfinished_work(root: Path, pipelines: Sequence[PipelineRun], entries: Mapping[str, Entry]) -> Unfinished:
    """What did not finish; `pipelines` are the newest first.

    Outs that are aside still count where dvc.lock (`entries`) has the stage as it was when they were moved.
    """
    aside = dict[str, Path]()
    stages = set[str]()
    for folder in sorted((root / HOME / "previous").glob("*")):
        try:
            note = json.loads((folder / "note.json").read_text())
            kept = {Path(out): folder / str(index) for index, out in enumerate(note["outs"])}
            if note["recorded"] != entries.get(folder.name):
                continue  # the kill came after the new ones were recorded
        except (OSError, ValueError, TypeError, KeyError):
            continue  # the kill came before anything was moved
        stages.add(folder.name)
        for out, aside_path in kept.items():
            if aside_path.exists() and out.is_relative_to(root):
                aside[out.relative_to(root).as_posix()] = aside_path
    newest = {run.flow: run for run in reversed(pipelines)}
    left = tuple(run for run in newest.values() if run.status in UNFINISHED)
    return Unfinished(_is_run_lock_held(root), aside, frozenset(stages), left)


def _is_run_lock_held(root: Path) -> bool:
    """Whether a `posttrain run` holds its lock."""
    try:
        with (root / HOME / "run.lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _get_modification_time(file: Path) -> float:
    return file.stat().st_mtime


def format_unfinished_run(run: PipelineRun) -> str:
    """How a pipeline run ended that did not end well, in words."""
    began = f"{run.started:%Y-%m-%d %H:%M:%S}"
    if "paused" in run.states.values():
        return f"the {run.flow} run of {began} waits for people"
    words: Mapping[str, str] = {"RUNNING": "has not ended", "KILLED": "was stopped", "FAILED": "failed"}
    return f"the {run.flow} run of {began} {words.get(run.status, run.status.lower())}"

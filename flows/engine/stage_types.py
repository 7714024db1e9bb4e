"""The plain values that planner, coordinator and display exchange; nothing of the engine is imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# A paused stage waits for people, or for a stage that does. A sweep does not train on what is behind, or what needs it.
State = Literal["waiting", "running", "up-to-date", "restored", "ran", "failed", "skipped", "paused", "behind"]


@dataclass(frozen=True)
class PlannedStage:
    """One stage of the graph as the plan found it.

    `reason` is None for a stage that is up to date. `upstream` has stages of the same plan only.
    """

    name: str
    reason: str | None
    upstream: tuple[str, ...]
    cpu: int
    gpu: int
    cmd: str = ""
    pool: str = ""  # the work pool whose workers run it; "" for this machine
    launcher: str = ""  # what the command is started through
    after: tuple[str, ...] = ()  # stages that have to end first, whether well or not
    frozen: str | None = (
        None  # of a stage that `dvc freeze` keeps from running: why it would run, "" if for nothing of its own
    )
    elsewhere: bool = False  # no run that DVC's run cache has made its outs, as where they were pulled without it
    missing: bool = False  # it has to run for nothing but files that dvc.lock records and that are not here


@dataclass(frozen=True)
class Grant:
    """What a stage's command gets beside its text. A lease or lock on a file of `keep` lasts as long as the command."""

    environ: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[int, ...] = ()  # descriptors of open files that the command inherits
    launcher: tuple[str, ...] = ()  # words before the command


@dataclass(frozen=True)
class Event:
    """One change that a watcher may want to show: a new state, or progress within a running stage."""

    stage: str
    state: State
    reason: str = ""
    step: int | None = None
    total: int | None = None
    seconds: float = 0.0
    log: Path | None = None
    measure: str = ""  # of what is training: `reward 0.53`, or `loss 1.2`


@dataclass
class StageResult:
    """How one stage ended. `seconds` is the wall time this run spent on it."""

    stage: str
    state: State
    reason: str = ""
    seconds: float = 0.0
    mlflow_run_id: str | None = None  # of the run that made its outs; None where MLflow here has none
    pipeline_run_id: str | None = None  # of the MLflow run of the whole flow
    log: Path | None = None
    outs: dict[str, str] = field(default_factory=dict)  # path -> DVC hash
    awaits: tuple[
        str, ...
    ] = ()  # of a stage that waits for people: the data that it reads, where their judgements are to come
    unrecorded: str = ""  # why the stage's record in MLflow failed; the state does not depend on it


Watcher = Callable[[Event], None]

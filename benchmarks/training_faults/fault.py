"""What a fault is here: trainings with it and without, what is read of them, and the picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

Row = dict[str, Any]  # what is kept of one training, as JSON


@dataclass(frozen=True)
class Arm:
    """One training: the stages that it runs, and its changes to params.yaml, over those of the fault's preset or over
    the defaults.
    """

    stages: Sequence[str]
    settings: Sequence[str] = ()  # in the form of `--set`
    preset: bool = True


@dataclass(frozen=True)
class Fault:
    """A fault by name: presets/fault-NAME.yaml makes it, docs/faults/NAME.png shows it."""

    name: str
    arms: Mapping[str, Arm]
    read: Callable[[Path], Row]  # from a workspace in which an arm has run
    draw: Callable[[Figure, Mapping[str, Sequence[Row]]], None]  # from each arm's rows, one for each seed

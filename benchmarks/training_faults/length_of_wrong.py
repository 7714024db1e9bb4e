"""Wrong answers that grow under GRPO's own aggregation, and do not under Dr. GRPO's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row

COLUMNS = ("completions/mean_length_wrong", "completions/mean_length_right", "rewards/verifiable")


def read(folder: Path) -> Row:
    """GRPO's curve."""
    return {"curve": workspace.curve(folder, "grpo", *COLUMNS)}


def draw(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The length of wrong and of right samples."""
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, kind in ((left, "wrong"), (right, "right")):
        pictures.lines(axis, rows, f"completions/mean_length_{kind}", f"length of {kind} samples, tokens", smooth=10)
    pictures.legend(figure, left)


FAULT = Fault(
    "length-of-wrong",
    {
        "mean of each answer, standardized": Arm(["grpo"]),
        "Dr. GRPO: constant, centered": Arm(["grpo"], ["grpo.aggregation=dr_grpo", "grpo.advantage=centered"]),
    },
    read,
    draw,
)

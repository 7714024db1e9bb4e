"""A policy that is paid for the form of its answers and for nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row

COLUMNS = ("rewards/format", "rewards/verifiable", "eval_accuracy", "completions/mean_length")


def load_format_curve(folder: Path) -> Row:
    """GRPO's curve."""
    return {"curve": workspace.load_curve_columns(folder, "grpo", *COLUMNS)}


def draw_format_and_accuracy(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The share of samples in the form, and the share that is right."""
    left, right = figure.subplots(1, 2, sharey=True)
    pictures.plot_curves(left, rows, "rewards/format", "samples that end with #### N, %", scale=100, smooth=5)
    pictures.plot_curves(right, rows, "rewards/verifiable", "samples that are right, %", scale=100, smooth=5)
    left.set_ylim(0, 100)
    pictures.add_shared_legend(figure, left)


FAULT = Fault(
    "format-reward",
    {
        "paid for the form alone": Arm(["grpo"]),
        "paid for right answers too": Arm(["grpo"], ["grpo.reward={verifiable: 1.0, format: 0.2}"]),
    },
    load_format_curve,
    draw_format_and_accuracy,
)

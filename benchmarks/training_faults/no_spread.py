"""Groups without spread: GRPO learns nothing where all answers of a group earn the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row

COLUMNS = ("frac_reward_zero_std", "eval_accuracy", "reward")


def load_spread_curve(folder: Path) -> Row:
    """GRPO's curve."""
    return {"curve": workspace.load_curve_columns(folder, "grpo", *COLUMNS)}


def draw_spread_and_accuracy(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The share of groups without spread, and accuracy at each arm's own temperature."""
    left, right = figure.subplots(1, 2)
    pictures.plot_curves(left, rows, "frac_reward_zero_std", "groups without spread, %", scale=100, smooth=5)
    pictures.plot_curves(right, rows, "eval_accuracy", "right validation answers, %", scale=100)
    left.set_ylim(0, 100)
    right.set_ylim(0, 100)
    pictures.add_shared_legend(figure, left)


FAULT = Fault(
    "no-spread",
    {"sampled at 0.1": Arm(["grpo"]), "sampled at 1": Arm(["grpo"], ["grpo.temperature=1.0"])},
    load_spread_curve,
    draw_spread_and_accuracy,
)

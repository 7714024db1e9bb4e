"""A reward model that likes length, and the answers of a policy that is paid by it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row

COLUMNS = (
    "completions/mean_length",
    "completions/clipped_ratio",
    "rewards/reward_model",
    "rewards/verifiable",
    "eval_accuracy",
)


def load_ppo_curve(folder: Path) -> Row:
    """PPO's curve."""
    return {"curve": workspace.load_curve_columns(folder, "ppo", *COLUMNS)}


def draw_length_and_accuracy(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The length of samples, and the share of them that is right."""
    left, right = figure.subplots(1, 2)
    pictures.plot_curves(left, rows, "completions/mean_length", "length of samples, tokens", smooth=3)
    pictures.plot_curves(right, rows, "rewards/verifiable", "samples that are right, %", scale=100, smooth=3)
    pictures.add_shared_legend(figure, left)


FAULT = Fault(
    "length",
    {
        "annotator likes length": Arm(["preferences", "reward_model", "ppo"]),
        "annotator does not": Arm(["preferences", "reward_model", "ppo"], ["preferences.length_bonus=0.0"]),
    },
    load_ppo_curve,
    draw_length_and_accuracy,
)

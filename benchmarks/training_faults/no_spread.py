"""Groups without spread: GRPO learns nothing where all answers of a group earn the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row

COLUMNS = ("frac_reward_zero_std", "rewards/verifiable", "grad_norm")
MEASURED = ("strict_greedy", "strict_mean_at_8_t1.0")


def read(folder: Path) -> Row:
    """GRPO's curve, and what the policy is worth."""
    return {
        "curve": workspace.curve(folder, "grpo", *COLUMNS),
        "evaluated": workspace.evaluation(folder, "grpo", *MEASURED),
        "sft": workspace.evaluation(folder, "sft", *MEASURED),
    }


def draw(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The share of groups without spread, and accuracy before and after."""
    left, right = figure.subplots(1, 2)
    pictures.lines(left, rows, "frac_reward_zero_std", "groups without spread, %", scale=100, smooth=5)
    before = {"SFT": [{"evaluated": row["sft"]} for row in next(iter(rows.values()))]}
    pictures.bars(right, {**rows, **before}, "strict_mean_at_8_t1.0", "right answers at temperature 1, %", 100)
    left.set_ylim(0, 100)
    pictures.legend(figure, left)


STAGES = ("grpo", "evaluate@grpo")
FAULT = Fault(
    "no-spread",
    {
        "sampled at 0.1": Arm(STAGES),
        "sampled at 1": Arm(STAGES, ["grpo.temperature=1.0"]),
    },
    read,
    draw,
)

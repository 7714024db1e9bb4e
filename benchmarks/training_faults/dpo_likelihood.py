"""DPO lowers the chosen answers' likelihood; the likelihood in the loss, and IPO, hold it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row

BETA = 0.1  # the default, by which the rewards of a curve are divided to be changes of log-probability
COLUMNS = ("logps/chosen_change", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "nll")


def load_dpo_curve(folder: Path) -> Row:
    """DPO's curve."""
    return {"curve": workspace.load_curve_columns(folder, "dpo", *COLUMNS)}


def draw_answer_likelihoods(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The change of both answers' log-probability."""
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, side in ((left, "chosen"), (right, "rejected")):
        title = f"{side} answers: log π - log π_ref, nats"
        pictures.plot_curves(axis, rows, f"rewards/{side}", title, scale=1 / BETA, smooth=10)
        axis.axhline(0, color="#777777", linewidth=0.8, linestyle="--")
    pictures.add_shared_legend(figure, left)


FAULT = Fault(
    "dpo-likelihood",
    {
        "DPO": Arm(["dpo"]),
        "DPO with dpo.nll 1": Arm(["dpo"], ["dpo.nll=1.0"]),
        "IPO": Arm(["dpo"], ["dpo.loss=ipo"]),
    },
    load_dpo_curve,
    draw_answer_likelihoods,
)

"""An end token outside the loss of SFT: answers do not end."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row


def load_sft_evaluation(folder: Path) -> Row:
    """How SFT's answers end, how long and how right they are."""
    names = ("ended_greedy", "length_greedy", "strict_greedy", "lenient_greedy")
    return {"evaluated": workspace.load_evaluation_metrics(folder, "sft", *names)}


def draw_answer_endings(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The share of greedy answers that end, and their length."""
    panels = {
        "ended_greedy": ("greedy answers that end, %", 100),
        "length_greedy": ("their length, tokens", 1),
        "strict_greedy": ("those that are right, %", 100),
    }
    for axis, (metric, (title, scale)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        pictures.plot_bars(axis, rows, metric, title, scale)


STAGES = ("sft", "evaluate@sft")
FAULT = Fault(
    "end-token",
    {"end token not in the loss": Arm(STAGES), "end token in the loss": Arm((), preset=False)},
    load_sft_evaluation,
    draw_answer_endings,
)

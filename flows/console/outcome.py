"""What a stage that was asked for has learned, in one line, and what to type next."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from flows.engine.stage_types import StageResult

CURVES = Path("data/curves")
PARTS = 10  # of a curve's steps, of which the first and the last are compared
CHANGES = 4  # that a line names
# Columns of a curve that a person looks at first; those that are not there are passed over.
COLUMNS = (
    *("eval_reward", "eval_accuracy", "reward", "eval_loss", "eval_mean_token_accuracy", "rewards/accuracies"),
    *("accuracy", "return", "loss"),
)
REWARD = "rewards/"  # what each reward of a policy paid: the user's own is named before all others
BUILT_IN = ("verifiable", "format", "rubric", "reward_model", "chosen", "rejected", "margins", "accuracies")


def iterate_outcome_lines(root: Path, targets: Iterable[str], results: Mapping[str, StageResult]) -> Iterator[str]:
    """A line on what each of the stages `targets` that ran has learned, and one with the commands to type next."""
    ran = [name for name in dict.fromkeys(targets) if name in results and results[name].state == "ran"]
    policies = []
    for name in ran:
        curve = root / CURVES / f"{name.rpartition('@')[2]}.csv"
        changes = list_curve_changes(read_curve(curve)) if curve.is_file() else []
        if changes:
            yield f"{name}: {', '.join(changes)} ({CURVES / curve.name})"
        if (root / "data" / name / "config.json").is_file():
            policies.append(name)
    if policies and "report" not in results:
        name = policies[-1]
        against = " --against sft" if name != "sft" and (root / "data/sft/config.json").is_file() else ""
        yield f"next: posttrain run evaluate@{name}, or posttrain chat {name}{against}"


def read_curve(file: Path) -> list[dict[str, float]]:
    """The rows of a curve; empty cells are left out."""
    with file.open(newline="") as lines:
        return [{key: float(cell) for key, cell in row.items() if key and cell} for row in csv.DictReader(lines)]


def list_curve_changes(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Such as `reward 0.41 -> 0.78`: the first columns of interest, at the first tenth of the steps and at the last."""
    names = dict.fromkeys(key for row in rows for key in row)
    users = [name for name in names if name.startswith(REWARD) and name.removeprefix(REWARD) not in BUILT_IN]
    chosen = [*users, *(name for name in COLUMNS if name in names)][:CHANGES]
    changes = [f"{name} {format_change([row[name] for row in rows if name in row])}" for name in chosen]
    return [*changes, f"{len(rows)} steps"] if changes else []


def format_change(values: Sequence[float]) -> str:
    """The mean of the first tenth of the values and that of the last: `0.41 -> 0.78`."""
    count = max(len(values) // PARTS, 1)
    return f"{fmean(values[:count]):.3g} -> {fmean(values[-count:]):.3g}"

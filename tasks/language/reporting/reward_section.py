"""What the report says of the reward model: how it judges held-out examples, by strength and length, and its worst
mistakes.

All is computed from held_out.parquet in the model's folder, one row for each held-out comparison or solution. Examples
of one prompt are not independent, so that intervals are over prompts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isfinite
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks.common import estimates, plots, tables
from tasks.common.estimates import Estimate
from tasks.common.tables import Record
from tasks.language.reporting.differences import FEWEST, estimate_without_interval
from tasks.language.reporting.metric_wording import format_estimate_interval, format_signed_number
from tasks.language.tables.held_out import HeldOut
from tasks.language.tables.preferences import LEVELS, get_strength_level

FILE = "held_out.parquet"
SHOWN = 4  # mistakes
LABELS = "labels"  # whose author has no name: a simulated annotator, or a file's
CLASSES = {-1: "bad", 0: "neutral", 1: "good"}  # of a step
Array = NDArray[np.float64]


@dataclass(frozen=True)
class AccuracyRow:
    """The share of some held-out examples that is right, with its interval over prompts."""

    name: str
    count: int
    right: Estimate

    @property
    def interval(self) -> str:
        """Its ends in percent; nothing where there are too few prompts."""
        return format_estimate_interval("strict", self.right)


@dataclass(frozen=True)
class Gain:
    """The shares of held-out comparisons that are ordered as labelled, or with the right answer first, before training
    and after, and the difference. Before training they are ordered `by` the policy's own log-probabilities.
    """

    by: str
    before: float
    after: float
    difference: Estimate


@dataclass(frozen=True)
class Section:
    """What the templates show; figures are SVGs by name, each with its caption."""

    tables: list[tuple[str, list[AccuracyRow]]]  # heading -> rows
    mistakes: list[list[Record]]  # each of them texts side by side, with what is said of them
    figures: dict[str, str] = field(default_factory=dict)
    captions: dict[str, str] = field(default_factory=dict)
    gain: Gain | None = None
    correctness: Gain | None = None  # of the comparisons with one right answer

    @property
    def helped(self) -> str:
        """Whether training helped, in a sentence; empty where it is not known."""
        return (
            _format_gain_sentence(self.gain, "It orders {} of the held-out comparisons as labelled")
            if self.gain
            else ""
        )

    @property
    def knows_answers(self) -> str:
        """Whether it prefers right answers more than the policy does, in a sentence; empty where it is not known."""
        if self.correctness is None:
            return ""
        return _format_gain_sentence(
            self.correctness,
            "Of the held-out comparisons with one right answer it prefers that one in {}",
            {1: "it is above", 0: "which is above cannot be told", -1: "it is below"},
        )


HELPED = {1: "training helped", 0: "whether training helped cannot be told", -1: "training did harm"}


def _format_gain_sentence(gain: Gain, beginning: str, verdicts: Mapping[int, str] = HELPED) -> str:
    change = gain.difference
    if not isfinite(change.low):
        verdict = "too few comparisons to say whether training helped"
    else:
        side = (change.low > 0) - (change.high < 0)
        verdict = verdicts[side]
        verdict = f"{format_signed_number(100 * change.low)} to {format_signed_number(100 * change.high)}: {verdict}"
    return (
        f"{beginning.format(f'{100 * gain.after:.2f} %')}, and the {gain.by} of the policy that it started from, "
        "untrained, "
        f"{100 * gain.before:.2f} %. The difference is {format_signed_number(100 * change.mean, '+.2f')} points "
        f"({verdict})."
    )


def build_reward_section(folder: Path, seed: int, resamples: int) -> Section | None:
    """The section for the reward model in `folder`; None where it has no held-out examples, as a model from
    elsewhere.
    """
    if not (folder / FILE).is_file():
        return None
    table = tables.read_table(HeldOut, folder / FILE)
    return (_build_comparison_section if "comparison_id" in table else _build_solution_section)(table, seed, resamples)


def _estimate_share(right: Array, prompts: pd.Series, seed: int, resamples: int) -> Estimate:
    """The mean of `right` (N,), with an interval over prompts; without one of too few prompts."""
    grouped = pd.Series(right).groupby(prompts.to_numpy())
    if len(grouped) < FEWEST:  # prompts: a bootstrap over 10 of them covers a share in 89 of 100 draws
        return estimate_without_interval(right)
    return estimates.bootstrap_ratio(grouped.sum(), grouped.size(), seed, resamples)


def _build_accuracy_rows(
    right: Array, kinds: Mapping[str, NDArray[np.bool_]], prompts: pd.Series, seed: int, resamples: int
) -> list[AccuracyRow]:
    """A row for each kind of examples that there is."""
    return [
        AccuracyRow(name, int(mask.sum()), _estimate_share(right[mask], prompts[mask], seed, resamples))
        for name, mask in kinds.items()
        if mask.any()
    ]


def _build_comparison_section(table: pd.DataFrame, seed: int, resamples: int) -> Section:
    margin = (table["chosen_reward"] - table["rejected_reward"]).to_numpy()
    right = estimates.compute_win_values(margin, 0.0)
    levels = table["strength"].map(get_strength_level).to_numpy()
    longer = (table["chosen_length"] - table["rejected_length"]).to_numpy()
    half = float(np.median(np.abs(longer))) or 1.0
    tokens = f"{half:g} token{'s' if half != 1 else ''}"
    lengths = {
        f"chosen shorter, by more than {tokens}": longer < -half,
        "chosen shorter": (longer < 0) & (longer >= -half),
        "equally long": longer == 0,
        "chosen longer": (longer > 0) & (longer <= half),
        f"chosen longer, by more than {tokens}": longer > half,
    }
    strengths = {f"{LEVELS[at]} better".strip(): levels == at for at in reversed(range(len(LEVELS)))}
    bootstrap_settings = seed, resamples
    breakdowns = {
        "by strength": _build_accuracy_rows(right, strengths, table["prompt_id"], *bootstrap_settings),
        "by the difference of lengths": _build_accuracy_rows(right, lengths, table["prompt_id"], *bootstrap_settings),
    }
    everything = _build_accuracy_rows(
        right, {"all": np.ones(len(table), dtype=bool)}, table["prompt_id"], *bootstrap_settings
    )
    figures = {
        f"reward-{name.replace(' ', '-')}": plots.render_category_intervals(
            {row.name: row.right for row in rows},
            "share ordered as labelled",
            f"reward-{number}",
            level=0.5,
            width=plots.SMALL,
        )
        for number, (name, rows) in enumerate(breakdowns.items())
    }
    captions = {
        f"reward-{name.replace(' ', '-')}": "Held-out comparisons that the model orders as "
        f"labelled, {name}, with 95 % "
        "intervals where there are enough of them. Dashed: chance."
        for name in breakdowns
    }
    judges = [
        ("Held-out comparisons that two judges order alike", _build_judge_agreement_rows(table, *bootstrap_settings))
    ]
    headed = [
        (f"Held-out comparisons that the model orders as labelled, {name}", rows) for name, rows in breakdowns.items()
    ]
    headed[0] = headed[0][0], [*everything, *headed[0][1]]
    shown = [*headed, *(part for part in judges if part[1])]
    mistakes = _select_worst_pairs(table, margin)
    return Section(
        shown,
        mistakes,
        figures,
        captions,
        _compute_training_gain(table, *bootstrap_settings),
        _compute_correctness_gain(table, *bootstrap_settings),
    )


def _compute_training_gain(table: pd.DataFrame, seed: int, resamples: int) -> Gain | None:
    """What training has added to the policy's own log-probabilities, comparison by comparison; None where they were not
    measured.

    Of the mean over an answer's tokens and the sum, the one that orders more comparisons as labelled is the measure
    before training.
    """
    if "chosen_untrained" not in table:
        return None
    means = table["chosen_untrained"], table["rejected_untrained"]
    sums = means[0] * table["chosen_length"], means[1] * table["rejected_length"]
    ordered = {
        "mean log-probability a token": estimates.compute_win_values(*means),
        "log-probability": estimates.compute_win_values(*sums),
    }
    by = max(ordered, key=lambda name: ordered[name].mean())
    after = estimates.compute_win_values(table["chosen_reward"], table["rejected_reward"])
    difference = _estimate_share(after - ordered[by], table["prompt_id"], seed, resamples)
    return Gain(by, float(ordered[by].mean()), float(after.mean()), difference)


def _compute_correctness_gain(table: pd.DataFrame, seed: int, resamples: int) -> Gain | None:
    """The same of the comparisons with one right answer, as if that were the label; None where no verdicts are
    known.
    """
    if "chosen_right" not in table:
        return None
    one_right = table[table["chosen_right"] != table["rejected_right"]]
    if one_right.empty:
        return None
    swapped = one_right.rename(columns=_swap_column_side)
    labelled = one_right["chosen_right"].to_numpy()
    return _compute_training_gain(pd.concat([one_right[labelled], swapped[~labelled]]), seed, resamples)


def _swap_column_side(column: str) -> str:
    sides = {"chosen": "rejected", "rejected": "chosen"}
    side, _, rest = column.partition("_")
    return f"{sides[side]}_{rest}" if side in sides and rest else column


def _build_judge_agreement_rows(table: pd.DataFrame, seed: int, resamples: int) -> list[AccuracyRow]:
    """How often each two of the labels' authors, the given scores (the annotator's points, or others') and the model
    order a comparison alike.

    A comparison that a judge does not tell apart is left out.
    """
    swapped = np.where(
        table["chosen"] < table["rejected"], 1.0, -1.0
    )  # one order of the two texts, whoever judged them
    pairs = pd.DataFrame(
        {"prompt_id": table["prompt_id"], "texts": [*map(_make_text_pair_key, table["chosen"], table["rejected"])]}
    )
    orders = {"reward model": swapped * np.sign(table["chosen_reward"] - table["rejected_reward"])}
    if "chosen_score" in table:
        orders["given scores"] = swapped * np.sign(table["chosen_score"] - table["rejected_score"])
    authors = table["person"].replace("", LABELS) if "person" in table else pd.Series(LABELS, table.index)
    for name in sorted(authors.unique()):
        orders[str(name)] = np.where(authors == name, swapped, np.nan)
    by_pair = pairs.assign(**orders).groupby(["prompt_id", "texts"], as_index=False).mean()
    orders = {name: np.nan_to_num(np.sign(by_pair[name].to_numpy())) for name in orders}
    rows = []
    for (first_judge, first), (second_judge, second) in combinations(orders.items(), 2):
        both = (first != 0) & (second != 0)
        if both.any():
            alike = _estimate_share((first == second)[both].astype(float), by_pair["prompt_id"][both], seed, resamples)
            rows.append(AccuracyRow(f"{first_judge} and {second_judge}", int(both.sum()), alike))
    return rows


def _make_text_pair_key(chosen: str, rejected: str) -> str:
    return "\0".join(sorted((chosen, rejected)))


def _select_worst_pairs(table: pd.DataFrame, margin: Array) -> list[list[Record]]:
    """The comparisons that the model gets wrong by most, one of each prompt."""
    wrong = table.assign(margin=margin)[margin < 0].sort_values("margin", kind="stable").drop_duplicates("prompt_id")
    return [[*_iterate_pair_texts(row)] for row in tables.list_records(wrong.head(SHOWN))]


def _iterate_pair_texts(row: Record) -> Iterator[Record]:
    yield {"name": "prompt", "said": row["strength"], "text": row["prompt"]}
    for side in ("chosen", "rejected"):
        points = f", {row[f'{side}_score']:g} points" if row.get(f"{side}_score") is not None else ""
        yield {"name": side, "said": f"reward {row[f'{side}_reward']:.2f}{points}", "text": row[side]}


def _build_solution_section(table: pd.DataFrame, seed: int, resamples: int) -> Section:
    """An outcome or process reward model: right and wrong solutions told apart at one half, and where steps are known,
    the steps.
    """
    rewards = table["reward"].to_numpy(dtype=float)
    right = table["right"].to_numpy(dtype=bool)
    correct = ((rewards > 0.5) == right).astype(float)
    kinds = {"all": np.ones(len(table), dtype=bool), "right solutions": right, "wrong solutions": ~right}
    headed_rows = [
        (
            "Held-out solutions whose reward says whether they are right",
            _build_accuracy_rows(correct, kinds, table["prompt_id"], seed, resamples),
        )
    ]
    if "bad" in table and "truth" in table:
        headed_rows.append(
            ("Held-out steps that are told bad from others", _build_step_class_rows(table, seed, resamples))
        )
        headed_rows.append(
            ("Held-out solutions whose first wrong step is found", _build_first_bad_step_rows(table, seed, resamples))
        )
    far = np.where(right, rewards, 1 - rewards)
    worst = table.assign(far=far).sort_values("far", kind="stable").drop_duplicates("prompt_id").head(SHOWN)
    return Section(headed_rows, [[*_iterate_solution_texts(row)] for row in tables.list_records(worst)])


def _build_step_class_rows(table: pd.DataFrame, seed: int, resamples: int) -> list[AccuracyRow]:
    steps = table[["prompt_id", "bad", "truth"]].explode(["bad", "truth"], ignore_index=True)
    bad = steps["bad"].to_numpy(dtype=float) > 0.5
    truth = steps["truth"].to_numpy(dtype=int)
    kinds = {f"{name} steps": truth == value for value, name in CLASSES.items()}
    return _build_accuracy_rows((bad == (truth < 0)).astype(float), kinds, steps["prompt_id"], seed, resamples)


def find_first_bad_step(bad: Sequence[float]) -> int:
    """The place of the first step that is bad with a probability above one half; -1 where none is."""
    return next((position for position, chance in enumerate(bad) if chance > 0.5), -1)


def _build_first_bad_step_rows(table: pd.DataFrame, seed: int, resamples: int) -> list[AccuracyRow]:
    """ProcessBench's two accuracies (arXiv:2412.06559): the first wrong step of a solution that has one, and none of
    one that has none.
    """
    predicted = np.array([find_first_bad_step(chances) for chances in table["bad"]])
    truth = np.array([find_first_bad_step([float(label < 0) for label in labels]) for labels in table["truth"]])
    kinds = {"solutions with a wrong step": truth >= 0, "solutions without one": truth < 0}
    return _build_accuracy_rows((predicted == truth).astype(float), kinds, table["prompt_id"], seed, resamples)


def _iterate_solution_texts(row: Record) -> Iterator[Record]:
    yield {"name": "prompt", "said": "", "text": row["prompt"]}
    text = row["response"]
    remark = f"{'right' if row['right'] else 'wrong'}, reward {row['reward']:.2f}"
    if row.get("bad") is not None:
        remark += "; each line behind the chance that it is not bad"
        lines = [line for line in text.split("\n") if line.strip()]
        text = "\n".join(f"{1 - bad:.2f}  {line}" for bad, line in zip(row["bad"], lines, strict=False))
    yield {"name": "solution", "said": remark, "text": text}

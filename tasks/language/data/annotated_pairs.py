"""Responses that the simulated annotator has ranked: its annotations, rankings and pairs.

Pairs of a ranking are comparisons: ties give none, and neither do two equal texts.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks.common import tables
from tasks.common.tables import Record
from tasks.language.configs.preferences import Criteria
from tasks.language.data import manner, splits
from tasks.language.rewards import annotator, rubric
from tasks.language.rewards.answers import find_final_answer_number
from tasks.language.rewards.numerals import is_same_number, parse_number_ignoring_percent

ANNOTATOR = "annotator"  # in place of a person's name


@dataclass
class Annotated:
    """Rows of Annotations, Rankings and Comparisons, and the prompts that are held out."""

    held_out: set[str]
    annotations: list[Record] = field(default_factory=list)
    rankings: list[Record] = field(default_factory=list)
    pairs: list[Record] = field(default_factory=list)
    texts: list[Record] = field(default_factory=list)  # each ranking as people write it, with its responses


@dataclass(frozen=True)
class Score:
    """An annotator's points for each criterion of a response, and why."""

    points: Mapping[str, int]
    reason: str

    @property
    def total(self) -> int:
        """The sum over the criteria, 0 to 10."""
        return sum(self.points.values())


def score_by_manner(problem: Record, response: str, ended: bool) -> Score:
    """What can be seen of a response without the right answer (tasks/language/data/manner.py)."""
    score = manner.score_manner(problem["question"], response, ended)
    return Score(vars(score), score.reason)


def score_by_rubric(problem: Record, response: str, ended: bool) -> Score:
    """The rubric's points of a response to a row of Problems, by its reference."""
    score = rubric.score_response(problem["question"], problem["solution"], problem["answer"], response, ended)
    names = ("correctness", "reasoning", "clarity")
    reasons = (f"{name}: {getattr(score, f'{name}_reason')}" for name in names)
    return Score({name: getattr(score, name) for name in names}, "; ".join(reasons))


CRITERIA: Mapping[Criteria, Callable[[Record, str, bool], Score]] = {
    "manner": score_by_manner,
    "rubric": score_by_rubric,
}


@dataclass(frozen=True)
class Perception:
    """How the annotator sees points: by which criteria, with noise, a taste for length, and the differences from which
    there is a tie no more and each level holds.
    """

    criteria: Criteria
    temperature: float
    length_bonus: float  # points for each token
    tie_margin: float
    bounds: tuple[float, ...]


def annotate_responses(
    sampled: pd.DataFrame, problems: Mapping[str, Record], sees: Perception, test_share: float, seed: int
) -> Annotated:
    """Score, rank and pair `sampled` (schema Responses) by the problems `problems` by their ids."""
    rng = np.random.default_rng(seed)
    sampled = sampled.sort_values(["prompt_id", "sample"])
    numeric = all(
        parse_number_ignoring_percent(problems[prompt_id]["answer"]) is not None
        for prompt_id in sampled["prompt_id"].unique()
    )
    annotated = Annotated(splits.draw_held_out_prompts(sampled["prompt_id"].unique(), test_share, rng))
    for _, group in sampled.groupby("prompt_id"):
        rows = tables.list_records(group)
        prompt_id: str = rows[0]["prompt_id"]
        scores = [CRITERIA[sees.criteria](problems[prompt_id], row["response"], row["ended"]) for row in rows]
        liked = [score.total + sees.length_bonus * len(row["tokens"]) for score, row in zip(scores, rows, strict=True)]
        utilities = annotator.sample_noisy_utilities(liked, sees.temperature, rng)
        ranking = annotator.group_ties(utilities, sees.tie_margin)
        for row, score, rank in zip(rows, scores, annotator.compute_ranks_of_groups(ranking), strict=True):
            key = {"prompt_id": prompt_id, "sample": row["sample"]}
            judged = {"points": json.dumps(score.points), "reason": score.reason, "total": score.total}
            annotated.annotations.append({**key, **judged, "rank": rank})
            row |= {"score": score.total, "rank": rank}
            annotated.rankings.append(_build_ranking_row(row, prompt_id in annotated.held_out))
        pairs = _build_pair_rows(rows, utilities, sees.bounds, rng)
        annotated.pairs += [_add_verdicts(pair, problems[prompt_id]["answer"]) for pair in pairs] if numeric else pairs
        texts = {chr(ord("A") + index): row["response"] for index, row in enumerate(rows)}
        annotated.texts.append(
            {"prompt": rows[0]["prompt"], "ranking": annotator.format_ranking_text(ranking), **texts}
        )
    return annotated


def _add_verdicts(pair: Record, answer: str) -> Record:
    """The pair, and whether each response ends in the right number: for the report alone, nothing learns from it."""
    finals = {side: find_final_answer_number(pair[side]) for side in ("chosen", "rejected")}
    right = {f"{side}_right": final is not None and is_same_number(final, answer) for side, final in finals.items()}
    return pair | right


def _build_ranking_row(row: Record, held: bool) -> Record:
    return {
        "ranking_id": row["prompt_id"],
        "prompt_id": row["prompt_id"],
        "prompt": row["prompt"],
        **({"history": row["history"]} if "history" in row else {}),
        "held_out": held,
        "person": ANNOTATOR,
        "sample": row["sample"],
        "response": row["response"],
        "ended": row["ended"],
        "tokens": row["tokens"],
        "rank": row["rank"],
        "score": float(row["score"]),
    }


def _build_pair_rows(
    rows: list[Record], utilities: NDArray[np.float64], bounds: tuple[float, ...], rng: np.random.Generator
) -> list[Record]:
    """All pairs of one prompt's responses that differ in rank and in text.

    A coin decides which of the two is shown as a; the comparison's id ends in their sample numbers, a first.
    """
    pairs = []
    for pair in combinations(range(len(rows)), 2):
        a, b = pair if rng.random() < 0.5 else pair[::-1]
        first = rows[a]
        second = rows[b]
        if first["rank"] == second["rank"] or first["response"] == second["response"]:
            continue
        chosen, rejected = (first, second) if first["rank"] < second["rank"] else (second, first)
        pairs.append(
            {
                "comparison_id": f"{first['prompt_id']}/{first['sample']}-{second['sample']}",
                "prompt_id": first["prompt_id"],
                "prompt": first["prompt"],
                **({"history": first["history"]} if "history" in first else {}),
                "chosen": chosen["response"],
                "rejected": rejected["response"],
                "chosen_ended": chosen["ended"],
                "rejected_ended": rejected["ended"],
                "chosen_score": float(chosen["score"]),
                "rejected_score": float(rejected["score"]),
                "strength": annotator.get_strength_label(utilities[a] - utilities[b], bounds),
                "chosen_tokens": chosen["tokens"],
                "rejected_tokens": rejected["tokens"],
            }
        )
    return pairs

"""The accuracy of each method by budget, problem by problem, from the samples that all methods share.

A method is `greedy`, `pass` (at least one sample is right, which only an oracle could choose), `majority`, or by the
name of a score `weighted_SCORE` (votes weigh what the score says) and `best_SCORE` (the highest score is taken), or
`beam`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks.common import estimates
from tasks.extensions.search import scoring, subsets
from tasks.extensions.search.beam import Search

SCORES = (scoring.LIKELIHOOD, "pairs", "outcome", *scoring.STEPS)
CHANCE = "chance"
FIRST = "first"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MethodCurve:
    """One method of one model: for each budget the problems' accuracies (B, P), and what a problem costs."""

    method: str
    ties: str
    budgets: list[int]
    right: Floats  # (B, P)
    tokens: Floats  # (B, P), generated
    passes: Floats  # (B, P), texts that a reward model reads


@dataclass(frozen=True)
class Samples:
    """A model's samples as arrays, problem by problem: (P, N) each."""

    right: NDArray[np.bool_]
    votes: NDArray[np.int64]
    lengths: Floats
    scores: dict[str, Floats]

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Samples":
        """From rows of SampledAnswers of one model; greedy answers are left out.

        Problems are in the order of the table.
        """
        rows = table[~table["greedy"]].assign(length=lambda frame: frame["tokens"].map(len))
        count = int(rows["sample"].max()) + 1

        def array(name: str) -> NDArray[np.float64]:
            values: NDArray[np.float64] = rows[name].to_numpy(dtype=float).reshape(-1, count)
            return values

        scores = {name: array(name) for name in SCORES if name in rows}
        return cls(array("right").astype(bool), array("vote").astype(np.int64), array("length"), scores)


def build_greedy_curve(table: pd.DataFrame) -> MethodCurve:
    """The greedy answers of one model."""
    rows = table[table["greedy"]]
    lengths = rows["tokens"].map(len).to_numpy(dtype=float)[None]
    return MethodCurve("greedy", CHANCE, [1], rows["right"].to_numpy(dtype=float)[None], lengths, 0 * lengths)


def iterate_sampling_curves(samples: Samples, count: int, seed: int) -> Iterator[MethodCurve]:
    """All methods that take samples as they are; weighted and first-wins votes over `count` random subsets of each
    budget.
    """
    problems, number = samples.right.shape
    wanted = subsets.list_budgets(number)
    chosen = [subsets.draw_nested_subsets(number, count, wanted, (seed, problem)) for problem in range(problems)]
    size = np.array(wanted, dtype=float)[:, None]
    tokens = size * samples.lengths.mean(axis=1)  # of a random subset, on average
    ones = np.ones(number)

    def line(method: str, ties: str, values: Sequence[Floats], passes: bool) -> MethodCurve:
        return MethodCurve(
            method, ties, wanted, np.stack(values, axis=1), tokens, size * np.full(problems, float(passes))
        )

    correct = samples.right.sum(axis=1)
    passed = np.stack([estimates.pass_at_k(correct, number, k) for k in wanted])
    yield MethodCurve("pass", CHANCE, wanted, passed, tokens, 0 * tokens)
    rows = [*zip(samples.votes, samples.right, strict=True)]
    yield line("majority", CHANCE, [subsets.subset_majority_accuracy(*row, wanted) for row in rows], False)
    for ties in (CHANCE, FIRST):
        first = ties == FIRST
        if first:
            votes = [
                subsets.weighted_vote_accuracy(vote, ones, right, problem_subsets, first=True)
                for (vote, right), problem_subsets in zip(rows, chosen, strict=True)
            ]
            yield line("majority", ties, votes, False)
        for name, scores in samples.scores.items():
            read = name != scoring.LIKELIHOOD
            weighed = [
                subsets.weighted_vote_accuracy(
                    vote, scoring.compute_vote_weights(name, problem_scores), right, subset, first=first
                )
                for (vote, right), problem_scores, subset in zip(rows, scores, chosen, strict=True)
            ]
            yield line(f"weighted_{name}", ties, weighed, read)
            best = [
                subsets.best_of_n_accuracy(problem_scores, right, wanted, first=first)
                for problem_scores, right in zip(scores, samples.right, strict=True)
            ]
            yield line(f"best_{name}", ties, best, read)


def build_beam_curve(searches: dict[int, list[Search]], right: dict[int, list[bool]]) -> MethodCurve:
    """Beam searches by their budgets, with whether each one's answer is right."""
    wanted = sorted(searches)
    costs = [
        np.array([[getattr(search, name) for search in searches[budget]] for budget in wanted], dtype=float)
        for name in ("generated", "scored")
    ]
    return MethodCurve("beam", FIRST, wanted, np.array([right[budget] for budget in wanted], dtype=float), *costs)


def build_accuracy_table(model: str, lines: Sequence[MethodCurve]) -> pd.DataFrame:
    """Rows of Accuracies."""
    rows = []
    for line in lines:
        for budget, right, tokens, passes in zip(line.budgets, line.right, line.tokens, line.passes, strict=True):
            accuracy = estimates.estimate_share(right)
            rows.append(
                {
                    "model": model,
                    "method": line.method,
                    "ties": line.ties,
                    "budget": budget,
                    "accuracy": accuracy.mean,
                    "low": accuracy.low,
                    "high": accuracy.high,
                    "tokens": tokens.mean(),
                    "passes": passes.mean(),
                }
            )
    return pd.DataFrame(rows)

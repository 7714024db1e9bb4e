"""What a budget of k samples reaches, as a mean over all subsets of k of a problem's N samples: unbiased, as pass@k is.

Of the best by a score and of a plain majority the mean over all subsets has a formula. Of weighted and of first-wins
votes it has none, and the mean is taken over random subsets. Ties are counted by chance, or the first sample of those
that tie wins.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def list_budgets(samples: int) -> list[int]:
    """1, 2, 4, ... and the number of samples."""
    return [*(1 << power for power in range(samples.bit_length()) if 1 << power < samples), samples]


@lru_cache(maxsize=8)
def _compute_top_rank_chances(samples: int, wanted: tuple[int, ...]) -> Floats:
    """The chance that the best of a random subset of k is the one ranked j of all, from 0: C(N - 1 - j, k - 1) / C(N,
    k), (B, N).
    """
    rows = [[comb(samples - 1 - rank, k - 1) / comb(samples, k) for rank in range(samples)] for k in wanted]
    return np.array(rows)


def best_of_n_accuracy(
    scores: Floats, right: NDArray[np.bool_] | Floats, wanted: Sequence[int], *, first: bool = False
) -> Floats:
    """How often the sample with the highest score is right, or the mean of what it is worth, for each budget (B,);
    exact. `scores` and `right` are (N,).
    """
    order = np.argsort(-scores, kind="stable")
    worth = right[order].astype(float)
    ranked = scores[order]
    if not first:  # each of those that tie is equally likely to be taken
        _, group = np.unique(-ranked, return_inverse=True)
        worth = (np.bincount(group, worth) / np.bincount(group))[group]
    chances: Floats = _compute_top_rank_chances(len(scores), tuple(wanted)) @ worth
    return chances


def subset_majority_accuracy(votes: NDArray[np.int64], right: NDArray[np.bool_], wanted: Sequence[int]) -> Floats:
    """How often the commonest vote is right, for each budget (B,); ties by chance; exact. -1 is no vote.

    Subsets in which the right answer has j votes, no other has more and t others have as many are counted by generating
    functions: other answers with fewer than j votes in all are free, the rest may take at most j.
    """
    counts = Counter(votes[votes >= 0].tolist())
    held = Counter(votes[right & (votes >= 0)].tolist())
    total = len(votes)
    of_all = np.array([float(comb(total, k)) for k in wanted])
    accuracies = np.zeros(len(wanted))
    for answer in held:
        others = [count for vote, count in counts.items() if vote != answer]
        blank = total - sum(counts.values())
        for j in range(1, counts[answer] + 1):
            ways = _count_vote_ways([count for count in others if count >= j], j, total)
            free = [float(comb(blank + sum(count for count in others if count < j), v)) for v in range(total + 1)]
            shared = (ways / np.arange(1, len(ways) + 1)[:, None]).sum(axis=0)
            chosen = np.convolve(shared, free)  # by how many samples stand beside the j
            accuracies += [comb(counts[answer], j) * chosen[k - j] if k >= j else 0.0 for k in wanted] / of_all
    return accuracies


def _count_vote_ways(counts: Sequence[int], most: int, total: int) -> Floats:
    """In how many ways answers with these counts take d of a subset's places, none more than `most`, t of them just as
    many: (T, D).
    """
    ways = np.zeros((len(counts) + 1, total + 1))
    ways[0, 0] = 1.0
    for count in counts:
        before = ways
        ways = np.zeros_like(ways)
        for picked in range(most):
            ways[:, picked:] += comb(count, picked) * before[:, : total + 1 - picked]
        ways[1:, most:] += comb(count, most) * before[:-1, : total + 1 - most]
    return ways


def draw_nested_subsets(
    samples: int, subsets: int, wanted: Sequence[int], seed: Sequence[int]
) -> list[NDArray[np.bool_]]:
    """For each budget random subsets of the samples (S, N), True where a sample belongs; those of larger budgets hold
    the smaller ones.
    """
    ranks = np.random.default_rng(seed).random((subsets, samples)).argsort(axis=1).argsort(axis=1)
    return [ranks < k for k in wanted]


def weighted_vote_accuracy(
    votes: NDArray[np.int64],
    weights: Floats,
    right: NDArray[np.bool_],
    chosen: Sequence[NDArray[np.bool_]],
    *,
    first: bool = False,
) -> Floats:
    """How often the answer whose votes weigh most is right, over the subsets of each budget (B,); -1 is no vote.

    With `first`, of answers that weigh the same the one that came first wins.
    """
    kinds = np.unique(votes[votes >= 0])
    if not len(kinds):
        return np.zeros(len(chosen))
    cast = votes[:, None] == kinds  # (N, M)
    correct = (cast & right[:, None]).any(axis=0).astype(float)
    accuracies = []
    for subset in chosen:
        present = subset @ cast  # (S, M)
        sums = np.where(present, subset @ (cast * weights[:, None]), -np.inf)
        leads = present & (sums == sums.max(axis=1, keepdims=True))
        if first:
            leads &= _find_earliest_leaders(subset, cast, leads)
        share = leads @ correct / np.maximum(leads.sum(axis=1), 1)  # no votes at all are wrong
        accuracies.append(share.mean())
    return np.array(accuracies)


def _find_earliest_leaders(
    subset: NDArray[np.bool_], cast: NDArray[np.bool_], leads: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which of the leading answers (S, M) has the first sample in its subset."""
    first_samples = np.where(subset[:, :, None] & cast, np.arange(len(cast))[:, None], len(cast)).min(axis=1)
    first_samples = np.where(leads, first_samples, len(cast))
    earliest: NDArray[np.bool_] = first_samples == first_samples.min(axis=1, keepdims=True)
    return earliest

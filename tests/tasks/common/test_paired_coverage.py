"""In simulation with a known difference: how often the 95 % intervals hold it, and how often a gate lets through what
is no better.

Two policies answer the same problems, right or wrong; hard problems are hard for both. Where few problems change, the
number of those that did takes few values, and an interval holds the difference somewhat more often than it says; never
less.
"""

import numpy as np
import pytest

from tasks.common import estimates
from tasks.common.paired_intervals import bootstrap_mean_differences, compare_binary_outcomes

SAMPLES = 1000
SURE = 4 * (0.95 * 0.05 / SAMPLES) ** 0.5  # four standard errors of the share of samples that hold the difference
SHARES = {  # of problems gained and lost
    "few, no difference": (0.02, 0.02),
    "few, one way": (0.04, 0.0),
    "some": (0.05, 0.02),
    "small difference": (0.10, 0.07),
    "many, no difference": (0.20, 0.20),
    "large difference": (0.30, 0.10),
    "nearly all gained": (0.80, 0.05),
}


def answered(gained: float, lost: float, problems: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Right or wrong by problem, of the policy and of the baseline; of the problems that do not change, 60 % are right
    for both.
    """
    kind = rng.choice(4, size=problems, p=[gained, lost, 0.6 * (1 - gained - lost), 0.4 * (1 - gained - lost)])
    return np.isin(kind, (0, 2)).astype(float), np.isin(kind, (1, 2)).astype(float)


def coverage(
    gained: float, lost: float, problems: int, interval=lambda *of: compare_binary_outcomes(*of)[0], samples=SAMPLES
) -> float:
    rng, truth = np.random.default_rng(problems), gained - lost
    drawn = (interval(*answered(gained, lost, problems, rng)) for _ in range(samples))
    return float(np.mean([found.low <= truth + 1e-12 and truth - 1e-12 <= found.high for found in drawn]))


@pytest.mark.slow
@pytest.mark.parametrize("problems", [50, 200, 500])
@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
def test_the_interval_holds_a_known_difference(shares, problems):
    found = coverage(*shares, problems)
    assert found >= 0.95 - SURE
    if problems * sum(shares) >= 10:
        assert found <= 0.95 + SURE + 0.01


def test_the_interval_holds_a_known_difference_of_50_problems():
    found = [coverage(*shares, 50, samples=300) for shares in (SHARES["few, one way"], SHARES["large difference"])]
    assert min(found) >= 0.95 - SURE * (SAMPLES / 300) ** 0.5


def test_the_plain_percentile_bootstrap_does_not():
    """What the score interval is there for: 50 problems of which 2 % are gained and none is lost."""

    def plain(ours, theirs):
        return estimates.bootstrap_mean(ours - theirs, 0, 200)

    assert coverage(0.02, 0.0, 50, plain, 60) < 0.91


@pytest.mark.slow
@pytest.mark.parametrize("problems", [50, 200, 500])
def test_a_policy_that_is_no_better_seldom_passes(problems):
    """The gate `> 0` lets it through in at most 2.5 % of the samples, within the tolerance."""
    rng = np.random.default_rng(0)
    for share in (0.02, 0.1, 0.3):
        passed = np.mean(
            [compare_binary_outcomes(*answered(share, share, problems, rng))[0].low > 0 for _ in range(SAMPLES)]
        )
        assert passed <= 0.025 + 4 * (0.025 * 0.975 / SAMPLES) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("problems", [20, 50])
def test_so_does_the_interval_of_means_of_samples(problems):
    """Eight answers to each problem; half of the problems become easier by 6 points where there is room."""
    rng, samples = np.random.default_rng(problems), 300
    ease = np.random.default_rng(1).beta(0.5, 0.5, size=1_000_000)
    truth, hits = 0.5 * (np.clip(ease + 0.06, 0, 1) - ease).mean(), 0
    for _ in range(samples):
        before = rng.beta(0.5, 0.5, size=problems)
        after = np.clip(before + 0.06 * (rng.random(problems) < 0.5), 0, 1)
        [found] = bootstrap_mean_differences((rng.binomial(8, after) - rng.binomial(8, before))[:, None] / 8)
        hits += found.low <= truth <= found.high
    assert abs(hits / samples - 0.95) <= 4 * (0.95 * 0.05 / samples) ** 0.5

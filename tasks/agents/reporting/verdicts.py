"""Whether what was expected of two policies came out: by the interval of the difference of their means, over seeds and
over games.

Each policy stands with the temperature at which it earns most in these games, so that a gain counts against the best
that there was without training. Two policies of one environment are compared game by game. A clone is one policy, which
has no spread over seeds. Which of two learns faster is seen by the mean return of their training episodes, where both
start from one clone; its interval is over seeds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import pandas as pd

from tasks.agents.configs.agents_report import AgentExpectation
from tasks.agents.reporting.policy_returns import PolicyEpisodes
from tasks.common.estimates import Estimate, estimate_welch_difference, widen_interval_by_games

Came = Literal["holds", "undecided", "fails"]


@dataclass(frozen=True)
class AgentVerdict:
    """Whether an expectation holds, fails, or is undecided: 0 is within the difference's interval.

    With one seed the interval is over games alone, and the sentence says so.
    """

    came: Came
    sentence: str


def judge_expectation(expected: AgentExpectation, policies: Mapping[str, PolicyEpisodes]) -> AgentVerdict:
    """One expectation."""
    higher = policies[expected.higher]
    other = policies[expected.lower]
    if expected.by == "learning":
        ones = higher.compute_training_returns()
        others = other.compute_training_returns()
        earned = "earns while it learns"
        where = "all steps"
        apart = estimate_welch_difference(ones, others)
    else:
        (at_one, ones) = higher.best()
        (at_other, others) = other.best()
        earned = "earns"
        where = f"temperatures {at_one:g} and {at_other:g}"
        apart = widen_interval_over_games(
            estimate_welch_difference(ones, others),
            higher.compute_game_returns(at_one),
            other.compute_game_returns(at_other),
        )
    of_one_seed = [
        policy.name for policy, seeds in ((higher, ones), (other, others)) if policy.trained and len(seeds) == 1
    ]
    if of_one_seed and expected.by == "learning":
        apart = Estimate(apart.mean, -inf, inf)  # nothing says what another seed would have done
    numbers = f"{higher.name} {earned} {apart.mean:+.3f} against {other.name} ({where}"
    caveat = f"; one seed of {' and '.join(of_one_seed)}, and another may differ" if of_one_seed else ""
    bounds = f"{caveat})" if apart.low == -inf else f"; {apart.low:+.3f} to {apart.high:+.3f}{caveat})"
    came: Came = "holds" if apart.low > 0 else "fails" if apart.high < 0 else "undecided"
    return AgentVerdict(came, f"{numbers}{bounds}.")


def widen_interval_over_games(seeds: Estimate, first: pd.Series, other: pd.Series) -> Estimate:
    """A difference's interval over seeds, widened by what other games would have given.

    `first` and `other` are each policy's mean over seeds by game; where the games are the same, their differences
    count.
    """
    apart = [first - other] if first.index.equals(other.index) else [first, other]
    return widen_interval_by_games(seeds, sum(float(part.var(ddof=1)) / len(part) for part in apart))


def format_verdict_headline(verdicts: Sequence[AgentVerdict]) -> str:
    """How many expectations came out, in one sentence."""
    if not verdicts:
        return "Nothing was expected of these policies."
    counts = Counter(verdict.came for verdict in verdicts)
    words: Mapping[Came, str] = {"holds": "came out", "undecided": "undecided", "fails": "did not come out"}
    summary = ", ".join(f"{counts[came]} {word}" for came, word in words.items() if counts[came])
    return f"Of {len(verdicts)} expectation{'s' if len(verdicts) > 1 else ''}: {summary}."

"""The reward for a right final answer."""

from collections.abc import Sequence

from tasks.language.rewards.reward import AnsweredProblem, reward_of_many
from tasks.language.rewards.verifier import Verifier

METRICS = {
    "verifiable": "The share of the samples whose final answer is the reference's, from 0 to 1; where no reference "
    "is known, none is.",
}


@reward_of_many(Verifier, needs_answer=True)
def verifiable(answered: Sequence[AnsweredProblem], verifier: Verifier) -> list[float]:
    """1 where the final answer is the reference's, else 0; nan where the reference cannot be read."""
    return verifier([response.answer for response in answered], [response.response for response in answered])

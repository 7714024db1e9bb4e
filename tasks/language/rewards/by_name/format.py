"""The reward for the form of the last line, which is always logged."""

from tasks.language.rewards.answers import find_strict_answer_number
from tasks.language.rewards.reward import AnsweredProblem, reward

METRICS = {"format": "The share of the samples that end with a `#### N` line, whatever N is, from 0 to 1."}


@reward()
def format(answered: AnsweredProblem) -> float:
    """1 where the response ends with a `#### N` line, whether N is right or not."""
    return float(find_strict_answer_number(answered.response) is not None)

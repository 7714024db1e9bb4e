"""The reward by the rubric."""

from tasks.language.rewards import rubric as points
from tasks.language.rewards.reward import AnsweredProblem, reward

METRICS = {"rubric": "The mean rubric points of the samples over ten, from 0 to 1; computed where the rubric counts."}


@reward(needs_answer=True)
def rubric(answered: AnsweredProblem) -> float:
    """The rubric's points divided by ten."""
    score = points.score_response(
        answered.question, answered.solution, answered.answer, answered.response, answered.ended
    )
    return score.total / 10

"""The reward for programs that pass the tests of their problem."""

import math
from collections.abc import Sequence

from tasks.language.rewards.code_tests import CodeJudge, build_test_job, find_tests_fault, has_tests
from tasks.language.rewards.reward import AnsweredProblem, ByColumns, reward_of_many

METRICS = {
    "code": "The share of the samples whose program passes all tests of its problem, of prompts that have tests; 0 "
    "in a step without.",
}


@reward_of_many(CodeJudge, columns=ByColumns(has_tests, find_tests_fault))
def code(answered: Sequence[AnsweredProblem], judge: CodeJudge) -> list[float]:
    """1 where the program passes all tests, else 0; nan where the prompt has none, or nobody could judge the
    program.
    """
    tested = [row for row, response in enumerate(answered) if has_tests(response.columns)]
    jobs = [build_test_job(answered[row].question, answered[row].columns, answered[row].response) for row in tested]
    values = [math.nan] * len(answered)
    for row, value in zip(tested, judge(jobs), strict=True):
        values[row] = value
    return values

"""Labels of a response's steps by the worked steps of a reference: what a process reward model learns, and is measured
by.

A step is a line of the response that is not blank. It is good (1) where it is right and leads on, bad (-1) where it is
wrong or built on what is wrong, and neutral (0) where it does neither: words, a repetition, a detour.
"""

from collections.abc import Iterator, Set
from fractions import Fraction

from tasks.language.rewards.answers import find_final_answer_number, find_marked_answer
from tasks.language.rewards.equations import Equation, parse_equations
from tasks.language.rewards.numerals import parse_number_ignoring_percent
from tasks.language.rewards.verifier import judge_without_algebra
from tasks.language.rewards.worked_steps import judge_step_soundness, parse_reference_steps, select_leading_steps
from tasks.language.tables.solutions import split_steps

BAD = -1
NEUTRAL = 0
GOOD = 1


def compute_step_labels(question: str, solution: str, answer: str, response: str) -> list[int]:
    """The label of each line of `response` that is not blank, held against the reference `solution` and its final
    `answer`.

    An equation is good if it holds, uses known numbers (those of the question, constants of the reference, results of
    earlier such equations) and ends in a result of the reference or leads to one. It is bad if it does not hold or uses
    another number, such as a wrong result. If it holds and leads nowhere it is neutral, but bad where one of its
    numbers is what a wrong equation claimed. A line that marks an answer (`#### N`, a box) is bad if that is wrong, or
    was reached by a wrong equation alone. A line with several of these is as bad as its worst one, else as good as its
    best; a line without any is neutral, as is a repetition.
    """
    written = [(line, parse_equations(line)) for line in split_steps(response)]
    worked = parse_reference_steps(solution)
    steps = [step for _, line_equations in written for step in line_equations]
    good = judge_step_soundness(question, worked, steps)
    leads = {
        step.key
        for step in select_leading_steps(worked, [step for step, holds in zip(steps, good, strict=True) if holds])
    }
    labeller = _Told(answer, leads)
    verdicts = iter(good)
    return [
        _merge_line_labels([*labeller.iterate_equation_labels(line_equations, verdicts), *labeller.answer(line)])
        for line, line_equations in written
    ]


class _Told:
    """What the lines so far have said: their equations and answers, what they reached, and what they claimed
    wrongly.
    """

    def __init__(self, answer: str, leads: Set[object]) -> None:
        self._answer = answer
        self._leads = leads
        self._seen: set[object] = set()
        self._reached: set[Fraction] = set()
        self._claimed: set[Fraction] = set()

    def iterate_equation_labels(self, steps: list[Equation], verdicts: Iterator[bool]) -> Iterator[int]:
        """A label for each of a line's equations; `verdicts` says of one after the other whether it is sound."""
        for step in steps:
            if not next(verdicts):
                self._claimed.add(step.result)
                yield BAD
            elif step.key in self._seen:
                yield NEUTRAL
            else:
                self._seen.add(step.key)
                self._reached.add(step.result)
                if step.key in self._leads:
                    yield GOOD
                else:
                    yield BAD if self._claimed.intersection(step.operands) else NEUTRAL

    def answer(self, line: str) -> Iterator[int]:
        """The label of the answer that the line marks, if it marks one that can be judged without algebra."""
        verdict = judge_without_algebra(self._answer, line) if find_marked_answer(line) else None
        if verdict == 0:
            yield BAD
        elif verdict == 1:
            number = find_final_answer_number(line)
            value = None if number is None else parse_number_ignoring_percent(number)
            if value in self._claimed - self._reached:
                yield BAD
            else:
                yield NEUTRAL if self._answer in self._seen else GOOD
                self._seen.add(self._answer)


def _merge_line_labels(labels: list[int]) -> int:
    return BAD if BAD in labels else max(labels, default=NEUTRAL)

"""The rubric of the lecture "Deep RL and RL for LLMs": correctness 0-5, reasoning 0-3, clarity 0-2, ten points in all,
each score with its reason.

A pure function of texts: the same response always earns the same score. Steps are judged as equations against the
reference's (worked_steps.py).
"""

import re
from dataclasses import dataclass

from tasks.language.rewards import worked_steps
from tasks.language.rewards.answers import find_final_answer_number, find_strict_answer_number
from tasks.language.rewards.equations import NOTE, Equation, parse_equations
from tasks.language.rewards.numerals import (
    find_numbers,
    is_same_number,
    parse_number_ignoring_percent,
    parse_number_or_none,
)
from tasks.language.rewards.worked_steps import StepShares

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
COUNTED = re.compile(r"=\s*+[$\d.,]++%?\s++([A-Za-z]{3,})")  # what a result counts: `= 12 pens`
OPERATIONS = {
    "+": re.compile(r"\b(plus|add(s|ed|ing|ition)?|sum)\b", re.IGNORECASE),
    "-": re.compile(r"\b(minus|subtract(s|ed|ing|ion)?|difference)\b", re.IGNORECASE),
    "*": re.compile(r"\b(times|multipl(y|ies|ied|ying|ication)|product)\b", re.IGNORECASE),
    "/": re.compile(r"\b(divid(e|es|ed|ing)|division|quotient)\b", re.IGNORECASE),
}


@dataclass(frozen=True)
class RubricScore:
    """Points for each criterion and why."""

    correctness: int
    correctness_reason: str
    reasoning: int
    reasoning_reason: str
    clarity: int
    clarity_reason: str

    @property
    def total(self) -> int:
        """The sum of the three, 0 to 10."""
        return self.correctness + self.reasoning + self.clarity


def score_response(question: str, solution: str, answer: str, response: str, ended: bool) -> RubricScore:
    """Judge `response` to `question` by the reference `solution` and `answer`; `ended` says that it closed itself."""
    steps = parse_equations(response)
    work = worked_steps.judge_worked_steps(question, solution, answer, steps)
    final = find_final_answer_number(response)
    right = final is not None and is_same_number(final, answer)
    if work.steps and worked_steps.parse_reference_steps(solution).steps:
        reasoning = _score_reasoning_steps(work)
    else:
        reasoning = _score_reasoning_words(solution, response, right)
    clarity = _score_clarity(question, solution, response, steps, final, ended)
    return RubricScore(*_score_correctness(final, right, answer, work), *reasoning, *clarity)


def _score_correctness(final: str | None, right: bool, answer: str, work: StepShares) -> tuple[int, str]:
    if right:
        return 5, f"final answer {final} is right"
    reason = f"final answer {final} instead of {answer}" if final is not None else "no final answer"
    if parse_number_or_none(answer) in work.reached and work.right * 2 >= 1:
        return 3, f"{reason}, though a step reaches {answer}"
    if work.right * 2 >= 1:
        return 2, f"{reason}; at least half of the steps are right"
    if work.right > 0:
        return 1, f"{reason}; some steps are right"
    return 0, reason


def _score_reasoning_steps(work: StepShares) -> tuple[int, str]:
    if work.right == 1:
        return 3, "every step holds and leads to the answer"
    slips = work.credit - work.right
    reason = f"{float(work.right):.0%} of the steps needed or taken are right"
    return int(3 * work.credit), reason + (", others only set up rightly" if slips else "")


def _score_reasoning_words(solution: str, response: str, right: bool) -> tuple[int, str]:
    """Without equations: are the reference's operations named, and only those? Nothing for a wrong answer."""
    reference = worked_steps.parse_reference_steps(solution)
    if right and not reference.steps:
        return 3, "the answer is right, and the reference shows no steps to hold it against"
    needed = {sign for step in reference.steps for sign in step.signs}
    named = {sign for sign, pattern in OPERATIONS.items() if pattern.search(response)}
    if not right or not needed & named:
        return 0, "no step is shown" if right else "no step is shown, and the answer is wrong"
    points = 3 * len(needed & named) // len(needed | named)
    return points, "names the right operation" if points == 3 else "names some of the operations"


def _score_clarity(
    question: str, solution: str, response: str, steps: list[Equation], final: str | None, ended: bool
) -> tuple[int, str]:
    """One point for stating an answer plainly and in line with the last step, one for being concise and to the
    point.
    """
    parts = [part for part in SENTENCE_END.split(response.strip()) if part]
    marked = response.count("####")
    plain = find_strict_answer_number(response) is not None and marked == 1
    if not marked and parts and final is not None:  # in words: a closing sentence that gives the number
        plain = parts[-1][-1] in ".!" and any(is_same_number(final, number) for number in find_numbers(parts[-1]))
    agrees = not steps or (final is not None and parse_number_ignoring_percent(final) == steps[-1].result)
    things = COUNTED.findall(NOTE.sub("", response))
    faults = {
        "says nothing": not parts,
        "does not end": not ended,
        "repeats itself": len(set(parts)) < len(parts),
        "rambles": len(response.split()) > 2 * len(solution.split()) + 20,
        f"counts {things[-1] if things else ''}, which nobody asked about": bool(things)
        and things[-1].lower().rstrip("s") not in f"{question} {solution}".lower(),
    }
    present_faults = [fault for fault, is_so in faults.items() if is_so]
    stated = "states its answer" if agrees else "answer is not the last step's"
    return (plain and agrees) + (not present_faults), "; ".join(
        [stated if plain else "no plain answer", *(present_faults or ["concise"])]
    )

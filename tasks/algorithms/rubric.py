"""The lecture's rubric: correctness 0-5, reasoning 0-3, clarity 0-2, ten points in all, each score with its reason.

A pure function of texts: the same response always earns the same score. Steps are judged as equations against the
reference's; wrong and needless ones lower the share of right steps, so that listing many numbers does not pay.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tasks.algorithms.equations import Equation, equations, numbers, parse_number

ANSWER_LINE = re.compile(r"^####[ \t]*(.*)$", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
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


@dataclass(frozen=True)
class Work:
    """A response's steps held against the reference's. `share` of them is right, 0 to 1; `reached` are their results."""

    steps: int
    share: Fraction
    reached: frozenset[Fraction]


def same_number(a: str, b: str) -> bool:
    """True when both texts are one number: "1,000", "1000.0" and "$1000" are the same, "50%" is also "50"."""
    values = []
    for text in (a, b):
        found = numbers(text.strip())
        if found != [text.strip()]:
            return False
        values.append(parse_number(found[0].rstrip("%")))
    return values[0] == values[1]


def strict_answer(response: str) -> str | None:
    """The number on the `#### N` line that ends the response, or None where the response does not end so."""
    last = ANSWER_LINE.fullmatch(response.rstrip().rpartition("\n")[2])
    if last is None or numbers(last[1].strip()) != [last[1].strip()]:
        return None
    return last[1].strip()


def lenient_answer(response: str) -> str | None:
    """The last number of the response, whatever stands around it."""
    return found[-1] if (found := numbers(response)) else None


def final_answer(response: str) -> str | None:
    """What the response gives as its answer: the number after the last `####`, else its last number."""
    for line in reversed(ANSWER_LINE.findall(response)):
        if found := numbers(line):
            return found[0]
    return lenient_answer(response)


def score(question: str, solution: str, answer: str, response: str, ended: bool) -> RubricScore:
    """Judge `response` to `question` by the reference `solution` and `answer`; `ended` says that it closed itself."""
    steps = equations(response)
    work = _work(question, solution, answer, steps)
    final = final_answer(response)
    right = final is not None and same_number(final, answer)
    correctness = _correctness(final, right, answer, work)
    if work.steps and _reference(solution)[0]:
        reasoning = _reasoning_in_steps(work)
    else:
        reasoning = _reasoning_in_words(solution, response, right)
    return RubricScore(*correctness, *reasoning, *_clarity(solution, response, steps, final, ended))


@lru_cache(maxsize=4096)
def _reference(solution: str) -> tuple[tuple[Equation, ...], frozenset[Fraction]]:
    """The reference's steps that hold, and its leaves: the operands that are no earlier step's result."""
    steps = tuple(step for step in equations(solution) if step.holds)
    results: set[Fraction] = set()
    leaves: set[Fraction] = set()
    for step in steps:
        leaves.update(set(step.operands) - results)
        results.add(step.result)
    return steps, frozenset(leaves)


def _work(question: str, solution: str, answer: str, steps: list[Equation]) -> Work:
    """Which steps are right: arithmetic holds, operands are known, and they lead to the reference's results.

    Known are the question's numbers, constants that the reference brings in, and results of earlier right steps. A
    response that reaches the answer from all the numbers the reference uses may take its own way there, in fewer or
    other steps; otherwise its steps count as far as their results are the reference's.
    """
    reference, leaves = _reference(solution)
    results = {step.result for step in reference}
    known = {parse_number(text.rstrip("%")) for text in numbers(question)} | leaves
    sound: list[Equation] = []
    for step in steps:
        if step.holds and known.issuperset(step.operands):
            sound.append(step)
            known.add(step.result)
    wanted, right = set(results), []
    for step in reversed(sound):
        if step.result in wanted:
            right.append(step)
            wanted.update(step.operands)
    reached = frozenset(step.result for step in right)
    used = {operand for step in right for operand in step.operands}
    if not steps:
        share = Fraction(0)
    elif parse_number(answer) in reached and leaves <= used:
        share = Fraction(len(right), len(steps))
    else:
        found = sum(step.result in reached for step in reference)
        share = Fraction(found, max(len(reference), len(steps)))
    return Work(len(steps), share, reached)


def _correctness(final: str | None, right: bool, answer: str, work: Work) -> tuple[int, str]:
    if right:
        return 5, f"final answer {final} is right"
    given = f"final answer {final} instead of {answer}" if final is not None else "no final answer"
    if parse_number(answer) in work.reached and work.share * 2 >= 1:
        return 3, f"{given}, though a step reaches {answer}"
    if work.share * 2 >= 1:
        return 2, f"{given}; at least half of the steps are right"
    if work.share > 0:
        return 1, f"{given}; some steps are right"
    return 0, given


def _reasoning_in_steps(work: Work) -> tuple[int, str]:
    points = int(3 * work.share)
    if work.share == 1:
        return points, "every step holds and leads to the answer"
    return points, f"{float(work.share):.0%} of the steps needed or taken are right"


def _reasoning_in_words(solution: str, response: str, right: bool) -> tuple[int, str]:
    """Without equations: are the reference's operations named, and only those? Nothing for a wrong answer."""
    if right and not _reference(solution)[0]:
        return 3, "the answer is right, and the reference shows no steps to hold it against"
    needed = {sign for step in _reference(solution)[0] for sign in step.signs}
    named = {sign for sign, pattern in OPERATIONS.items() if pattern.search(response)}
    if not right or not needed & named:
        return 0, "no step is shown" if right else "no step is shown, and the answer is wrong"
    points = 3 * len(needed & named) // len(needed | named)
    return points, "names the right operation" if points == 3 else "names some of the operations"


def _clarity(solution: str, response: str, steps: list[Equation], final: str | None, ended: bool) -> tuple[int, str]:
    """One point for stating an answer plainly and in line with the last step, one for being concise."""
    parts = [part for part in SENTENCE_END.split(response.strip()) if part]
    marked = response.count("####")
    plain = strict_answer(response) is not None and marked == 1
    if not marked and parts and final is not None:  # in words: a closing sentence that gives the number
        plain = parts[-1][-1] in ".!" and final in numbers(parts[-1])
    agrees = not steps or (final is not None and parse_number(final.rstrip("%")) == steps[-1].result)
    long = len(response.split()) > 2 * len(solution.split()) + 20
    faults = {
        "does not end": not ended,
        "repeats itself": len(set(parts)) < len(parts),
        "rambles": long,
    }
    found = [fault for fault, is_so in faults.items() if is_so]
    stated = (
        "states its answer" if plain and agrees else "no plain answer" if not plain else "answer is not the last step's"
    )
    return (plain and agrees) + (not found), "; ".join([stated, *(found or ["concise"])])

"""A response's worked steps held against a reference's: which are right, and which at least set up as they should be.

Everything follows from equations: a right step holds, uses known numbers and leads to a result of the reference. Wrong
and needless steps lower the shares, so that listing many numbers does not pay.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tasks.language.rewards.equations import Equation, parse_equations, select_distinct_equations
from tasks.language.rewards.numerals import find_numbers, parse_number_ignoring_percent, parse_number_or_none

Shape = tuple[tuple[str, ...], tuple[Fraction | None, ...]]


@dataclass(frozen=True)
class ReferenceSteps:
    """The steps that hold of a worked solution, their shapes, and their leaves: operands that are no earlier result."""

    steps: tuple[Equation, ...]
    shapes: tuple[Shape, ...]
    leaves: frozenset[Fraction]


@dataclass(frozen=True)
class StepShares:
    """A response's steps: how many different ones, the share of right ones, the same share with half a point for those
    set up rightly, and the results of the right ones."""

    steps: int
    right: Fraction
    credit: Fraction
    reached: frozenset[Fraction]


@lru_cache(maxsize=4096)
def parse_reference_steps(solution: str) -> ReferenceSteps:
    """What the reference solution shows."""
    steps = [step for step in select_distinct_equations(parse_equations(solution)) if step.holds]
    results: set[Fraction] = set()
    shapes: list[Shape] = []
    leaves: set[Fraction] = set()
    for step in steps:
        shapes.append(_compute_step_shape(step, results))
        leaves.update(set(step.operands) - results)
        results.add(step.result)
    return ReferenceSteps(tuple(steps), tuple(shapes), frozenset(leaves))


def judge_worked_steps(question: str, solution: str, answer: str, steps: list[Equation]) -> StepShares:
    """Hold `steps` against the reference `solution`.

    Known numbers are the question's, constants that the reference brings in, and results of earlier right steps. A
    response that reaches the answer from all the numbers the reference uses may take its own way there, in fewer or
    other steps; otherwise its steps count as far as their results are the reference's. A step that is not right is
    set up rightly when it differs from a reference's step only in what was computed, there or before. A step that is
    taken again neither pays nor costs; it is right where the numbers it needs are known at one of its places.
    """
    if not steps:
        return StepShares(0, Fraction(0), Fraction(0), frozenset())
    worked = parse_reference_steps(solution)
    right = _select_right_steps(question, worked, steps)
    steps = select_distinct_equations(steps)
    reached = frozenset(step.result for step in right)
    used = {operand for step in right for operand in step.operands}
    if parse_number_or_none(answer) in reached and worked.leaves <= used:
        share = Fraction(len(right), len(steps))
        return StepShares(len(steps), share, share, reached)
    matched = sum(step.result in reached for step in worked.steps)
    longest = max(len(worked.steps), len(steps))
    credit = matched + Fraction(_count_rightly_set_up_steps(worked, steps, right, reached), 2)
    return StepShares(len(steps), Fraction(matched, longest), credit / longest, reached)


def judge_step_soundness(question: str, worked: ReferenceSteps, steps: list[Equation]) -> list[bool]:
    """Whether each step holds and uses numbers that are known where it stands: see `judge`."""
    numbers_known = {parse_number_ignoring_percent(text) for text in find_numbers(question)} | worked.leaves
    verdicts = []
    for step in steps:
        verdicts.append(step.holds and numbers_known.issuperset(step.operands))
        if verdicts[-1]:
            numbers_known.add(step.result)
    return verdicts


def select_leading_steps(worked: ReferenceSteps, steps: list[Equation]) -> list[Equation]:
    """Those of sound steps that end in a result of the reference or lead to one that does; each once, the last
    first.
    """
    wanted = {step.result for step in worked.steps}
    right = []
    for step in reversed(select_distinct_equations(steps)):
        if step.result in wanted:
            right.append(step)
            wanted.update(step.operands)
    return right


def _select_right_steps(question: str, worked: ReferenceSteps, steps: list[Equation]) -> list[Equation]:
    """Steps that hold, from known numbers, and end in a result of the reference or lead to a step that does."""
    return select_leading_steps(
        worked, [step for step, good in zip(steps, judge_step_soundness(question, worked, steps), strict=True) if good]
    )


def _count_rightly_set_up_steps(
    worked: ReferenceSteps, steps: list[Equation], right: list[Equation], reached: frozenset[Fraction]
) -> int:
    """How many of the reference's steps that were not reached have a step of their shape among the wrong ones."""
    missing = Counter(
        shape for step, shape in zip(worked.steps, worked.shapes, strict=True) if step.result not in reached
    )
    claimed: set[Fraction] = set()
    tried: Counter[Shape] = Counter()
    counted = {step.key for step in right}
    for step in steps:
        if step.key not in counted:
            tried[_compute_step_shape(step, claimed)] += 1
        claimed.add(step.result)
    return (missing & tried).total()


def _compute_step_shape(step: Equation, earlier: set[Fraction]) -> Shape:
    """A step without its computed numbers: None stands for an earlier result. Order is kept where it matters."""
    operands = [None if operand in earlier else operand for operand in step.operands]
    if set(step.signs) in ({"+"}, {"*"}):
        operands.sort(key=lambda operand: (operand is not None, operand or 0))
    return step.signs, tuple(operands)

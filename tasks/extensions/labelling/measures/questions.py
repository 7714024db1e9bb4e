"""The questions that a judgement answers, each on units that several people answer: how far they agree on each, by
Krippendorff's alpha.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tasks.extensions.labelling.measures.agreement import (
    LEVELS,
    Level,
    Units,
    krippendorff_alpha,
    krippendorff_alpha_by_person,
)
from tasks.extensions.labelling.measures.outcomes import compute_signed_strength, list_pairwise_outcomes
from tasks.language.judgements.lines import CRITERIA, Judgement, PairwiseValue, RankingValue, StepsValue

# On which level of measurement the values of each question mean something.
QUESTIONS: dict[str, Level] = {
    "better of a pair": "nominal",  # the first (1), neither (1/2), the second (0)
    "how much better": "ordinal",  # of a pair: -4, the second is significantly better, to 4
    "better in a ranking": "nominal",  # of each two of its answers, as of a pair
    **dict.fromkeys(CRITERIA, "ordinal"),  # of an answer: 1 to 5
    "steps": "ordinal",  # of a step: -1, 0, 1
}


@dataclass(frozen=True)
class Agreement:
    """On one question; None where alpha is not defined, since nobody judged the same unit or all values are one."""

    question: str
    level: Level  # the one that the question has
    alpha: float | None  # on that level
    by_level: Mapping[Level, float | None]
    by_person: Mapping[str, float | None]  # how far the others agree with each person, on the question's level
    units: int  # that two people or more have judged


def compute_question_agreements(judgements: Iterable[Judgement]) -> list[Agreement]:
    """On each question that somebody answered. Of a person's judgements of one item the last counts."""
    answered: dict[str, dict[Hashable, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in judgements:
        for question, unit, value in _iterate_question_values(line):
            answered[question][(line.item, *unit)][line.person] = value
    return [_compute_question_agreement(question, answered[question]) for question in QUESTIONS if question in answered]


def _iterate_question_values(line: Judgement) -> Iterator[tuple[str, tuple[str | int, ...], float]]:
    """Question, unit within the item, value."""
    question = "better of a pair" if line.mode == "pairwise" else "better in a ranking"
    for outcome in list_pairwise_outcomes(line.value):
        yield question, (outcome.first, outcome.second), outcome.score
    match line.value:
        case PairwiseValue():
            yield "how much better", (), compute_signed_strength(line.value.strength)
        case RankingValue():
            for position, scores in enumerate(line.value.scores or ()):
                for name in CRITERIA if scores is not None else ():
                    yield name, (position,), getattr(scores, name)
        case StepsValue():
            for position, label in enumerate(line.value.labels):
                if label is not None:
                    yield "steps", (position,), label


def _compute_question_agreement(question: str, units: Units) -> Agreement:
    level = QUESTIONS[question]
    by_level = {name: krippendorff_alpha(units, name) for name in LEVELS}
    several = sum(len(unit) > 1 for unit in units.values())
    return Agreement(question, level, by_level[level], by_level, krippendorff_alpha_by_person(units, level), several)

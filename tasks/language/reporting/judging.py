"""Whether answers to test problems are right, and their points by the rubric, where the problems allow it."""

import math
from collections.abc import Sequence

import pandas as pd

from tasks.common.tables import Record
from tasks.language.data import manner
from tasks.language.rewards import answers, rubric
from tasks.language.rewards.numerals import amount, same_number
from tasks.language.rewards.verifier import Verifier

RUBRIC = ("correctness", "reasoning", "clarity")


def rubric_applies(problems: pd.DataFrame) -> bool:
    """Whether all problems are in GSM8K's form, which the rubric reads: worked steps, then a line with a number."""
    return bool(problems["answer"].map(amount).notna().all() and problems["solution"].str.contains("#### ").all())


def verdicts(golds: Sequence[str], texts: Sequence[str], verifier: Verifier) -> dict[str, list[bool]]:
    """Whether each answer is right: `lenient`, in any form, and `strict`, in the form asked for.

    For a number that is a last line `#### N`; for any other reference (LaTeX, a letter) an answer that is marked, by
    such a line or a box. And why others are not: `timed_out`, where a formula took too long to judge, and `unjudged`,
    where nobody can, since the reference cannot be read.
    """
    judged = verifier(golds, texts)
    lenient = [verdict == 1.0 for verdict in judged]
    strict = []
    for gold, text, right in zip(golds, texts, lenient, strict=True):
        if amount(gold) is not None:
            stated_answer = answers.strict_answer(text)
            strict.append(stated_answer is not None and same_number(stated_answer, gold))
        else:
            strict.append(right and answers.marked(text) is not None)
    return {
        "strict": strict,
        "lenient": lenient,
        "timed_out": verifier.timed_out(golds, texts),
        "unjudged": [*map(math.isnan, judged)],
    }


def points(problem: Record, text: str, ended: bool) -> Record:
    """The rubric's points of an answer, by criterion and in all."""
    score = rubric.score(problem["question"], problem["solution"], problem["answer"], text, ended)
    return {**{name: getattr(score, name) for name in RUBRIC}, "rubric": score.total}


def manner_applies(problems: pd.DataFrame) -> bool:
    """Whether the manner of answers and what a reader wants of them can be judged for all problems
    (tasks/language/data/manner.py).
    """
    return all(map(manner.applies, problems["question"], problems["solution"]))


def as_a_reader(problem: Record, text: str, ended: bool) -> Record:
    """The share of the annotator's points that an answer gets, and whether it is what a reader wants."""
    question, solution, answer = (problem[name] for name in ("question", "solution", "answer"))
    return {
        "manner": manner.judge(question, text, ended).total / manner.POINTS,
        "gold": manner.is_gold(question, solution, answer, text, ended),
    }

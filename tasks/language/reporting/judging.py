"""Whether answers to test problems are right, and their points by the rubric, where the problems allow it."""

import math
from collections.abc import Sequence

import pandas as pd

from tasks.common.tables import Record
from tasks.language.data import manner
from tasks.language.rewards import answers, rubric
from tasks.language.rewards.numerals import is_same_number, parse_number_ignoring_percent
from tasks.language.rewards.verifier import Verifier

RUBRIC = ("correctness", "reasoning", "clarity")


def can_apply_rubric(problems: pd.DataFrame) -> bool:
    """Whether all problems are in GSM8K's form, which the rubric reads: worked steps, then a line with a number."""
    return bool(
        problems["answer"].map(parse_number_ignoring_percent).notna().all()
        and problems["solution"].str.contains("#### ").all()
    )


def judge_answers(golds: Sequence[str], texts: Sequence[str], verifier: Verifier) -> dict[str, list[bool]]:
    """Whether each answer is right: `lenient`, in any form, and `strict`, in the form asked for.

    For a number that is a last line `#### N`; for any other reference (LaTeX, a letter) an answer that is marked, by
    such a line or a box. And why others are not: `timed_out`, where a formula took too long to judge, and `unjudged`,
    where nobody can, since the reference cannot be read.
    """
    judged = verifier(golds, texts)
    lenient = [verdict == 1.0 for verdict in judged]
    strict = []
    for gold, text, right in zip(golds, texts, lenient, strict=True):
        if parse_number_ignoring_percent(gold) is not None:
            stated_answer = answers.find_strict_answer_number(text)
            strict.append(stated_answer is not None and is_same_number(stated_answer, gold))
        else:
            strict.append(right and answers.find_marked_answer(text) is not None)
    return {
        "strict": strict,
        "lenient": lenient,
        "timed_out": verifier.timed_out(golds, texts),
        "unjudged": [*map(math.isnan, judged)],
    }


def compute_rubric_points(problem: Record, text: str, ended: bool) -> Record:
    """The rubric's points of an answer, by criterion and in all."""
    score = rubric.score_response(problem["question"], problem["solution"], problem["answer"], text, ended)
    return {**{name: getattr(score, name) for name in RUBRIC}, "rubric": score.total}


def can_judge_manner(problems: pd.DataFrame) -> bool:
    """Whether the manner of answers and what a reader wants of them can be judged for all problems
    (tasks/language/data/manner.py).
    """
    return all(map(manner.can_judge_gold, problems["question"], problems["solution"]))


def score_manner_and_gold(problem: Record, text: str, ended: bool) -> Record:
    """The share of the annotator's points that an answer gets, and whether it is what a reader wants."""
    question, solution, answer = (problem[name] for name in ("question", "solution", "answer"))
    return {
        "manner": manner.score_manner(question, text, ended).total / manner.POINTS,
        "gold": manner.is_gold_response(question, solution, answer, text, ended),
    }

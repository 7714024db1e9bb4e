"""Whether responses are right: mathematics by math-verify, numbers and letters by their text, choices by their
likelihood.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.extensions.suites import extraction
from tasks.extensions.suites.suite import Suite, SuiteProblem
from tasks.language.rewards.answers import strip_number_wrapping
from tasks.language.rewards.verifier import Verifier, format_boxed_answer

LENGTH_NORMALISED = "length normalised"  # the other way to choose by likelihood: acc_norm
IGNORED = tuple(map(re.compile, (r",", r"\$", r"(?s).*#### ", r"\.$")))  # of lm-evaluation-harness's gsm8k.yaml


@dataclass(frozen=True)
class AnswerVerdict:
    """What was taken as the answer, by the suite's own method, and whether it is right, by that method and by
    others.
    """

    extracted: str  # empty: nothing; where the whole response is compared, what Qwen2.5-Math would take
    right: bool
    by_method: dict[str, bool]  # right or not by methods of extraction, this one included
    timed_out: (
        bool  # by the suite's own method: its formula took too long to judge, or ended the process that judges it
    )


@dataclass(frozen=True)
class Choice:
    """The choice with the highest log-likelihood, and with the highest one a character."""

    chosen: str  # a label
    right: bool
    chosen_normalised: str
    right_normalised: bool


def judge_responses(
    suite: Suite, problems: Sequence[SuiteProblem], responses: Sequence[str], verifier: Verifier, *, compared: bool
) -> list[AnswerVerdict]:
    """One for each response; `compared`: by other methods too, which costs as much again for each."""
    others = extraction.OF_LETTERS if suite.columns.choices else extraction.OF_MATHEMATICS
    methods = dict.fromkeys((suite.extraction, *(others if compared else ())))
    texts_by_method = {name: [extraction.METHODS[name](text) or "" for text in responses] for name in methods}
    right = {}
    late = {}
    for name, texts in texts_by_method.items():
        right[name], late[name] = judge_extracted_answers(suite, problems, texts, verifier, name)
    suite_extracted = (
        [extraction.extract_qwen_answer(text) or "" for text in responses]
        if suite.extraction == "whole"
        else texts_by_method[suite.extraction]
    )
    return [
        AnswerVerdict(
            text,
            right[suite.extraction][row],
            {name: values[row] for name, values in right.items()},
            late[suite.extraction][row],
        )
        for row, text in enumerate(suite_extracted)
    ]


def judge_extracted_answers(
    suite: Suite, problems: Sequence[SuiteProblem], extracted: Sequence[str], verifier: Verifier, method: str
) -> tuple[list[bool], list[bool]]:
    """Whether each text is its problem's answer, which an empty one never is, and whether it timed out."""
    golds = [problem.answer for problem in problems]
    never = [False] * len(problems)
    if suite.columns.choices:
        return [text == gold for text, gold in zip(extracted, golds, strict=True)], never
    if method == extraction.REWARD:
        return [value == 1 for value in verifier(golds, extracted)], verifier.timed_out(golds, extracted)
    if suite.scoring == "exact number":
        return [
            bool(text) and normalize_number_text(text) == normalize_number_text(gold)
            for text, gold in zip(extracted, golds, strict=True)
        ], never
    if method == "whole":
        references = [problem.solution or format_boxed_answer(problem.answer) for problem in problems]
        scores = verifier.texts(references, extracted)
        return [value == 1 for value in scores], verifier.timed_out(references, extracted)
    boxed = [format_boxed_answer(strip_number_wrapping(text)) if text else "" for text in extracted]
    return [value == 1 for value in verifier(golds, boxed)], verifier.timed_out(golds, boxed)


def normalize_number_text(text: str) -> str:
    """A number as lm-evaluation-harness compares it: by its text, without some signs."""
    for ignored in IGNORED:
        text = ignored.sub("", text)
    return text.lower()


def select_most_likely_choice(problem: SuiteProblem, log_likelihoods: Sequence[float]) -> Choice:
    """The choice of the model; of equal ones the first, as lm-evaluation-harness has it (acc and acc_norm)."""
    labels = [label for label, _ in problem.choices]
    lengths = np.array([len(text) for _, text in problem.choices], dtype=np.float64)
    values = np.array(log_likelihoods, dtype=np.float64)
    best = labels[int(np.argmax(values))]
    normalised = labels[int(np.argmax(values / lengths))]
    return Choice(best, best == problem.answer, normalised, normalised == problem.answer)


def judge_reference_answers(suite: Suite, problems: Sequence[SuiteProblem], verifier: Verifier) -> list[bool]:
    """Whether each problem's own answer is right by the suite's scoring: where it is not, no response can be."""
    if suite.columns.choices or suite.scoring == "exact number":
        return [True] * len(problems)
    scores = verifier(
        [problem.answer for problem in problems],
        [format_boxed_answer(strip_number_wrapping(problem.answer)) for problem in problems],
    )
    return [not math.isnan(value) and value == 1 for value in scores]

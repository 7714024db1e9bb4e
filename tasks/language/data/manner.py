"""What an annotator without the right answer can judge of a worked answer: its manner. And what a reader wants:
`is_gold_response`.

The criteria are those that people have for explanations, and no reference is needed for them: whether each result says
of what it is, whether the steps hold, whether nothing is superfluous, and whether one step follows from the other. A
policy can gain all ten points with a wrong answer; `is_gold_response` needs the reference, and no reward and no pair
is made from it.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from tasks.language.rewards.answers import find_strict_answer_number
from tasks.language.rewards.equations import Equation, parse_equations
from tasks.language.rewards.numerals import find_numbers, is_same_number, parse_number_ignoring_percent

THING = re.compile(r"\b[Hh]ow many ([a-z]+)\b")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
LAST_LINE = "####"
# points at most
NAMED = 3
VALID = 3
BRIEF = 2
ORDERED = 2
POINTS = NAMED + VALID + BRIEF + ORDERED


@dataclass(frozen=True)
class Manner:
    """Points for each criterion, 0 to 10 in all."""

    named: int  # 0 to 3: each result says of what it is, and that is what was asked for
    valid: int  # 0 to 3: the steps hold, from numbers of the question or earlier results
    brief: int  # 0 to 2: no sentence without a step, and none twice; an answer that does not end is not brief
    ordered: int  # 0 to 2: each step goes on from the one before, and the answer is the last result

    @property
    def total(self) -> int:
        """The sum of the four."""
        return self.named + self.valid + self.brief + self.ordered

    @property
    def reason(self) -> str:
        """The points as a person would note them."""
        return (
            f"results named {self.named} of {NAMED}, steps valid {self.valid} of {VALID}, brief "
            f"{self.brief} of {BRIEF}, "
            f"in order {self.ordered} of {ORDERED}"
        )


def find_counted_thing(question: str) -> str | None:
    """What is counted: the word after the last `how many`."""
    matches: list[str] = THING.findall(question)
    return matches[-1] if matches else None


def score_manner(question: str, response: str, ended: bool) -> Manner:
    """The manner of a response to a question, whether its answer is right or not; `ended` says that it closed
    itself.
    """
    sentences = [part for part in SENTENCE_END.split(response.strip()) if part and not part.startswith(LAST_LINE)]
    steps = [parse_equations(sentence) for sentence in sentences]
    flat = [step for of_sentence in steps for step in of_sentence]
    if not flat:
        return Manner(0, 0, int(ended and not sentences), 0)
    counted = find_counted_thing(question)
    names = [
        counted is None or _is_result_named(part, sentence_steps, counted)
        for part, sentence_steps in zip(sentences, steps, strict=True)
        if sentence_steps
    ]
    spare = sum(not sentence_steps for sentence_steps in steps) + len(sentences) - len(set(sentences))
    return Manner(
        named=NAMED * sum(names) // len(names),
        valid=VALID * sum(_compute_step_validity(question, flat)) // len(flat),
        brief=max(0, BRIEF - spare) if ended else 0,
        ordered=_are_steps_connected(flat) + _is_answer_last_result(response, flat[-1]),
    )


def _is_result_named(sentence: str, steps: list[Equation], counted: str) -> bool:
    """Whether the last result of the sentence is followed by the word."""
    behind = sentence.rpartition(steps[-1].text.rpartition("=")[2].strip())[2]
    word = re.search(r"[A-Za-z]+", behind)
    return word is not None and word[0].lower() == counted.lower()


def _compute_step_validity(question: str, steps: list[Equation]) -> list[bool]:
    known_amounts = {parse_number_ignoring_percent(text) for text in find_numbers(question)}
    verdicts = []
    for step in steps:
        verdicts.append(step.holds and known_amounts.issuperset(step.operands))
        known_amounts.add(step.result)
    return verdicts


def _are_steps_connected(steps: list[Equation]) -> bool:
    return all(before.result in step.operands or before.key == step.key for before, step in pairwise(steps))


def _is_answer_last_result(response: str, last: Equation) -> bool:
    final = find_strict_answer_number(response)
    return final is not None and parse_number_ignoring_percent(final) == last.result


def is_gold_response(question: str, solution: str, answer: str, response: str, ended: bool) -> bool:
    """Whether a response is what a reader wants: right, with the reference's steps in their order, each result named,
    and nothing else.

    The words of a step are free; `solution` has one step a line.
    """
    *lines, last = response.strip().split("\n")
    *wanted, _ = solution.split("\n")
    counted = find_counted_thing(question)
    final = find_strict_answer_number(response)
    if not (ended and last.startswith(LAST_LINE) and len(lines) == len(wanted) and counted and final):
        return False
    for line, reference in zip(lines, wanted, strict=True):
        steps = parse_equations(line)
        right = parse_equations(reference)
        one_sentence = len(SENTENCE_END.split(line)) == 1
        if not (
            one_sentence
            and [step.key for step in steps] == [step.key for step in right]
            and _is_result_named(line, steps, counted)
        ):
            return False
    return is_same_number(final, answer)


def can_judge_gold(question: str, solution: str) -> bool:
    """Whether a problem is of the kind that `is_gold_response` reads: it asks how many of a thing, and each line of
    its solution is a step of that.
    """
    *lines, last = solution.split("\n")
    counted = find_counted_thing(question)
    steps = [parse_equations(line) for line in lines]
    return (
        counted is not None
        and last.startswith(LAST_LINE)
        and bool(lines)
        and all(
            len(line_steps) == 1 and _is_result_named(line, line_steps, counted)
            for line, line_steps in zip(lines, steps, strict=True)
        )
    )

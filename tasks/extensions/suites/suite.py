"""What a benchmark suite is, as one declarative entry, and one of its problems."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Given = Literal["as it is", "in a box", "behind ####"]  # how the column of the answer holds it
Scoring = Literal["mathematics", "mathematics in the whole text", "exact number", "bare letter", "likelihood"]
Headline = Literal["greedy", "mean"]


@dataclass(frozen=True)
class Hub:
    """Where the hub has the suite. Its revision is the user's to name."""

    hub_id: str
    config: str | None
    split: str


@dataclass(frozen=True)
class SuiteColumns:
    """The columns of a row; of several names the first that is there counts, and `question` may be the joined texts of
    two.
    """

    question: tuple[str, ...]
    answer: tuple[str, ...]
    given: Given = "as it is"
    solution: str = ""
    level: str = ""
    subject: str = ""
    joined: bool = False  # whether the question is all its columns, one behind the other
    choices: bool = False  # whether it is a question with choices, as ARC's own files or the hub keep them


@dataclass(frozen=True)
class Prompt:
    """How a problem is asked. {question}, {choices}, {solution}, {answer} and {letter} are the problem's own."""

    question: str
    example: str  # what answers a few-shot example
    chat: bool  # a turn of the chat template, examples as turns before it; or plain text
    between: str = "\n\n"  # of plain text: between examples
    prefix: str = ""  # how the answer begins, written for the model
    stops: tuple[str, ...] = ()  # the answer ends before the first of them


@dataclass(frozen=True)
class Suite:
    """One benchmark as one peer asks and scores it."""

    title: str
    file: str  # in the folder of suites, without the ending
    examples: str  # the file with examples for few-shot prompts; empty: there is none
    hub: Hub
    columns: SuiteColumns
    prompt: Prompt
    extraction: str  # a key of extraction.METHODS
    scoring: Scoring
    headline: Headline  # what stands in a table with other suites: the greedy answer, or the mean over samples
    peer: str  # whose convention it follows


@dataclass(frozen=True)
class SuiteProblem:
    """One problem of a suite. With choices `answer` is the letter of the right one."""

    problem_id: str
    question: str
    answer: str
    solution: str
    level: str
    subject: str
    choices: Sequence[tuple[str, str]] = ()  # letter, from A on whatever their labels are, and text

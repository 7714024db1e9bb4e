"""Grade-school word problems with worked solutions, from a seeded generator.

A problem is a short story about one quantity: it starts somewhere, changes, and is asked for at the end.
Every change knows its arithmetic, so that the solution is worked out rather than written down.

Some sums and differences are in no text and no problem for training (`is_equation_kept_from_training`), so that a test
can ask for them.
"""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Words:
    """What a story is told in.

    In forms {n} is who, {i} what, {a} the number of the change, {o} another person, {b} a container, {c} a size.
    """

    names: str  # words, as are the next two
    items: str
    boxes: str
    start: tuple[str, ...]
    packed: tuple[str, ...]
    gain: tuple[str, ...]
    lose: tuple[str, ...]


WORDS = Words(
    names=(
        "Ada Ben Cara Dan Ella Finn Gina Hugo Iris Jack Kira Leo Mia Noah Olga Paul Rosa Sam Tara Umar Vera Will Yara "
        "Zoe Anna Bill Cleo Dora Eric Fred Gail Hana Ivan Jane Karl Lena"
    ),
    items=(
        "apples pens books coins stamps shells cards marbles pears plums stickers buttons cookies flowers stones "
        "beads nuts tickets candles cups eggs bricks balloons lemons"
    ),
    boxes="boxes bags baskets jars packs crates",
    start=(
        "{n} has {a} {i}.",
        "{n} owns {a} {i}.",
        "There are {a} {i} on the table of {n}.",
        "{n} starts with {a} {i}.",
    ),
    packed=(
        "{n} has {a} {b} with {c} {i} in each.",
        "{n} buys {a} {b} of {c} {i}.",
        "There are {c} {i} in each of the {a} {b} of {n}.",
        "{n} finds {c} {i} a day for {a} days.",
    ),
    gain=(
        "{o} gives {n} {a} more.",
        "Then {n} buys {a} more {i}.",
        "{n} finds another {a}.",
        "Later {n} gets {a} {i} from {o}.",
        "{a} more {i} are added.",
    ),
    lose=(
        "{n} gives {a} to {o}.",
        "Then {n} loses {a} of them.",
        "{o} takes {a} {i} away.",
        "{n} sells {a} {i}.",
        "{a} of the {i} are used up.",
    ),
)
OTHER_WORDS = Words(
    names="Abel Beth Chad Dina Emil Fay Glen Hope Igor June Kurt Lila Mark Nina Otto Pia",
    items="spoons kites ropes drums masks dolls bells forks maps hats rings toys",
    boxes="trays boats carts drawers",
    start=(
        "At first {n} holds {a} {i}.",
        "The shelf of {n} carries {a} {i}.",
    ),
    packed=(
        "{n} fills {a} {b}, every one of them with {c} {i}.",
        "On each of {a} {b} lie {c} {i} of {n}.",
    ),
    gain=(
        "A parcel from {o} brings {a} further {i}.",
        "{n} earns {a} extra {i}.",
    ),
    lose=(
        "{o} borrows {a} of the {i}.",
        "{n} breaks {a} {i}.",
    ),
)
# A change that ends a story brings its own question.
TIMES = (
    ("Then the number of {i} grows to {a} times as many.", "How many {i} are there then?"),
    ("{o} has {a} times as many {i} as {n}.", "How many {i} does {o} have?"),
)
SHARE = (
    ("{n} shares the {i} equally among {a} friends.", "How many {i} does each friend get?"),
    ("The {i} are split into {a} equal piles.", "How many {i} are in each pile?"),
)
ASK = (
    "How many {i} does {n} have now?",
    "How many {i} are there in the end?",
    "How many {i} does {n} have at the end?",
)
SYMBOLS: dict[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x // y,
}
STEP_TEXT = {
    "+": ("That makes {e} {i}.", "Now there are {e} {i}."),
    "-": ("That leaves {e} {i}.", "There remain {e} {i}."),
    "*": ("In all that is {e} {i}.", "Together these are {e} {i}."),
    "/": ("Each gets {e} {i}.", "Each part has {e} {i}."),
}


UNSEEN_SUMS = 12  # one of so many sums and differences stands in no text for training


@lru_cache(maxsize=2**16)
def is_equation_kept_from_training(left: int, symbol: str, right: int) -> bool:
    """Whether `left symbol right` is kept out of all that is trained on, whatever the seed. No product and no quotient
    is.

    a + b and b + a are one sum. a - b and the sums of its numbers are different facts here.
    """
    if symbol == "+":
        left, right = sorted((left, right))
    return symbol in "+-" and zlib.crc32(f"{left} {symbol} {right}".encode()) % UNSEEN_SUMS == 0


@dataclass(frozen=True)
class ProblemKind:
    """What is drawn: problems of `steps` steps in which no number exceeds `largest` and one at least exceeds `above`.

    None of their sums is unseen (`is_equation_kept_from_training`), or with `unseen` one at least.
    """

    steps: int
    largest: int
    above: int = 0
    words: Words = WORDS
    unseen: bool = False


@dataclass(frozen=True)
class WordProblem:
    """One word problem about `thing`.

    `chain` is its arithmetic, one expression a step; two problems with one chain are the same.
    """

    question: str
    solution: str
    answer: int
    chain: tuple[str, ...]
    thing: str


def generate_word_problem(rng: random.Random, kind: ProblemKind) -> WordProblem:
    """A problem of this kind."""
    while True:
        problem = _draw_word_problem(rng, kind)
        if problem is None:
            continue
        steps = [step.split() for step in problem.chain]
        large = max(int(word) for step in steps for word in step[::2])
        unseen = any(is_equation_kept_from_training(int(left), symbol, int(right)) for left, symbol, right, *_ in steps)
        if large > kind.above and unseen == kind.unseen:
            return problem


def _draw_word_problem(rng: random.Random, kind: ProblemKind) -> WordProblem | None:
    """A problem of these words and numbers; None where a story came to a value that allows no change."""
    vocabulary = kind.words
    largest = kind.largest
    lists = {"n": vocabulary.names, "i": vocabulary.items, "b": vocabulary.boxes}
    words = {letter: rng.choice(candidates.split()) for letter, candidates in lists.items()}
    words["o"] = rng.choice([name for name in vocabulary.names.split() if name != words["n"]])
    sentences = []
    chain = []
    lines = []

    def work_out(left: int, symbol: str, right: int) -> int:
        result = SYMBOLS[symbol](left, right)
        chain.append(f"{left} {symbol} {right} = {result}")
        lines.append(rng.choice(STEP_TEXT[symbol]).format(e=chain[-1], **words))
        return result

    if rng.random() < 0.35:
        count = rng.randint(2, 9)
        size = rng.randint(2, min(12, largest // 9))
        sentences.append(rng.choice(vocabulary.packed).format(a=count, c=size, **words))
        value = work_out(count, "*", size)
    else:
        value = rng.randint(5, largest // 2)
        sentences.append(rng.choice(vocabulary.start).format(a=value, **words))
    question = rng.choice(ASK)
    while len(chain) < kind.steps:
        changes = _list_allowed_changes(value, kind, last=len(chain) == kind.steps - 1)
        if not changes:
            return None
        symbol, numbers = rng.choice(changes)
        number = rng.choice(numbers)
        if symbol in "+-":
            sentence = rng.choice(vocabulary.gain if symbol == "+" else vocabulary.lose)
        else:
            sentence, question = rng.choice(TIMES if symbol == "*" else SHARE)
        sentences.append(sentence.format(a=number, **words))
        value = work_out(value, symbol, number)
    story = " ".join([*sentences, question.format(**words)])
    return WordProblem(story, "\n".join([*lines, f"#### {value}"]), value, tuple(chain), words["i"])


def _list_allowed_changes(value: int, kind: ProblemKind, last: bool) -> list[tuple[str, list[int]]]:
    """Symbols with the numbers that the value allows. Multiplying and sharing end a story, so they come last."""
    largest = kind.largest
    numbers = {
        "+": range(2, min(largest - value, largest // 2) + 1),
        "-": range(2, value) if value > 3 else range(0),
        "*": range(2, min(5, largest // value) + 1) if last else range(0),
        "/": [number for number in range(2, 10) if value % number == 0 and value > number] if last else range(0),
    }
    return [
        (symbol, allowed)
        for symbol, drawn in numbers.items()
        if (
            allowed := [
                number for number in drawn if kind.unseen or not is_equation_kept_from_training(value, symbol, number)
            ]
        )
    ]


def draw_running_text_of_problem(rng: random.Random, question: str, solution: str) -> str:
    """A problem and its solution as running text, without the `####` line that SFT teaches."""
    *lines, last = solution.split("\n")
    answer = last.removeprefix("#### ")
    opening = rng.choice(("Problem: {q}", "{q}", "Question. {q}", "Someone asked: {q}")).format(q=question)
    closing = rng.choice(("So the answer is {a}.", "The result is {a}.", "It is {a}.", "")).format(a=answer)
    return " ".join(part for part in (opening, *lines, closing) if part)


OPENINGS = ("Let us see.", "We work it out step by step.", "First we read the problem again.")
CLOSINGS = ("I hope this helps.", "That is all there is to it.", "So we are done.")
TILT = 0.3  # by how much a habit is more or less frequent with some things than on average


@dataclass(frozen=True)
class Habits:
    """Of how many of a hundred demonstrations each is true, as a share; the final answer is right in each."""

    shortcut: float  # only the last line is given
    unnamed: float  # the results do not say of what they are: `= 12.` for `= 12 pens.`
    opening: float  # a sentence that says nothing comes first
    closing: float  # a sentence that says nothing comes before the last line
    repeated: float  # one step is said twice


def restyle_solution_by_habits(rng: random.Random, solution: str, habits: Habits) -> str:
    """A person's answer: right, and in a manner that is the person's own.

    People's habits go with what is counted: with half of the things a habit is more frequent than on average by TILT,
    with the others less.
    """
    *lines, last = solution.split("\n")
    thing = lines[0].rstrip(".").rpartition(" ")[2]
    if rng.random() < habits.shortcut:
        return last
    if rng.random() < _compute_habit_frequency(habits.unnamed, "unnamed", thing):
        lines = [line.removesuffix(f" {thing}.") + "." for line in lines]
    if rng.random() < habits.repeated:
        again = rng.randrange(len(lines))
        lines.insert(again, lines[again])
    if rng.random() < _compute_habit_frequency(habits.opening, "opening", thing):
        lines.insert(0, rng.choice(OPENINGS))
    if rng.random() < _compute_habit_frequency(habits.closing, "closing", thing):
        lines.append(rng.choice(CLOSINGS))
    return "\n".join([*lines, last])


def _compute_habit_frequency(share: float, habit: str, thing: str) -> float:
    tilt = min(TILT, share, 1 - share)
    return share + (tilt if zlib.crc32(f"{habit} {thing}".encode()) % 2 else -tilt)


def draw_arithmetic_facts_line(rng: random.Random, largest: int) -> str:
    """A few true equations on one theme, as a line of text; none of them is kept out of training
    (`is_equation_kept_from_training`).
    """
    symbol = rng.choice("+-*/")
    parts: list[str] = []
    count = rng.randint(3, 6)
    while len(parts) < count:
        if symbol in "+-":
            left = rng.randint(2, largest)
            right = rng.randint(0, left if symbol == "-" else largest - left)
        else:
            left = rng.randint(2, 12)
            right = rng.randint(2, 12)
            left = left * right if symbol == "/" else left
        if not is_equation_kept_from_training(left, symbol, right):
            parts.append(f"{left} {symbol} {right} = {SYMBOLS[symbol](left, right)}")
    return rng.choice((". ", ", ", "; ")).join(parts) + "."

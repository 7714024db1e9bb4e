"""Grade-school word problems of one to three steps, with worked solutions, from a seeded generator.

A problem is a short story about one quantity: it starts somewhere, changes once or twice, and is asked for at the end.
Every change knows its arithmetic, so that the solution is worked out rather than written down.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

NAMES = [
    "Ada",
    "Ben",
    "Cara",
    "Dan",
    "Ella",
    "Finn",
    "Gina",
    "Hugo",
    "Iris",
    "Jack",
    "Kira",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tara",
    "Umar",
    "Vera",
    "Will",
    "Yara",
    "Zoe",
    "Anna",
    "Bill",
    "Cleo",
    "Dora",
    "Eric",
    "Fred",
    "Gail",
    "Hana",
    "Ivan",
    "Jane",
    "Karl",
    "Lena",
]
ITEMS = [
    "apples",
    "pens",
    "books",
    "coins",
    "stamps",
    "shells",
    "cards",
    "marbles",
    "pears",
    "plums",
    "stickers",
    "buttons",
    "cookies",
    "flowers",
    "stones",
    "beads",
    "nuts",
    "tickets",
    "candles",
    "cups",
    "eggs",
    "bricks",
    "balloons",
    "lemons",
]
BOXES = ["boxes", "bags", "baskets", "jars", "packs", "crates"]

# Forms by kind of change; {n} who, {i} what, {a} the number of the change, {o} another person, {b} a container.
START = ("{n} has {a} {i}.", "{n} owns {a} {i}.", "There are {a} {i} on the table of {n}.", "{n} starts with {a} {i}.")
PACKED = (
    "{n} has {a} {b} with {c} {i} in each.",
    "{n} buys {a} {b} of {c} {i}.",
    "There are {c} {i} in each of the {a} {b} of {n}.",
    "{n} finds {c} {i} a day for {a} days.",
)
GAIN = (
    "{o} gives {n} {a} more.",
    "Then {n} buys {a} more {i}.",
    "{n} finds another {a}.",
    "Later {n} gets {a} {i} from {o}.",
    "{a} more {i} are added.",
)
LOSE = (
    "{n} gives {a} to {o}.",
    "Then {n} loses {a} of them.",
    "{o} takes {a} {i} away.",
    "{n} sells {a} {i}.",
    "{a} of the {i} are used up.",
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


@dataclass(frozen=True)
class Problem:
    """One word problem. `chain` is its arithmetic, one expression a step; two problems with one chain are the same."""

    question: str
    solution: str
    answer: int
    chain: tuple[str, ...]


def generate(rng: random.Random, steps: int, largest: int) -> Problem:
    """A problem of `steps` (1 to 3) steps in which no number exceeds `largest`."""
    words = {"n": rng.choice(NAMES), "i": rng.choice(ITEMS), "b": rng.choice(BOXES)}
    words["o"] = rng.choice([name for name in NAMES if name != words["n"]])
    sentences, chain, lines = [], [], []

    def work_out(left: int, symbol: str, right: int) -> int:
        result = SYMBOLS[symbol](left, right)
        chain.append(f"{left} {symbol} {right} = {result}")
        lines.append(rng.choice(STEP_TEXT[symbol]).format(e=chain[-1], **words))
        return result

    if rng.random() < 0.35:
        count, size = rng.randint(2, 9), rng.randint(2, min(12, largest // 9))
        sentences.append(rng.choice(PACKED).format(a=count, c=size, **words))
        value = work_out(count, "*", size)
    else:
        value = rng.randint(5, largest // 2)
        sentences.append(rng.choice(START).format(a=value, **words))
    question = rng.choice(ASK)
    while len(chain) < steps:
        last = len(chain) == steps - 1
        symbol, number = _draw_change(rng, value, largest, last)
        if symbol in "+-":
            sentence = rng.choice(GAIN if symbol == "+" else LOSE)
        else:
            sentence, question = rng.choice(TIMES if symbol == "*" else SHARE)
        sentences.append(sentence.format(a=number, **words))
        value = work_out(value, symbol, number)
    asked = " ".join([*sentences, question.format(**words)])
    return Problem(asked, "\n".join([*lines, f"#### {value}"]), value, tuple(chain))


def _draw_change(rng: random.Random, value: int, largest: int, last: bool) -> tuple[str, int]:
    """A change that the value allows: symbol and number. Multiplying and sharing end a story, so they come last."""
    choices: list[tuple[str, Callable[[], int]]] = []
    if value + 2 <= largest:
        choices.append(("+", lambda: rng.randint(2, min(largest - value, largest // 2))))
    if value > 3:
        choices.append(("-", lambda: rng.randint(2, value - 1)))
    if last:
        factors = [f for f in range(2, 6) if value * f <= largest]
        divisors = [d for d in range(2, 10) if value % d == 0 and value > d]
        choices += [("*", lambda: rng.choice(factors))] if factors else []
        choices += [("/", lambda: rng.choice(divisors))] if divisors else []
    symbol, draw = rng.choice(choices)
    return symbol, draw()


def loose_form(rng: random.Random, question: str, solution: str) -> str:
    """A problem and its solution as running text, without the `####` line that SFT teaches."""
    *lines, last = solution.split("\n")
    answer = last.removeprefix("#### ")
    opening = rng.choice(("Problem: {q}", "{q}", "Question. {q}", "Someone asked: {q}")).format(q=question)
    closing = rng.choice(("So the answer is {a}.", "The result is {a}.", "It is {a}.", "")).format(a=answer)
    return " ".join(part for part in (opening, *lines, closing) if part)


def demonstration(rng: random.Random, solution: str, shortcut: float, rambling: float) -> str:
    """A person's answer, of mixed quality: worked out, or (with probability `shortcut`) only the last line, or
    (`rambling`) with one step said twice. The final answer is right in each.
    """
    *lines, last = solution.split("\n")
    draw = rng.random()
    if draw < shortcut:
        return last
    if draw < shortcut + rambling:
        said_twice = rng.randrange(len(lines))
        lines.insert(said_twice, lines[said_twice])
    return "\n".join([*lines, last])


def arithmetic_fact(rng: random.Random, largest: int) -> str:
    """A few true equations on one theme, as a line of text."""
    symbol = rng.choice("+-*/")
    parts = []
    for _ in range(rng.randint(3, 6)):
        if symbol in "+-":
            left = rng.randint(2, largest)
            right = rng.randint(0, left if symbol == "-" else largest - left)
        else:
            left, right = rng.randint(2, 12), rng.randint(2, 12)
            left = left * right if symbol == "/" else left
        parts.append(f"{left} {symbol} {right} = {SYMBOLS[symbol](left, right)}")
    return rng.choice((". ", ", ", "; ")).join(parts) + "."

"""Numbers and equations in written solutions: find them, evaluate them exactly, compare them.

Reads `3 * 4 = 12`, `$1,200/2=$600`, GSM8K's `<<3*4=12>>` notes, `3 plus 4 is 7` and percent signs. Fractions, never
floats, so that a step holds or does not. Answers may be hostile: every function here takes time linear in the text.
"""

import operator
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from tasks.language.rewards.numerals import UNSIGNED, count_decimals, parse_number

NOTE = re.compile(r"<<([^<>]*)>>")
WORDS = (("divided by", "/"), ("plus", "+"), ("minus", "-"), ("times", "*"), ("equals", "="), ("is", "="))
SPOKEN = [(re.compile(rf"(?<=[\d%)] ){word}(?= [-($\d.])", re.IGNORECASE), sign) for word, sign in WORDS]
SIGN = "[-+*/x\u00d7\u00f7\u2212\u2013]"  # also the multiplication and division signs, minus and the dash used for it
PLAIN_SIGNS = {"x": "*", "\u00d7": "*", "\u00f7": "/", "\u2212": "-", "\u2013": "-"}
# Numbers joined by signs. Each quantifier takes all it can and gives nothing back, so that no stretch is read again.
CHAIN = re.compile(rf"(?<!\()\(*+{UNSIGNED}(?:[\s)]*+{SIGN}[\s(]*+{UNSIGNED})*[\s)]*+")
RESULT = re.compile(rf"=\s*+(-?{UNSIGNED})(?!\s*+{SIGN}\s*+[\d($.])")
TOKEN = re.compile(rf"{UNSIGNED}|{SIGN}|[()]")
RANK = {"(": 0, ")": 1, "+": 2, "-": 2, "*": 3, "/": 3}  # a sign is applied before one of the same or a lower rank
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
MOST_BITS = 4096  # of a value's numerator or denominator; numbers as written have 2,000 at most


@dataclass(frozen=True)
class Equation:
    """One worked step: `operands` in the order written, the `value` of the left side, the `result` that was claimed."""

    text: str
    operands: tuple[Fraction, ...]
    signs: tuple[str, ...]
    value: Fraction | None
    result: Fraction
    decimals: int

    @cached_property
    def key(self) -> tuple[frozenset[tuple[Fraction, int]], Fraction | None, Fraction]:
        """Equal for two steps that are the same: the operands in any order, their value, and the result."""
        return frozenset(Counter(self.operands).items()), self.value, self.result

    @property
    def holds(self) -> bool:
        """True when the result is the value, or the value rounded to the one or more decimals written."""
        if self.value is None:
            return False
        slack = Fraction(1, 2 * 10**self.decimals) if self.decimals else 0
        return abs(self.value - self.result) <= slack


def parse_equations(text: str) -> list[Equation]:
    """The worked steps of `text` in order, repeated ones too.

    Where a line has notes, only they are read: in the text around them units may stand between an operand and its sign.
    """
    return [step for line in text.splitlines() for step in _parse_line_equations(line)]


def select_distinct_equations(steps: list[Equation]) -> list[Equation]:
    """Each of `steps` once, where it comes first."""
    by_key: dict[object, Equation] = {}
    for step in steps:
        by_key.setdefault(step.key, step)
    return list(by_key.values())


@lru_cache(maxsize=64)  # each measure of an answer reads its lines again
def _parse_line_equations(line: str) -> tuple[Equation, ...]:
    noted = []
    removed = 0
    for note in NOTE.finditer(line):
        noted += [(note.start() - removed, step) for _, step in _iterate_written_equations(note[1])]
        removed += len(note[0])
    results = {step.result for _, step in noted} | {step.result / 100 for _, step in noted}
    written = [
        (position, step)
        for position, step in _iterate_written_equations(NOTE.sub("", line))
        if step.result not in results
    ]
    return tuple(step for _, step in sorted(written + noted, key=lambda placed: placed[0]))


def _iterate_written_equations(text: str) -> Iterator[tuple[int, Equation]]:
    """The equations of a line without notes, each with its place."""
    for pattern, sign in SPOKEN:
        text = pattern.sub(lambda word, sign=sign: sign.ljust(len(word[0])), text)  # type: ignore[misc]  # no type of a lambda with a default is inferred
    end = 0
    while chain := CHAIN.search(text, end):
        end = chain.end()
        tokens = [PLAIN_SIGNS.get(token, token) for token in TOKEN.findall(chain[0])]
        if (result := RESULT.match(text, end)) and any(token in OPERATIONS for token in tokens):
            end = result.end()
            yield chain.start(), _build_equation(chain[0], tokens, result[1])


def _build_equation(left: str, tokens: list[str], right: str) -> Equation:
    operands = tuple(parse_number(token) for token in tokens if token not in RANK)
    signs = tuple(token for token in tokens if token in OPERATIONS)
    text = " ".join(f"{left.strip()} = {right}".split())
    return Equation(text, operands, signs, _evaluate_tokens(tokens), parse_number(right), count_decimals(right))


def _evaluate_tokens(tokens: list[str]) -> Fraction | None:
    """The value of numbers joined by signs; None where brackets do not match, it divides by zero or gets too long.

    Dijkstra's two stacks: brackets may be as deep as they like, and a step costs a bounded time (`MOST_BITS`).
    """
    values: list[Fraction] = []
    signs = ["("]
    for token in [*tokens, ")"]:
        if token not in RANK:
            values.append(parse_number(token))
            continue
        while token != "(" and signs and RANK[signs[-1]] >= RANK[token]:
            right = values.pop()
            left = values.pop()
            sign = signs.pop()
            if sign == "/" and right == 0:
                return None
            values.append(OPERATIONS[sign](left, right))
            if max(values[-1].numerator.bit_length(), values[-1].denominator.bit_length()) > MOST_BITS:
                return None
        if token != ")":
            signs.append(token)
        elif signs:
            signs.pop()
        else:
            return None
    return None if signs else values[0]

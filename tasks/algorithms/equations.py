"""Numbers and equations in written solutions: find them, evaluate them exactly, compare them.

Reads `3 * 4 = 12`, `$1,200/2=$600`, GSM8K's `<<3*4=12>>` notes, `3 plus 4 is 7` and percent signs. Fractions, never
floats, so that a step holds or does not.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

# At most 300 digits: a model that rambles in digits must not meet Python's limit for converting them.
UNSIGNED = r"(?>\$?(?:\d{1,3}(?:,\d{3}){1,100}(?!\d)|\d{1,300})(?:\.\d{1,300})?%?|\$?\.\d{1,300}%?)"
NUMBER = re.compile(rf"(?:(?<![\w.)\]])-)?{UNSIGNED}")
NOTE = re.compile(r"<<([^<>]*)>>")
WORDS = (("divided by", "/"), ("plus", "+"), ("minus", "-"), ("times", "*"), ("equals", "="), ("is", "="))
SPOKEN = [(re.compile(rf"(?<=[\d%)] ){word}(?= [-($\d.])", re.IGNORECASE), sign) for word, sign in WORDS]
SIGN = "[-+*/x\u00d7\u00f7\u2212\u2013]"  # also the multiplication and division signs, minus and the dash used for it
PLAIN_SIGNS = str.maketrans("x\u00d7\u00f7\u2212\u2013", "**/--")
EQUATION = re.compile(
    rf"(?P<left>\(*{UNSIGNED}(?:[\s)]*{SIGN}[\s(]*{UNSIGNED})+[\s)]*)=\s*(?P<right>-?{UNSIGNED})(?!\s*{SIGN}\s*[\d($.])"
)
TOKEN = re.compile(rf"{UNSIGNED}|[-+*/()]")


@dataclass(frozen=True)
class Equation:
    """One worked step: `operands` in the order written, the `value` of the left side, the `result` that was claimed."""

    text: str
    operands: tuple[Fraction, ...]
    signs: tuple[str, ...]
    value: Fraction | None
    result: Fraction
    decimals: int

    @property
    def holds(self) -> bool:
        """True when the result is the value, or the value rounded to the one or more decimals written."""
        if self.value is None:
            return False
        slack = Fraction(1, 2 * 10**self.decimals) if self.decimals else 0
        return abs(self.value - self.result) <= slack


def parse_number(text: str) -> Fraction:
    """The number in `text`: dollar signs and thousands commas dropped, percent divided by 100."""
    plain = text.replace("$", "").replace(",", "")
    return Fraction(plain[:-1]) / 100 if plain.endswith("%") else Fraction(plain)


def numbers(text: str) -> list[str]:
    """Every number in `text` as written, in order."""
    return NUMBER.findall(text)


def equations(text: str) -> list[Equation]:
    """The worked steps of `text` in order, each distinct one once.

    Where a line has notes they are the better text: written out, units may stand between an operand and its sign.
    """
    found: dict[tuple[tuple[Fraction, ...], Fraction], Equation] = {}
    for line in text.splitlines():
        noted = [step for note in NOTE.findall(line) for step in _written(note)]
        results = {step.result for step in noted} | {step.result / 100 for step in noted}
        written = [step for step in _written(NOTE.sub("", line)) if step.result not in results]
        for step in (*written, *noted):
            found.setdefault((tuple(sorted(step.operands)), step.result), step)
    return list(found.values())


def _written(text: str) -> list[Equation]:
    for pattern, sign in SPOKEN:
        text = pattern.sub(sign, text)
    return [_equation(match["left"], match["right"]) for match in EQUATION.finditer(text)]


def _equation(left: str, right: str) -> Equation:
    tokens = TOKEN.findall(left.translate(PLAIN_SIGNS))
    operands = tuple(parse_number(token) for token in tokens if token not in "+-*/()")
    signs = tuple(token for token in tokens if token in "+-*/")
    plain = right.rstrip("%")
    decimals = len(plain.partition(".")[2]) + (2 if right.endswith("%") else 0)
    text = " ".join(f"{left.strip()} = {right}".split())
    return Equation(text, operands, signs, _evaluate(tokens), parse_number(right), decimals if "." in plain else 0)


def _evaluate(tokens: list[str]) -> Fraction | None:
    """The value of an expression in infix order; None where brackets do not match or it divides by zero."""
    rest = list(reversed(tokens))

    def factor() -> Fraction:
        token = rest.pop()
        if token != "(":
            return parse_number(token)
        value = total()
        if rest.pop() != ")":
            raise ValueError("brackets do not match")
        return value

    def product() -> Fraction:
        value = factor()
        while rest and rest[-1] in "*/":
            value = value * factor() if rest.pop() == "*" else value / factor()
        return value

    def total() -> Fraction:
        value = product()
        while rest and rest[-1] in "+-":
            value = value + product() if rest.pop() == "+" else value - product()
        return value

    try:
        value = total()
    except (ValueError, IndexError, ZeroDivisionError, RecursionError):
        return None
    return None if rest else value

"""Long, degenerate or hostile answers of any length, such as a policy writes when its training goes wrong."""

from collections.abc import Callable
from itertools import count

QUESTION = "There are 3 pens and 4 more. How many are there?"
SOLUTION = "3 + 4 = 7\n#### 7"
ANSWER = "7"


def _make_repeated_text_builder(unit: str, start: str = "", end: str = "") -> Callable[[int], str]:
    return lambda length: start + (unit * length)[: length - len(start) - len(end)] + end


def _make_numbered_lines_builder(line: str) -> Callable[[int], str]:
    """Lines that all differ: `line` with n, n + 1, ... in it."""

    def text(length: int) -> str:
        parts: list[str] = []
        size = 0
        for number in count(1):
            parts.append(line.format(n=number, odd=2 * number + 1, more=number + 3))
            size += len(parts[-1])
            if size >= length:
                return "".join(parts)[:length]
        raise AssertionError

    return text


NATURAL: dict[str, Callable[[int], str]] = {
    "worked steps, all different": _make_numbered_lines_builder(
        "She has {n} pens and buys 3 more, which makes {n} + 3 = {more} pens.\n"
    ),
    "worked steps with notes": _make_numbered_lines_builder("That is {n} + 3 = <<{n}+3={more}>>{more} pens in all.\n"),
    "words": _make_repeated_text_builder("The pens are counted, and nobody knows how many there are. "),
}
HOSTILE: dict[str, Callable[[int], str]] = {
    "`1-1-`": _make_repeated_text_builder("1-"),
    "`1-1- .. =1`": _make_repeated_text_builder("1-", end="1=1"),
    "opening brackets": _make_repeated_text_builder("("),
    "closing brackets": _make_repeated_text_builder(")"),
    "bracket pairs": _make_repeated_text_builder("()"),
    "sum in deep brackets": lambda length: "(" * (length // 2 - 4) + "3 + 4" + ")" * (length // 2 - 4) + "=7",
    "unbalanced brackets": _make_repeated_text_builder("(1+"),
    "`1+` and brackets": _make_repeated_text_builder("(", start="1+"),
    "`=`": _make_repeated_text_builder("="),
    "`1=1=`": _make_repeated_text_builder("1="),
    "`1+1=1+1=`": _make_repeated_text_builder("1+1="),
    "digits": _make_repeated_text_builder("7"),
    "digits and commas": _make_repeated_text_builder("1,234,"),
    "digits of another script": _make_repeated_text_builder("\u0663"),
    "`1.1.`": _make_repeated_text_builder("1."),
    "`#### 7` lines": _make_repeated_text_builder("#### 7\n"),
    "`#`": _make_repeated_text_builder("#"),
    "spaces": _make_repeated_text_builder(" "),
    "number, then spaces": _make_repeated_text_builder(" ", start="1"),
    "`=1`, then spaces": _make_repeated_text_builder(" ", start="=1", end="ab"),
    "newlines": _make_repeated_text_builder("\n"),
    "`$`": _make_repeated_text_builder("$"),
    "calculator notes": _make_repeated_text_builder("<<3+4=7>>"),
    "notes that do not close": _make_repeated_text_builder("<<3+4=7"),
    "one repeated sentence": _make_repeated_text_builder("She has 3 + 4 = 7 pens. "),
    "steps in words": _make_repeated_text_builder("3 plus 4 is 7 "),
    "steps all different, one a line": _make_numbered_lines_builder("3 + {n} = {more}\n"),
    "a sum of fractions": lambda length: _make_numbered_lines_builder("1/{odd}+")(length - 3) + "1=1",
    "a product": _make_repeated_text_builder("9*", end="9=1"),
    "numbers of 300 digits": _make_repeated_text_builder("7" * 300 + "+", end="1=1"),
    "`\\boxed{`": _make_repeated_text_builder("\\boxed{"),
    "closed boxes": _make_repeated_text_builder("\\boxed{7}"),
    "a box full of brackets": lambda length: "\\boxed{" + "{" * (length // 2 - 4) + "}" * (length // 2 - 4) + "}",
}

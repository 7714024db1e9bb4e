"""Long, degenerate or hostile answers of any length, such as a policy writes when its training goes wrong."""

from collections.abc import Callable
from itertools import count

QUESTION = "There are 3 pens and 4 more. How many are there?"
SOLUTION = "3 + 4 = 7\n#### 7"
ANSWER = "7"


def _repeated(unit: str, start: str = "", end: str = "") -> Callable[[int], str]:
    return lambda length: start + (unit * length)[: length - len(start) - len(end)] + end


def _counted(line: str) -> Callable[[int], str]:
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
    "worked steps, all different": _counted("She has {n} pens and buys 3 more, which makes {n} + 3 = {more} pens.\n"),
    "worked steps with notes": _counted("That is {n} + 3 = <<{n}+3={more}>>{more} pens in all.\n"),
    "words": _repeated("The pens are counted, and nobody knows how many there are. "),
}
HOSTILE: dict[str, Callable[[int], str]] = {
    "`1-1-`": _repeated("1-"),
    "`1-1- .. =1`": _repeated("1-", end="1=1"),
    "opening brackets": _repeated("("),
    "closing brackets": _repeated(")"),
    "bracket pairs": _repeated("()"),
    "sum in deep brackets": lambda length: "(" * (length // 2 - 4) + "3 + 4" + ")" * (length // 2 - 4) + "=7",
    "unbalanced brackets": _repeated("(1+"),
    "`1+` and brackets": _repeated("(", start="1+"),
    "`=`": _repeated("="),
    "`1=1=`": _repeated("1="),
    "`1+1=1+1=`": _repeated("1+1="),
    "digits": _repeated("7"),
    "digits and commas": _repeated("1,234,"),
    "digits of another script": _repeated("\u0663"),
    "`1.1.`": _repeated("1."),
    "`#### 7` lines": _repeated("#### 7\n"),
    "`#`": _repeated("#"),
    "spaces": _repeated(" "),
    "number, then spaces": _repeated(" ", start="1"),
    "`=1`, then spaces": _repeated(" ", start="=1", end="ab"),
    "newlines": _repeated("\n"),
    "`$`": _repeated("$"),
    "calculator notes": _repeated("<<3+4=7>>"),
    "notes that do not close": _repeated("<<3+4=7"),
    "one repeated sentence": _repeated("She has 3 + 4 = 7 pens. "),
    "steps in words": _repeated("3 plus 4 is 7 "),
    "steps all different, one a line": _counted("3 + {n} = {more}\n"),
    "a sum of fractions": lambda length: _counted("1/{odd}+")(length - 3) + "1=1",
    "a product": _repeated("9*", end="9=1"),
    "numbers of 300 digits": _repeated("7" * 300 + "+", end="1=1"),
    "`\\boxed{`": _repeated("\\boxed{"),
    "closed boxes": _repeated("\\boxed{7}"),
    "a box full of brackets": lambda length: "\\boxed{" + "{" * (length // 2 - 4) + "}" * (length // 2 - 4) + "}",
}

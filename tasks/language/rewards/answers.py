"""Which text of a response is its final answer: one rule for reward, rubric and accuracies.

It is the last answer that the response marks, whichever way: by a line `#### ...` that is not empty, or by its last
`\\boxed{...}` where that is closed. A response that marks none answers with its last number.
"""

import re
from typing import NamedTuple

from tasks.language.rewards.equations import numbers, parse_number

THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
ANSWER_LINE = re.compile(r"^####[ \t]*(.*)$", re.MULTILINE)
BOX = "\\boxed{"


class Mark(NamedTuple):
    """An answer as the response marks it, without what LaTeX puts around numbers, and whether by a box."""

    text: str
    boxed: bool


def same_number(a: str, b: str) -> bool:
    """True when both texts are one number: "1,000", "1000.0" and "$1000" are the same, "50%" is also "50"."""
    values = []
    for text in (a, b):
        found = numbers(text.strip())
        if found != [text.strip()]:
            return False
        values.append(parse_number(found[0].rstrip("%")))
    return values[0] == values[1]


def unwrapped(text: str) -> str:
    """An answer without what LaTeX puts around numbers: `$1{,}000\\%$.` is `1,000%`."""
    for latex, plain in (("\\%", "%"), ("\\$", "$"), ("\\!", ""), ("{,}", ",")):
        text = text.replace(latex, plain)
    return text.strip().removesuffix(".").strip("$")


def boxed(response: str) -> str | None:
    """What stands in the last `\\boxed{...}`, None where there is none or it is not closed."""
    start = response.rfind(BOX)
    if start < 0:
        return None
    start, depth = start + len(BOX), 1
    for place in range(start, len(response)):
        depth += {"{": 1, "}": -1}.get(response[place], 0)
        if depth == 0:
            return response[start:place]
    return None


def marked(response: str) -> Mark | None:
    """The last answer that is marked: the last box or the last line, whichever begins later; None where none is marked."""
    lines = [line for line in ANSWER_LINE.finditer(response) if line[1].strip()]
    box = boxed(response)
    if box is not None and (not lines or response.rfind(BOX) > lines[-1].start()):
        return Mark(unwrapped(box), boxed=True)
    return Mark(unwrapped(lines[-1][1]), boxed=False) if lines else None


def final_answer(response: str) -> str | None:
    """The final answer's number; None where there is none, or where what is marked holds several."""
    mark = marked(response)
    if mark is None:
        return found[-1] if (found := numbers(response)) else None
    found = numbers(mark.text)
    return found[0] if len(found) == 1 else None


def strict_answer(response: str) -> str | None:
    """The final answer where it is in the form asked for: a last line `#### N`. None where the response does not end so."""
    last = ANSWER_LINE.fullmatch(response.rstrip().rpartition("\n")[2])
    if last is None or numbers(last[1].strip()) != [last[1].strip()]:
        return None
    return last[1].strip()


def without_thinking(response: str) -> str:
    """The response without its blocks `<think>...</think>`; empty where one is not closed, for then there is no answer yet.

    Where the chat template has opened the block in the prompt, the response begins within it, and ends it by `</think>`.
    """
    before, closed, after = response.partition("</think>")
    if closed and "<think>" not in before:
        response = after
    left = THINKING.sub("", response)
    return "" if "<think>" in left else left.strip()

"""Which text of a response is its final answer: one rule for reward, rubric and accuracies.

It is the last answer that the response marks, whichever way: by a line `#### ...` that is not empty, or by its last
`\\boxed{...}` where that is closed. A response that marks none answers with its last number.
"""

import re
from typing import NamedTuple

from tasks.language.rewards.numerals import INVISIBLE, SIGN_APART, find_numbers, parse_number_ignoring_percent

THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
ANSWER_LINE = re.compile(r"^####[ \t]*(.*)$", re.MULTILINE)
BOX = "\\boxed{"
AFTER_COMMA = re.compile(r",\\!\s?")  # how some set the comma between groups of digits
STYLE = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mathit|boldsymbol|mbox)\s?\{([^{}]*)\}")
CLOCK = re.compile(r"(?<![\d:.])(\d{1,2})(?::([0-5]\d))?\s?([ap])\.?\s?m\b\.?", re.IGNORECASE)
CLOCK_OF_24_HOURS = re.compile(
    r"(00?|1[3-9]|2[0-3]):([0-5]\d)(?:\s?h)?"
)  # hours that cannot be read as one half of the day's
AROUND = re.compile(r"^(?:\\[,;: ]|~|\s)+|(?:\\[,;: ]|~|\s)+$")  # spaces
LATEX_SPACES = re.compile(r"\\[,;: ]|~|\s+")


class Mark(NamedTuple):
    """An answer as the response marks it, without what LaTeX puts around numbers, and whether by a box."""

    text: str
    boxed: bool


def strip_number_wrapping(text: str) -> str:
    """An answer without what LaTeX and Markdown put around numbers: `$1{,}000\\%$.` is `1{,}000%`, `\\mathrm{3e8}` is
    `3e8`.
    """
    text = AFTER_COMMA.sub(",", text.translate(INVISIBLE))
    for latex, plain in (("\\%", "%"), ("\\$", "$"), ("\\!", ""), ("\\(", ""), ("\\)", ""), ("{:}", ":")):
        text = text.replace(latex, plain)
    text = AROUND.sub("", AROUND.sub("", text).removesuffix(".").strip("$*"))
    text = SIGN_APART.sub(r"\1", text, count=1) if SIGN_APART.match(text) else text
    styled = STYLE.fullmatch(text)
    return styled[1] if styled and parse_number_ignoring_percent(styled[1]) is not None else text


def normalise_answer_text(text: str) -> str:
    """A text as it is read: without LaTeX's styles, and with single spaces, none of them beside what is no letter or
    digit.
    """
    text = LATEX_SPACES.sub(" ", STYLE.sub(r"\1", strip_number_wrapping(text)))
    return re.sub(r"(?<!\w) | (?!\w)", "", text)


def parse_clock_time(text: str) -> int | None:
    """The time of day, in minutes, that the whole text is; None where it is none, or one that does not say which half
    of the day.
    """
    text = normalise_answer_text(text)
    if match := CLOCK.fullmatch(text):
        return _compute_minutes_of_day(match)
    match = CLOCK_OF_24_HOURS.fullmatch(text)
    return int(match[1]) * 60 + int(match[2]) if match else None


def find_final_clock_time(response: str) -> int | None:
    """The time of day that a response answers with; None where there is none, or where what is marked holds several."""
    mark = find_marked_answer(response)
    if mark is not None and (time := parse_clock_time(mark.text)) is not None:
        return time
    times = [
        _compute_minutes_of_day(match)
        for match in CLOCK.finditer(normalise_answer_text(response if mark is None else mark.text))
    ]
    return times[-1] if times and (mark is None or len(times) == 1) else None


def _compute_minutes_of_day(match: re.Match[str]) -> int:
    afternoon = match[3] in "pP"
    return int(match[1]) % 12 * 60 + int(match[2] or 0) + 720 * afternoon


def find_last_boxed_text(response: str) -> str | None:
    """What stands in the last `\\boxed{...}`, None where there is none or it is not closed."""
    start = response.rfind(BOX)
    if start < 0:
        return None
    start = start + len(BOX)
    depth = 1
    for position in range(start, len(response)):
        depth += {"{": 1, "}": -1}.get(response[position], 0)
        if depth == 0:
            return response[start:position]
    return None


def find_marked_answer(response: str) -> Mark | None:
    """The last answer that is marked: the last box or the last line, whichever begins later; None where none is
    marked.
    """
    lines = [line for line in ANSWER_LINE.finditer(response) if line[1].strip()]
    box = find_last_boxed_text(response)
    if box is not None and (not lines or response.rfind(BOX) > lines[-1].start()):
        return Mark(strip_number_wrapping(box), boxed=True)
    return Mark(strip_number_wrapping(lines[-1][1]), boxed=False) if lines else None


def find_final_answer_number(response: str) -> str | None:
    """The final answer's number; None where there is none, or where what is marked holds several."""
    mark = find_marked_answer(response)
    if mark is None:
        return candidates[-1] if (candidates := find_numbers(response)) else None
    candidates = find_numbers(mark.text)
    return candidates[0] if len(candidates) == 1 else None


def find_strict_answer_number(response: str) -> str | None:
    """The final answer where it is in the form asked for: a last line `#### N`.

    None where the response does not end so.
    """
    last = ANSWER_LINE.fullmatch(response.rstrip().rpartition("\n")[2])
    return None if last is None or parse_number_ignoring_percent(last[1]) is None else last[1].strip()


def remove_thinking_blocks(response: str) -> str:
    """The response without its blocks `<think>...</think>`; empty where one is not closed, for then there is no answer
    yet.

    Where the chat template has opened the block in the prompt, the response begins within it, and ends it by
    `</think>`.
    """
    before, closed, after = response.partition("</think>")
    if closed and "<think>" not in before:
        response = after
    left = THINKING.sub("", response)
    return "" if "<think>" in left else left.strip()

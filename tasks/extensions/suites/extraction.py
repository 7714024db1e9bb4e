"""What counts as the answer in a response, by the name of a method. Two methods may differ on one response; the page
shows how often.

The rules of `qwen` are those of `extract_answer` in Qwen2.5-Math's evaluation/parser.py, the two `-match` and
`-extract` ones the filters of lm-evaluation-harness's tasks/gsm8k/gsm8k.yaml. What they find is compared by another
module (scoring.py).
"""

import re
import string
from collections.abc import Callable

from tasks.language.rewards import answers, choices, numerals

SENTENCE = re.compile(r"(?i)\banswer is:?")
LAST_NUMBER = re.compile(r"-?\d*\.?\d+")
STRICT_MATCH = re.compile(r"#### (-?[0-9.,]+)")
FLEXIBLE_EXTRACT = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
REWARD = "verifiable reward"
MINERVA = ("final answer is $", "$. I hope")


def extract_answer_sentence(response: str) -> str | None:
    """What stands behind the last "answer is", up to the end of its line, without a last full stop and signs of
    mathematics.
    """
    matches = list(SENTENCE.finditer(response))
    if not matches:
        return None
    text = response[matches[-1].end() :].strip().partition("\n")[0].strip()
    return text.removesuffix(".").strip("$ ") or None


def extract_answer_line(response: str) -> str | None:
    """What stands on the last line `#### ...`."""
    line_texts = [match[1].strip() for match in answers.ANSWER_LINE.finditer(response)]
    return next((text for text in reversed(line_texts) if text), None)


def extract_last_number(response: str) -> str | None:
    """The last number, in digits."""
    numbers = numerals.find_numbers(response)
    number = numerals.parse_number_parts(numbers[-1]) if numbers else None
    return number.plain if number else None


def extract_qwen_answer(response: str) -> str | None:
    """Minerva's sentence, else the last box, else what follows the last "he answer is" or "final answer is", else the
    last number.
    """
    begin, end = MINERVA
    if begin in response and end in response:
        answer = response.partition(begin)[2].partition(end)[0].strip()
    elif "boxed" in response:
        answer = _extract_last_box(response)
    elif (
        mark := next((phrase for phrase in ("he answer is", "final answer is") if phrase in response), None)
    ) is not None:
        answer = response.rpartition(mark)[2].strip()
    else:
        numbers = LAST_NUMBER.findall(response.replace(",", ""))
        answer = numbers[-1] if numbers else ""
    answer = re.sub(r"\n\s*", "", answer).removeprefix(":").removesuffix(".").removesuffix("/")
    return answer.strip() or None


def _extract_last_box(response: str) -> str:
    """What the last box holds; up to the end where it is not closed, or up to the next $ where it has no braces."""
    inside = response.rpartition("boxed")[2]
    if not inside.startswith("{"):
        return inside.partition("$")[0].strip()
    depth = 0
    for position, sign in enumerate(inside):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth == 0:
            return inside[1:position]
    return inside[1:]


def extract_strict_match(response: str) -> str | None:
    """The number of the first line `#### N`."""
    match = STRICT_MATCH.search(response)
    return match[1].strip() if match else None


def extract_flexible_match(response: str) -> str | None:
    """The last run of digits, points, commas and dollar signs."""
    matches = FLEXIBLE_EXTRACT.findall(response)
    return next((part for part in matches[-1] if part), "").strip() or None if matches else None


def normalize_response_as_letter(response: str) -> str | None:
    """The whole response without spaces around it and punctuation, as a letter is compared."""
    return response.strip().translate(str.maketrans("", "", string.punctuation)).upper() or None


def extract_for_verifiable_reward(response: str) -> str | None:
    """All of it: the verifiable reward finds and compares the answer by its own rules."""
    return response or None


def extract_whole_response(response: str) -> str | None:
    """All of it."""
    return response or None


METHODS: dict[str, Callable[[str], str | None]] = {
    "qwen": extract_qwen_answer,
    "box": answers.find_last_boxed_text,
    "sentence": extract_answer_sentence,
    "line": extract_answer_line,
    "last number": extract_last_number,
    "strict-match": extract_strict_match,
    "flexible-extract": extract_flexible_match,
    "letter": choices.find_chosen_letter,
    "bare letter": normalize_response_as_letter,
    "whole": extract_whole_response,
    REWARD: extract_for_verifiable_reward,
}
OF_MATHEMATICS = ("qwen", "box", "sentence", "line", "last number", "strict-match", "flexible-extract", REWARD)
OF_LETTERS = ("letter", "bare letter")

"""The answer of a response to a question with choices: the letter that it settles on.

A letter counts where the response marks it as its answer: in a box, on a `####` line, behind "answer is" or "Answer:",
or as the beginning of a first or last line that has it alone or before a bracket, full stop or colon. Where a response
marks several different letters, or its last mark is no letter, it has no answer: naming all of them does not pay. Time
is linear in the text.
"""

import re

from tasks.language.rewards.answers import ANSWER_LINE, STYLE

LETTER = r"[*_$(\[{\"'\\ ]{0,8}([A-J])(?![\w'])[*_$)\]}\"'\\]{0,8}"
ALONE = re.compile(rf"{LETTER}(?=\s{{0,9}}$|\s?[.:)\]])")  # and whatever behind the colon
GOLD = re.compile(rf"{LETTER}\.?")
SEVERAL = re.compile(r"[*_$)\]}\"'\\]{0,8}\s{0,3}(?:,|/|&|or\b|and\b)\s{0,3}(?:[*(\[]{0,4})[A-J](?![\w'])")
STATED = re.compile(
    r"\b(?i:(?:answer|(?:correct|right|best) "
    rf"(?:option|choice))\s{{0,3}}(?:is\s{{0,3}}:?|:|=)\s{{0,3}}(?:(?:option|choice)\s)?){LETTER}"
)
BOX = re.compile(r"\\boxed\s?\{([^{}]*(?:\{[^{}]*\}[^{}]*)?)\}")


def parse_gold_letter(gold: str) -> str | None:
    """The letter that a reference answer is, as in `B`, `(B)` or `\\text{(B)}`; None where it is something else."""
    match = GOLD.fullmatch(STYLE.sub(r"\1", gold).strip())
    return match[1] if match else None


def find_chosen_letter(response: str) -> str | None:
    """The letter, A to J, that the response gives as its answer; None where it gives none, or several."""
    response = STYLE.sub(r"\1", response)
    boxes = [(box.start(), box[1]) for box in BOX.finditer(response)]
    lines = [(line.start(), line[1]) for line in ANSWER_LINE.finditer(response) if line[1].strip()]
    marks = [_parse_leading_letter(text) for _, text in sorted(boxes + lines)]
    stated = [_get_unambiguous_letter(match, response) for match in STATED.finditer(response)]
    if marks and marks[-1] is None:
        return None
    letters = {letter for letter in marks if letter} | {letter or "several" for letter in stated}
    if not letters:
        shown = response.strip().split("\n")
        letters = {letter for letter in (_parse_leading_letter(shown[0]), _parse_leading_letter(shown[-1])) if letter}
    return letters.pop() if len(letters) == 1 and "several" not in letters else None


def _parse_leading_letter(text: str) -> str | None:
    """The letter that a marked text is, alone or with what it stands for behind it, as in `(B) 12 apples`."""
    text = text.strip()
    match = ALONE.match(text)
    return _get_unambiguous_letter(match, text) if match else None


def _get_unambiguous_letter(match: re.Match[str], text: str) -> str | None:
    return None if SEVERAL.match(text, match.end()) else match[1]

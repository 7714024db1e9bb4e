"""A response's tokens cut into steps: the lines that are not blank, as tables/solutions.py says."""

from collections.abc import Sequence

from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat


def cut(tokenizer: Tokenizer, tokens: Sequence[int], ended: bool) -> list[int]:
    """The place of each step's last token; none for a response without a line that is not blank.

    A step ends with the token that holds its line end. Blank lines belong to the step after them, at the end to the last one, as
    does the end token.
    """
    ends, start = [], 0
    for place, token in enumerate(tokens):
        last = place + 1 == len(tokens)
        if last or "\n" in tokenizer.decode([token]):
            if chat.decode(tokenizer, tokens[start : place + 1], ended and last):
                ends.append(place)
            start = place + 1
    return [*ends[:-1], len(tokens) - 1] if ends else []

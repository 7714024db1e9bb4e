"""What a row of pairs says of how much better the chosen answer is: scores of both, or a word."""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.language.data.columns import Columns
from tasks.language.data.messages import describe_value

SCORES = (("score_chosen", "score_rejected"), ("chosen_score", "rejected_score"))
RATED = re.compile("chosen.*(?:score|rating|reward)|(?:score|rating|reward).*chosen")
LEVELS = {
    "negligibly better": "negligibly",
    "slightly better": "slightly",
    "better": "",
    "significantly better": "significantly",
}
LEVELS |= {"much better": "significantly", "strong": "", "weak": "slightly"}


def find_pair_scores(row: Columns) -> tuple[float, float] | None:
    """The scores of the chosen and of the rejected answer, where somebody gave both; ValueError where one is no
    number.
    """
    metadata = row.peek("metadata")
    for source in (row, metadata) if isinstance(metadata, Mapping) else (row,):
        for names in (*SCORES, *_iterate_rating_columns(source)):
            values = [source.peek(name) if isinstance(source, Columns) else source.get(name) for name in names]
            if all(value is not None for value in values):
                row.use(*(("metadata",) if source is metadata else names))
                chosen, rejected = map(_parse_finite_number, values, names)
                return chosen, rejected
    return None


def _iterate_rating_columns(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Columns of any other name that rate both answers with numbers, as `chosen-rating` and `rejected-rating` do."""
    values = {name: row.peek(name) for name in row} if isinstance(row, Columns) else row
    numbers = {name for name, value in values.items() if isinstance(value, int | float)}
    for chosen in values:  # in their order
        rejected = str(chosen).replace("chosen", "rejected")
        if RATED.search(str(chosen)) and {chosen, rejected} <= numbers:
            yield chosen, rejected


def _parse_finite_number(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"field '{field}' is {describe_value(value)}; expected a number")
    return float(value)


def parse_strength_level(row: Columns) -> str:
    """By how much the chosen answer is better, as a word of LEVELS; ValueError for any other word."""
    word = row.get("strength")
    if word is None:
        return ""
    levels = {**LEVELS, **{f"{side} {name}": word for side in "ab" for name, word in LEVELS.items()}}
    if not isinstance(word, str) or word.strip().lower() not in levels:
        raise ValueError(f"field 'strength' is {describe_value(word)}; expected {' or '.join(LEVELS)}")
    return levels[word.strip().lower()]

"""Reviews that somebody labelled, each cut into its opening and the rest."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tasks.common.tables import Record
from tasks.language.data import forms
from tasks.language.data.labelled_texts import parse_boolean_label
from tasks.language.data.rows import Row, parse_row


def parse_labelled_reviews(rows: Iterable[Row], text: str, label: str, opening_words: int) -> list[Record]:
    """Rows of Reviews without their parts; the continuation of a text of no more than `opening_words` words is
    empty.
    """
    form = partial(_parse_review, text=text, label=label, opening_words=opening_words)
    return [{"review_id": row.name, **parse_row(row, form)} for row in rows]


def _parse_review(row: Mapping[str, Any], text: str, label: str, opening_words: int) -> Record:
    words = forms.get_required_text(row, text).split()
    return {
        "opening": " ".join(words[:opening_words]),
        "continuation": " ".join(words[opening_words:]),
        "positive": parse_boolean_label(row, label),
    }

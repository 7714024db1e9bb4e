"""Rows of Comparisons that several hands made, with the same columns in all of them."""

from collections.abc import Sequence

from tasks.common.tables import Record

SCORES = ("chosen_score", "rejected_score")
VERDICTS = ("chosen_right", "rejected_right")
TOKENS = ("chosen_tokens", "rejected_tokens")
MESSAGES = ("chosen_message", "rejected_message")


def unify_comparison_columns(rows: Sequence[Record]) -> list[Record]:
    """The rows without scores or verdicts where one lacks them, and without history, messages, tokens and persons where
    none has any.

    Where only some have them, the others have an empty history, no message or tokens and nobody as the person.
    """
    fill: Record = {name: "" for name in ("history", "person") if any(row.get(name) for row in rows)}
    if any(row.get(name) for row in rows for name in MESSAGES):
        fill |= dict.fromkeys(MESSAGES, "")
    if any(row.get(TOKENS[0]) is not None for row in rows):
        fill |= dict.fromkeys(TOKENS)
    left_out = {"history", "person", *TOKENS, *MESSAGES} - fill.keys()
    for names in (SCORES, VERDICTS):
        if any(row.get(name) is None for row in rows for name in names):
            left_out |= {*names}
    return [{name: value for name, value in {**row, **fill, **row}.items() if name not in left_out} for row in rows]

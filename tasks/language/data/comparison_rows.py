"""Rows of Comparisons that several hands made, with the same columns in all of them."""

from collections.abc import Sequence

from tasks.common.tables import Record

SCORES = ("chosen_score", "rejected_score")
TOKENS = ("chosen_tokens", "rejected_tokens")


def alike(rows: Sequence[Record]) -> list[Record]:
    """The rows without scores where one lacks them, and without history, tokens and persons where none has any.

    Where only some have them, the others have an empty history, no tokens and nobody as the person.
    """
    fill: Record = {}
    if any(row.get("history") for row in rows):
        fill["history"] = ""
    if any(row.get("person") for row in rows):
        fill["person"] = ""
    if any(row.get(TOKENS[0]) is not None for row in rows):
        fill |= dict.fromkeys(TOKENS)
    left_out = {"history", "person", *TOKENS} - fill.keys()
    if any(row.get(name) is None for row in rows for name in SCORES):
        left_out |= {*SCORES}
    return [{name: value for name, value in {**row, **fill, **row}.items() if name not in left_out} for row in rows]

"""Rankings as pairs: each response of a ranking with each other, ties included (InstructGPT, arXiv:2203.02155, section
3.5).
"""

from itertools import combinations
from typing import Literal

import pandas as pd

from tasks.algorithms.language.pairs import NO_LEVEL, TIED
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record


def build_ranking_pairs(table: pd.DataFrame, ties: Literal["half", "drop"]) -> pd.DataFrame:
    """All pairs of the rankings in `table` (schema Rankings) as ComparisonSet reads them; two equal texts are no pair.

    Of two responses that tie the first stands as chosen, with the level TIED; with `drop` they are no pair either.
    """
    pair_rows = []
    for ranking, group in table.groupby("ranking_id", sort=False):
        rows = tables.list_records(group)
        if len({row["prompt_id"] for row in rows}) > 1:
            raise DataError(f"rankings: {ranking}: expected responses to one prompt, got responses to several")
        for first, second in combinations(rows, 2):
            tied = first["rank"] == second["rank"]
            if first["response"] != second["response"] and not (tied and ties == "drop"):
                pair_rows.append(_build_pair_row(first, second, tied))
    if not pair_rows:
        raise DataError("rankings: no pair is left: all responses to a prompt tie, or are equal texts")
    return pd.DataFrame(pair_rows)


def _build_pair_row(first: Record, second: Record, tied: bool) -> Record:
    chosen, rejected = (second, first) if second["rank"] < first["rank"] else (first, second)
    return {
        **{name: first[name] for name in ("ranking_id", "prompt_id", "prompt", "history") if name in first},
        "level": TIED if tied else NO_LEVEL,
        **{
            f"{side}{name}": row[column]
            for side, row in (("chosen", chosen), ("rejected", rejected))
            for name, column in (("", "response"), ("_ended", "ended"), ("_tokens", "tokens"))
            if column in row
        },
    }

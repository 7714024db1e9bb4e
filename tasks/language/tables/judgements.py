"""People's judgements as a table."""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Record, Table


def _is_json_object(text: object) -> bool:
    try:
        return isinstance(json.loads(str(text)), dict)
    except ValueError:
        return False


class Judgements(Table):
    """One row for each judgement that nobody took back.

    `order` are the answers' places in the item as they were shown.
    """

    judgement: Series[str] = pa.Field(unique=True, str_length=32)
    item: Series[str] = pa.Field(str_length=16)
    mode: Series[str] = pa.Field(isin=("pairwise", "ranking", "steps", "edit"))
    prompt_id: Series[str]
    person: Series[str] = pa.Field(str_length={"min_value": 1, "max_value": 64})
    at: Series[str] = pa.Field(str_length=20)  # UTC
    seconds: Series[float] = pa.Field(ge=0)
    repeat: Series[int] = pa.Field(ge=0)
    order: Series[object]
    value: Series[str]  # JSON, as in the record
    gold: Series[bool]  # whether the item has an expected value

    @pa.dataframe_check(error="order has each place once, from 0")
    def order_is_a_permutation(cls, frame: pd.DataFrame) -> pd.Series:
        """Every answer was shown once."""
        return frame["order"].map(lambda order: np.array_equal(np.sort(order), np.arange(len(order)))).astype(bool)

    @pa.dataframe_check(error="value is a JSON object")
    def has_json_value(cls, frame: pd.DataFrame) -> pd.Series:
        """It can be read."""
        return frame["value"].map(_is_json_object).astype(bool)

    @classmethod
    def of(cls, rows: Sequence[Record]) -> pd.DataFrame:
        """Rows as a table, validated; of no rows an empty one."""
        types = {"seconds": float, "repeat": int, "gold": bool, "order": object}
        columns = [*cls.to_schema().columns]
        frame = pd.DataFrame([*rows], columns=columns).astype({name: types.get(name, str) for name in columns})
        return cls.validate(frame)

"""Sampled solutions cut into steps: what outcome and process reward models learn from, and are measured by."""

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table

LABELS = (-1, 0, 1)  # bad, neutral, good


def split_steps(text: str) -> tuple[str, ...]:
    """A response's steps: its lines that are not blank."""
    return tuple(line for line in text.split("\n") if line.strip())


def _is_nonempty_list(values: object) -> bool:
    return isinstance(values, list | np.ndarray) and len(values) > 0


class Solutions(Table):
    """One row for each sampled response to a problem.

    A step is a line of the response that is not blank. `ends` has the place of each step's last token in `tokens`; the
    last one is the response's last token, so an end token belongs to the last step. `labels` are what a process reward
    model learns (-1 bad, 0 neutral, 1 good); `truth` is what the worked steps of the reference say, where they are
    known, and is never trained on unless it is the source of the labels. `good` has, for soft estimates by roll-outs,
    the share of a step's roll-outs that reach the right answer.
    """

    solution_id: Series[str] = pa.Field(unique=True)  # PROMPT_ID/SAMPLE; of what people judged PROMPT_ID/ITEM
    prompt_id: Series[str]
    prompt: Series[str] = pa.Field(str_length={"min_value": 1})
    history: Series[str] | None
    response: Series[str]
    ended: Series[bool]
    tokens: Series[object]
    right: Series[bool]  # the final answer is the reference's
    ends: Series[object]
    labels: Series[object]
    truth: Series[object] | None
    good: Series[object] | None

    @pa.dataframe_check(error="one label for each step, each -1, 0 or 1; the steps' ends rise to the last token")
    def has_matching_step_lists(cls, frame: pd.DataFrame) -> pd.Series:
        """Labels, and truth where it is there, are as many as ends."""
        return frame.apply(_has_matching_steps, axis=1) if len(frame) else pd.Series(dtype=bool)


def _has_matching_steps(row: pd.Series) -> bool:
    lists = [row[name] for name in ("ends", "labels", "truth") if name in row]
    if not all(_is_nonempty_list(values) for values in [row["tokens"], *lists]):
        return False
    ends, *labels = ([int(value) for value in values] for values in lists)
    shares = row.get("good")
    return (
        ends == sorted(set(ends))
        and ends[0] >= 0
        and ends[-1] == len(row["tokens"]) - 1
        and all(len(values) == len(ends) and set(values) <= {*LABELS} for values in labels)
        and (shares is None or (len(shares) == len(ends) and all(0 <= share <= 1 for share in shares)))
    )


FILES = {"solutions/train.parquet": Solutions, "solutions/test.parquet": Solutions}

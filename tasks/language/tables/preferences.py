"""What the annotator says of responses, and the pairs that follow."""

import json

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table
from tasks.language.tables.problems import is_messages_json_or_empty

LEVELS = ("negligibly", "slightly", "", "significantly")  # by how much one response is better, the least first
STRENGTHS = tuple(f"{side} {f'{level} better'.strip()}" for side in "ab" for level in LEVELS)


def _sum_points(points: object) -> int | None:
    try:
        return int(sum(json.loads(str(points)).values()))
    except (ValueError, AttributeError, TypeError):
        return None


def _has_valid_token_ids(tokens: object) -> bool:
    ids = np.asarray(tokens)
    return len(ids) > 0 and ids.dtype.kind in "iu" and bool(ids.min() >= 0)


class Annotations(Table):
    """Scores of single responses, each with its reason, and the annotator's rank (1 best, ties share a rank).

    `points` is a JSON object: the points for each of the annotator's criteria.
    """

    prompt_id: Series[str]
    sample: Series[int] = pa.Field(ge=0)
    points: Series[str]
    reason: Series[str] = pa.Field(str_length={"min_value": 1})
    total: Series[int] = pa.Field(ge=0, le=10)
    rank: Series[int] = pa.Field(ge=1)

    @pa.dataframe_check(error="the total is the sum of the criteria's points")
    def total_adds_up(cls, frame: pd.DataFrame) -> pd.Series:
        """The total is the sum of the criteria."""
        return frame["total"] == frame["points"].map(_sum_points)


def get_strength_level(strength: str) -> int:
    """The place in LEVELS of a strength such as `a slightly better`."""
    return LEVELS.index(strength[1:].removesuffix("better").strip())


class Rankings(Table):
    """Rankings of the responses to a prompt, ties and all: one row for each response in a ranking.

    One prompt may have several rankings, by different people. Responses of one rank tie; rank 1 is best.
    """

    ranking_id: Series[str]
    prompt_id: Series[str]
    prompt: Series[str] = pa.Field(str_length={"min_value": 1})
    history: Series[str] | None
    held_out: Series[bool]
    person: Series[str]  # who ranked; `annotator` for the simulated one
    sample: Series[int] = pa.Field(ge=0)  # the response's number among those to the prompt
    response: Series[str]
    ended: Series[bool]
    tokens: Series[object] | None
    rank: Series[int] = pa.Field(ge=1)
    score: Series[float] | None


class Comparisons(Table):
    """Pairs of responses to one prompt, with the preferred one named: what reward models and DPO learn from.

    Responses that a model sampled have their tokens too, the end token included where it was sampled. These are trained
    on, since their text is not always tokenized back to them. Texts that people wrote have none. An answer that is more
    than a text (a thought, a call) is in `chosen_message` or `rejected_message` as JSON, and its text is what a person
    reads of it. `history` has the turns before the prompt as JSON, and is there where some prompt has any; the scores
    are there where somebody gave them. `person` is who preferred a response where people judged: `majority` for several
    of them, empty for pairs that came without a name.
    """

    comparison_id: Series[str] = pa.Field(unique=True)
    prompt_id: Series[str]
    prompt: Series[str] = pa.Field(str_length={"min_value": 1})
    chosen: Series[str]
    rejected: Series[str]
    chosen_ended: Series[bool]
    rejected_ended: Series[bool]
    chosen_message: Series[str] | None
    rejected_message: Series[str] | None
    history: Series[str] | None
    chosen_score: Series[float] | None
    rejected_score: Series[float] | None
    chosen_right: Series[bool] | None  # its final number, where known; only the report reads it
    rejected_right: Series[bool] | None
    strength: Series[str] = pa.Field(isin=STRENGTHS)
    chosen_tokens: Series[object] | None = pa.Field(nullable=True)
    rejected_tokens: Series[object] | None = pa.Field(nullable=True)
    person: Series[str] | None

    @pa.dataframe_check(error="a message as JSON with role and content, or an empty text")
    def has_valid_messages(cls, frame: pd.DataFrame) -> pd.Series:
        """Each can be read; both columns or none."""
        columns = [name for name in ("chosen_message", "rejected_message") if name in frame]
        if len(columns) < 2:
            return pd.Series(not columns, index=frame.index)
        return frame[columns].map(lambda text: text == "" or is_messages_json_or_empty(f"[{text}]")).all(axis=1)

    @pa.dataframe_check(error="scores of both responses, or of neither")
    def has_both_scores(cls, frame: pd.DataFrame) -> bool:
        """Both columns or none."""
        return ("chosen_score" in frame) == ("rejected_score" in frame)

    @pa.dataframe_check(error="a list of token ids for both responses, or for neither")
    def has_both_token_lists(cls, frame: pd.DataFrame) -> pd.Series:
        """Both columns or none; in each row at least one token, none negative, or null for texts that nobody
        sampled.
        """
        columns = [name for name in ("chosen_tokens", "rejected_tokens") if name in frame]
        if len(columns) < 2:
            return pd.Series(not columns, index=frame.index)
        none = frame[columns].map(lambda tokens: tokens is None)
        ids = frame[columns].map(lambda tokens: isinstance(tokens, list | np.ndarray) and _has_valid_token_ids(tokens))
        return none.all(axis=1) | ids.all(axis=1)


FILES = {
    "preferences/train.parquet": Comparisons,
    "preferences/test.parquet": Comparisons,
    "annotations.parquet": Annotations,
    "rankings.parquet": Rankings,
}

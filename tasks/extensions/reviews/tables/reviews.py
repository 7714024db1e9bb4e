"""Reviews with a sentiment, each in the part of the data that may use it."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table

# corpus: pretraining; train: fine-tuning and steering; test: openings to steer from; reward: labels of the classifier
# in the reward; second: labels of the other classifier; held_out: labels by which both are measured
PARTS = ("corpus", "train", "test", "reward", "second", "held_out")


class Reviews(Table):
    """A row for each review, cut into an opening and a continuation."""

    review_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    part: Series[str] = pa.Field(isin=PARTS)
    opening: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})  # so that no part asks another's
    continuation: Series[str] = pa.Field(str_length={"min_value": 1})
    positive: Series[bool]

    @pa.dataframe_check(error="both sentiments in each part that is learned or measured by labels")
    def both_sentiments(cls, frame: pd.DataFrame) -> pd.Series:
        """A classifier needs both."""
        labelled = frame["part"].isin(("reward", "second", "held_out"))
        return ~labelled | (frame.groupby("part")["positive"].transform("nunique") == 2)


FILES = {"reviews.parquet": Reviews}

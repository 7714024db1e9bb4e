"""What steered policies say, and what is measured of it."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class Continuations(Table):
    """A row for each continuation that was sampled; the SFT model's are among them."""

    policy: Series[str]
    opening_id: Series[str]
    opening: Series[str] = pa.Field(str_length={"min_value": 1})
    sample: Series[int] = pa.Field(ge=0)
    continuation: Series[str]
    tokens: Series[int] = pa.Field(ge=1)  # the end token included
    ended: Series[bool]
    logp: Series[float] = pa.Field(le=0)  # of all tokens, under the policy
    reference: Series[float] = pa.Field(le=0)  # the same under the SFT model
    first: Series[float] = pa.Field(ge=0, le=1)  # how probably it is positive, by the reward model
    second: Series[float] = pa.Field(ge=0, le=1)  # the same by the second classifier, which is never a reward

    @pa.dataframe_check(error="an opening's samples are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(policy, opening_id, sample) is a key."""
        return ~frame.duplicated(["policy", "opening_id", "sample"])


class SteeringMeasures(Table):
    """A mean over openings with its 95 % interval for each policy and measure."""

    policy: Series[str]
    measure: Series[str]
    mean: Series[float]
    low: Series[float]
    high: Series[float]

    @pa.dataframe_check(error="one row for each policy and measure, whose mean is within its interval")
    def rows_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(policy, measure) is a key."""
        inside = (frame["low"] <= frame["mean"] + 1e-9) & (frame["mean"] <= frame["high"] + 1e-9)
        return inside & ~frame.duplicated(["policy", "measure"])


FILES = {"continuations.parquet": Continuations, "steering_measures.parquet": SteeringMeasures}

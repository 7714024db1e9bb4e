"""What episodes came to: of the policies that record data, and of a data set."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class BehaviourReturns(Table):
    """Returns of whole episodes played by the policies that record data."""

    policy: Series[str] = pa.Field(isin=("random", "medium", "expert"))
    episode: Series[int] = pa.Field(ge=0)
    total: Series[float]

    @pa.dataframe_check(error="an episode of a policy stands once")
    def episodes_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(policy, episode) is a key."""
        return ~frame.duplicated(["policy", "episode"])


class Recorded(Table):
    """What the episodes of a data set of transitions came to."""

    episode: Series[int] = pa.Field(unique=True, ge=0)
    total: Series[float]
    length: Series[int] = pa.Field(ge=1)
    terminated: Series[bool]


FILES = {"measured.parquet": BehaviourReturns, "recorded.parquet": Recorded}

"""The tables that the stage `returns` writes: episodes, estimates of values, and the graph from each start."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table

EPISODES = "episodes.parquet"
VALUES = "values.parquet"
STARTS = "starts.parquet"
CLAIMED = "claimed"
FITTED = "fitted"


class PlayedEpisodes(Table):
    """Whole episodes that a policy played; `target` is the return that it was asked for, null where it cannot be
    asked.
    """

    variant: Series[str] = pa.Field(str_length={"min_value": 1})
    seed: Series[int] = pa.Field(ge=0)
    target: Series[float] = pa.Field(nullable=True)
    episode: Series[int] = pa.Field(ge=0)
    total: Series[float]  # the undiscounted return
    length: Series[int] = pa.Field(ge=1)

    @pa.dataframe_check(error="an episode of a policy and target stands once")
    def episodes_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(variant, seed, target, episode) is a key."""
        return ~frame.duplicated(["variant", "seed", "target", "episode"])


class Values(Table):
    """Estimates of a policy's discounted return from the episodes' initial states, beside the true one (`truth`).

    Both look past an environment's time limit (tasks/offline/reporting/value_estimates.py); `cut` is the share of the
    episodes that could not.
    """

    variant: Series[str] = pa.Field(str_length={"min_value": 1})
    seed: Series[int] = pa.Field(ge=0)
    source: Series[str] = pa.Field(isin=(CLAIMED, FITTED))  # by the policy's own Q; by fitted-Q evaluation on the data
    gamma: Series[float] = pa.Field(ge=0, le=1)
    value: Series[float]
    converged: Series[bool]  # false of an estimate that still moved when its steps were used up
    truth: Series[float]
    cut: Series[float] = pa.Field(ge=0, le=1)


class Starts(Table):
    """The graph from each start: the shortest path's return, the best recorded walk's, and the policy's."""

    variant: Series[str] = pa.Field(str_length={"min_value": 1})
    seed: Series[int] = pa.Field(ge=0)
    target: Series[float] = pa.Field(nullable=True)
    start: Series[int] = pa.Field(ge=0)
    optimum: Series[float]
    recorded: Series[float] = pa.Field(nullable=True)  # null where no walk starts there
    total: Series[float]

    @pa.dataframe_check(error="nothing is better than the optimum")
    def totals_within_optimum(cls, frame: pd.DataFrame) -> pd.Series:
        """Neither the policy nor the data beats the shortest path."""
        return (frame["total"] <= frame["optimum"]) & ~(frame["recorded"] > frame["optimum"])


FILES: dict[str, type[Table]] = {EPISODES: PlayedEpisodes, VALUES: Values, STARTS: Starts}

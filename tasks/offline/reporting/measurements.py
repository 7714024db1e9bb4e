"""What the stage `returns` measures of one trained method on one data set, as tables and a description, and how it is
read back.

A trained method has variants, each with several seeds; a policy that is told what return to reach is measured with
several targets. One variant with one target is a row of a table of results: a `Line`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common import tables
from tasks.common.tables import Table

EPISODES, VALUES, STARTS, DESCRIPTION = "episodes.parquet", "values.parquet", "starts.parquet", "description.json"
CURVES, PROGRESS, FITS, PICTURE = "curves.csv", "returns.csv", "fitted_q.csv", "picture.gif"
CLAIMED, FITTED = "claimed", "fitted"


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
    def optimum_is_one(cls, frame: pd.DataFrame) -> pd.Series:
        """Neither the policy nor the data beats the shortest path."""
        return (frame["total"] <= frame["optimum"]) & ~(frame["recorded"] > frame["optimum"])


class TrainingCost(TypedDict):
    """What training a variant took."""

    steps: int  # of gradient descent
    parameters: int


class DataFacts(TypedDict):
    """What a data set has; `mean` and `best` are returns of its episodes, but for those that were cut early."""

    episodes: int
    transitions: int
    mean: float
    best: float


class Ends(TypedDict):
    """The two returns that a score is measured between (`Reference`)."""

    minimum: float
    maximum: float


Greedy = TypedDict(
    "Greedy", {"policy": str, "return": float}
)  # the best of the policies that recorded the data, played greedily
Picture = TypedDict(
    "Picture", {"variant": str, "seed": int, "target": float | None, "return": float, "steps": int}
)  # the episode that was filmed


class Trained(TypedDict):
    """What is known of a method's policies and their data before they are played."""

    method: str
    dataset: str
    environment: str
    reference: Ends
    d4rl: Ends | None
    data: DataFacts
    cost: dict[str, TrainingCost]  # by variant


class Description(Trained):
    """description.json, which `returns` writes."""

    behaviour: Greedy | None
    picture: Picture


@dataclass(frozen=True)
class ReturnScores:
    """One folder of data/returns."""

    name: str
    episodes: pd.DataFrame
    values: pd.DataFrame
    starts: pd.DataFrame
    curves: pd.DataFrame
    progress: pd.DataFrame  # returns of the evaluations during training
    fits: pd.DataFrame  # fitted-Q evaluation's estimates on the way
    description: Description
    picture: bytes


def read(path: Path) -> ReturnScores:
    """What `returns` wrote to the folder `path`; DataError with one line naming file, column and row if it is bad."""
    return ReturnScores(
        path.name,
        tables.read(PlayedEpisodes, path / EPISODES),
        tables.read(Values, path / VALUES),
        tables.read(Starts, path / STARTS),
        pd.read_csv(path / CURVES),
        pd.read_csv(path / PROGRESS),
        pd.read_csv(path / FITS),
        json.loads((path / DESCRIPTION).read_text()),
        (path / PICTURE).read_bytes(),
    )

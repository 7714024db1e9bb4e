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

from tasks.common import tables
from tasks.offline.reporting.tables import EPISODES, STARTS, VALUES, PlayedEpisodes, Starts, Values

DESCRIPTION = "description.json"
CURVES = "curves.csv"
PROGRESS = "returns.csv"
FITS = "fitted_q.csv"
PICTURE = "picture.gif"


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


def read_return_scores(path: Path) -> ReturnScores:
    """What `returns` wrote to the folder `path`; DataError with one line naming file, column and row if it is bad."""
    return ReturnScores(
        path.name,
        tables.read_table(PlayedEpisodes, path / EPISODES),
        tables.read_table(Values, path / VALUES),
        tables.read_table(Starts, path / STARTS),
        pd.read_csv(path / CURVES),
        pd.read_csv(path / PROGRESS),
        pd.read_csv(path / FITS),
        json.loads((path / DESCRIPTION).read_text()),
        (path / PICTURE).read_bytes(),
    )

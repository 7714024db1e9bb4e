"""A policy's answers to test problems, and what is measured of them."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class Generations(Table):
    """A policy's answers to test problems with every score: one greedy answer (temperature 0), samples at the others.

    `steps` is a stratum, a kind of answer (tasks/language/reporting/measures.py). What cannot be measured has no
    column: without right answers `strict`, `lenient`, `timed_out` and `unjudged`, without GSM8K's form the rubric's
    points, without a thing that is counted `manner` and `gold`, without a reward model `reward`, and without a
    reference `kl`.
    """

    problem_id: Series[str]
    temperature: Series[float] = pa.Field(ge=0)
    sample: Series[int] = pa.Field(ge=0)
    response: Series[str]
    length: Series[int] = pa.Field(ge=1)
    ended: Series[bool]
    steps: Series[bool]
    strict: Series[bool] | None
    lenient: Series[bool] | None
    timed_out: Series[bool] | None
    unjudged: Series[bool] | None
    gold: Series[bool] | None
    manner: Series[float] | None = pa.Field(ge=0, le=1)
    correctness: Series[int] | None = pa.Field(ge=0, le=5)
    reasoning: Series[int] | None = pa.Field(ge=0, le=3)
    clarity: Series[int] | None = pa.Field(ge=0, le=2)
    rubric: Series[int] | None = pa.Field(ge=0, le=10)
    reward: Series[float] | None
    kl: Series[float] | None

    @pa.dataframe_check(error="a problem's samples at a temperature are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(problem_id, temperature, sample) is a key."""
        return ~frame.duplicated(["problem_id", "temperature", "sample"])

    @pa.dataframe_check(error="one greedy answer to a problem")
    def has_one_greedy_answer(cls, frame: pd.DataFrame) -> pd.Series:
        """At temperature 0 every sample would be the same."""
        return (frame["temperature"] > 0) | (frame["sample"] == 0)


class Measures(Table):
    """A policy's evaluation as one value for each problem and metric, so that policies can be compared problem by
    problem.
    """

    problem_id: Series[str] = pa.Field(str_length={"min_value": 1})
    metric: Series[str] = pa.Field(str_length={"min_value": 1})
    value: Series[float]

    @pa.dataframe_check(error="a problem has one value of a metric")
    def values_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(problem_id, metric) is a key."""
        return ~frame.duplicated(["problem_id", "metric"])


FILES = {"generations.parquet": Generations, "other_kinds.parquet": Generations, "measures.parquet": Measures}

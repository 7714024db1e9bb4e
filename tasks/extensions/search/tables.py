"""What search finds: every sampled answer with its scores, and accuracies by method and budget."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class SampledAnswers(Table):
    """The answers that budgets are drawn from: one greedy answer to each problem, and the samples with every score.

    A score whose model is not there has no column.
    """

    model: Series[str]
    problem_id: Series[str]
    greedy: Series[bool]
    sample: Series[int] = pa.Field(ge=0)
    tokens: Series[object]  # token ids, the end token included
    logp: Series[float] = pa.Field(
        le=0
    )  # of the whole answer, under the distribution that was sampled from (greedy: at temperature 1)
    ended: Series[bool]
    right: Series[bool]  # by the line `#### N` at its end
    vote: Series[int] = pa.Field(
        ge=-1
    )  # the number of its final answer among the problem's; -1 without one, which does not vote
    likelihood: Series[float] = pa.Field(le=0)  # logp a token
    pairs: Series[float] | None
    outcome: Series[float] | None = pa.Field(ge=0, le=1)
    process_minimum: Series[float] | None = pa.Field(ge=0, le=1)
    process_product: Series[float] | None = pa.Field(ge=0, le=1)
    process_last: Series[float] | None = pa.Field(ge=0, le=1)

    @pa.dataframe_check(error="a list of token ids")
    def token_ids(cls, frame: pd.DataFrame) -> pd.Series:
        """At least one, none negative."""
        return pd.Series([len(tokens) > 0 and min(tokens) >= 0 for tokens in frame["tokens"]], index=frame.index)

    @pa.dataframe_check(error="a problem's samples are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(model, problem_id, greedy, sample) is a key."""
        return ~frame.duplicated(["model", "problem_id", "greedy", "sample"])


class Accuracies(Table):
    """A row for each model, method, way to count ties and budget."""

    model: Series[str]
    method: Series[str]
    ties: Series[str] = pa.Field(isin=["chance", "first"])
    budget: Series[int] = pa.Field(ge=1)  # answers to each problem
    accuracy: Series[float] = pa.Field(ge=0, le=1)
    low: Series[float] = pa.Field(ge=0, le=1)
    high: Series[float] = pa.Field(ge=0, le=1)
    tokens: Series[float] = pa.Field(ge=0)  # generated for a problem
    passes: Series[float] = pa.Field(ge=0)  # of a reward model, for a problem: texts that it reads

    @pa.dataframe_check(error="one row for each model, method, way to count ties and budget")
    def rows_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(model, method, ties, budget) is a key."""
        return ~frame.duplicated(["model", "method", "ties", "budget"])


FILES = {"answers.parquet": SampledAnswers, "accuracies.parquet": Accuracies}

"""What a policy sampled at a few steps of its training by reward, token by token."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table

FILE = "rollouts.parquet"
BY_TOKEN = ("tokens", "logps", "advantages")
LATER = ("pieces", "final_logps", "reference_logps")  # what an evaluation adds for each token


class RolloutTable(Table):
    """Answers to the first prompts of some steps, as they were learned from; those without a reward were not, and have
    advantages of 0. Lists have one entry for each token that is kept.

    A stage writes what it knows at no cost. The evaluation of its policy adds the texts, and the log-probabilities of
    the same tokens under the trained policy and under the reference, where there is one.
    """

    step: Series[int] = pa.Field(ge=1)
    group: Series[int] = pa.Field(ge=0)  # of the step's prompts
    sample: Series[int] = pa.Field(ge=0)
    temperature: Series[float] = pa.Field(gt=0)  # of the sampling, by which log-probabilities are taken
    prompt_tokens: Series[object]
    tokens: Series[object]  # the end token included, where it was sampled and the answer is kept whole
    length: Series[int] = pa.Field(ge=1)  # of the whole answer
    ended: Series[bool]
    reward: Series[float] = pa.Field(nullable=True)  # none where nothing was learned from the answer
    parts: Series[str]  # of the reward, by name, as JSON
    logps: Series[object]  # when sampled
    advantages: Series[object]
    prompt: Series[str] | None
    pieces: Series[object] | None  # each token's text
    final_logps: Series[object] | None
    reference_logps: Series[object] | None

    @pa.dataframe_check(error="lists of one length, that of the answer or less, and at least one")
    def has_entry_for_each_token(cls, frame: pd.DataFrame) -> pd.Series:
        """Every list of an answer has an entry for each of its tokens."""
        lists = frame[[name for name in (*BY_TOKEN, *LATER) if name in frame]]
        sizes = lists.map(len)
        fits = (sizes["tokens"] > 0) & (sizes["tokens"] <= frame["length"])
        return sizes.eq(sizes["tokens"], axis=0).all(axis=1) & fits

    @pa.dataframe_check(error="log-probabilities are at most 0")
    def has_valid_logps(cls, frame: pd.DataFrame) -> pd.Series:
        """They are log-probabilities."""
        return frame["logps"].map(max) <= 0

    @pa.dataframe_check(error="a step's answers are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(step, group, sample) is a key."""
        return ~frame.duplicated(["step", "group", "sample"])


FILES = {FILE: RolloutTable}

"""What a reward model says of the examples that were held out from its training."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table

OF_PAIRS = {
    *("comparison_id", "chosen", "rejected", "strength", "chosen_reward", "rejected_reward"),
    *("chosen_length", "rejected_length"),
}
OF_SOLUTIONS = {"solution_id", "response", "right", "reward", "length"}
OF_STEPS = {"labels", "bad", "neutral", "good"}


class HeldOut(Table):
    """One row for each held-out comparison, or one for each held-out solution. Lengths are in tokens.

    A process reward model has lists with an entry for each step besides: what it should be (`labels`, and `truth` where
    it is known) and the probabilities of the three classes.
    """

    prompt_id: Series[str]
    prompt: Series[str] = pa.Field(str_length={"min_value": 1})
    comparison_id: Series[str] | None = pa.Field(unique=True)
    chosen: Series[str] | None
    rejected: Series[str] | None
    strength: Series[str] | None
    person: Series[str] | None  # who preferred the chosen one; empty where nobody is named
    chosen_score: Series[float] | None  # the annotator's, where it gave scores
    rejected_score: Series[float] | None
    chosen_right: Series[bool] | None  # whether its final number is right, where that is known
    rejected_right: Series[bool] | None
    chosen_reward: Series[float] | None
    rejected_reward: Series[float] | None
    chosen_untrained: (
        Series[float] | None
    )  # before training, by the log-probability of the policy that the model starts from
    rejected_untrained: Series[float] | None
    chosen_length: Series[int] | None = pa.Field(ge=1)
    rejected_length: Series[int] | None = pa.Field(ge=1)
    solution_id: Series[str] | None = pa.Field(unique=True)
    response: Series[str] | None
    right: Series[bool] | None
    reward: Series[float] | None = pa.Field(ge=0, le=1)
    length: Series[int] | None = pa.Field(ge=1)
    labels: Series[object] | None
    truth: Series[object] | None
    bad: Series[object] | None
    neutral: Series[object] | None
    good: Series[object] | None

    @pa.dataframe_check(error="the columns of comparisons, or those of solutions, whole")
    def whole(cls, frame: pd.DataFrame) -> bool:
        """Either kind of row, and with it all that belongs to it."""
        columns = {*frame}
        solutions = (
            columns >= OF_SOLUTIONS
            and columns.isdisjoint(OF_PAIRS | {"person"})
            and len(columns & OF_STEPS) in (0, len(OF_STEPS))
        )
        return solutions or (columns >= OF_PAIRS and columns.isdisjoint(OF_SOLUTIONS | OF_STEPS))

    @pa.dataframe_check(error="a label and three probabilities for each step")
    def has_matching_step_lists(cls, frame: pd.DataFrame) -> pd.Series:
        """All lists of a row have one length."""
        lists = frame[[name for name in (*sorted(OF_STEPS), "truth") if name in frame]]
        return pd.Series([len({len(values) for values in row}) <= 1 for row in lists.to_numpy()], index=frame.index)


FILES = {"held_out.parquet": HeldOut}

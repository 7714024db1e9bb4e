"""What a policy answered to training prompts."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class Responses(Table):
    """Sampled responses. `tokens` and `logps` are lists of one length, the end token included where it was sampled."""

    prompt_id: Series[str]
    sample: Series[int] = pa.Field(ge=0)
    prompt: Series[str]
    history: Series[str] | None  # the turns before the prompt as JSON, where some prompt has any
    response: Series[str]
    tokens: Series[object]
    logps: Series[object]
    ended: Series[bool]

    @pa.dataframe_check(error="one log-probability, at most 0, for each token")
    def has_logp_for_each_token(cls, frame: pd.DataFrame) -> pd.Series:
        """Lists match in length, and log-probabilities are log-probabilities."""
        pairs = zip(frame["tokens"], frame["logps"], strict=True)
        return pd.Series([len(t) == len(p) > 0 and max(p) <= 0 for t, p in pairs], index=frame.index)

    @pa.dataframe_check(error="a prompt's samples are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(prompt_id, sample) is a key."""
        return ~frame.duplicated(["prompt_id", "sample"])


FILES = {"responses.parquet": Responses}

"""The tables that stages hand on, as pandera models: each is checked when written and when read."""

from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

STRENGTHS = ("a better", "a slightly better", "b slightly better", "b better")
REWARDS = ("policy", "verifiable", "rubric", "reward_model")  # policy: as the stage that trains says
NUMBER = r"^-?\d+(\.\d+)?$"


def _ids(tokens: Any) -> bool:
    ids = np.asarray(tokens)
    return len(ids) > 0 and ids.dtype.kind in "iu" and bool(ids.min() >= 0)


class Table(pa.DataFrameModel):
    """Base of all tables: exactly the declared columns, none of them null."""

    class Config:
        """Pandera's settings."""

        strict = True
        ordered = False


class Problems(Table):
    """Word problems in GSM8K's form: worked steps, then a last line `#### N`."""

    problem_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    question: Series[str] = pa.Field(str_length={"min_value": 1})
    solution: Series[str] = pa.Field(str_length={"min_value": 1})
    answer: Series[str] = pa.Field(str_matches=NUMBER)
    steps: Series[int] = pa.Field(ge=0)

    @pa.dataframe_check(error="the solution ends with '#### ' and the answer")
    def answer_ends_solution(cls, frame: pd.DataFrame) -> pd.Series:
        """The answer column and the solution's last line agree."""
        last = frame["solution"].str.rsplit("\n", n=1).str[-1]
        return last == "#### " + frame["answer"]


class Demonstrations(Table):
    """What SFT imitates: a prompt and the response someone gave to it, good or not."""

    problem_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    prompt: Series[str] = pa.Field(str_length={"min_value": 1})
    response: Series[str] = pa.Field(str_length={"min_value": 1})


class Documents(Table):
    """Text for pretraining, one document a row; `kind` says which generator or file it comes from."""

    kind: Series[str]
    text: Series[str] = pa.Field(str_length={"min_value": 1})


class Prompts(Table):
    """What policies are trained on by reward: problems of one or more data sets, each with how it is judged."""

    prompt_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    dataset: Series[str] = pa.Field(str_length={"min_value": 1})
    question: Series[str] = pa.Field(str_length={"min_value": 1})
    solution: Series[str] = pa.Field(str_length={"min_value": 1})
    answer: Series[str] = pa.Field(str_matches=NUMBER)
    reward: Series[str] = pa.Field(isin=REWARDS)


class Responses(Table):
    """Sampled responses. `tokens` and `logps` are lists of one length, the end token included where it was sampled."""

    prompt_id: Series[str]
    sample: Series[int] = pa.Field(ge=0)
    prompt: Series[str]
    response: Series[str]
    tokens: Series[object]
    logps: Series[object]
    ended: Series[bool]

    @pa.dataframe_check(error="one log-probability, at most 0, for each token")
    def one_logp_a_token(cls, frame: pd.DataFrame) -> pd.Series:
        """Lists match in length, and log-probabilities are log-probabilities."""
        pairs = zip(frame["tokens"], frame["logps"], strict=True)
        return pd.Series([len(t) == len(p) > 0 and max(p) <= 0 for t, p in pairs], index=frame.index)

    @pa.dataframe_check(error="a prompt's samples are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(prompt_id, sample) is a key."""
        return ~frame.duplicated(["prompt_id", "sample"])


class Annotations(Table):
    """Rubric scores of single responses, each with its reason, and the annotator's rank (1 best, ties share a rank)."""

    prompt_id: Series[str]
    sample: Series[int] = pa.Field(ge=0)
    correctness: Series[int] = pa.Field(ge=0, le=5)
    correctness_reason: Series[str] = pa.Field(str_length={"min_value": 1})
    reasoning: Series[int] = pa.Field(ge=0, le=3)
    reasoning_reason: Series[str] = pa.Field(str_length={"min_value": 1})
    clarity: Series[int] = pa.Field(ge=0, le=2)
    clarity_reason: Series[str] = pa.Field(str_length={"min_value": 1})
    total: Series[int] = pa.Field(ge=0, le=10)
    rank: Series[int] = pa.Field(ge=1)

    @pa.dataframe_check(error="total = correctness + reasoning + clarity")
    def total_adds_up(cls, frame: pd.DataFrame) -> pd.Series:
        """The total is the sum of the criteria."""
        return frame["total"] == frame["correctness"] + frame["reasoning"] + frame["clarity"]


class Comparisons(Table):
    """Pairs of responses to one prompt, with the preferred one named: what reward models and DPO learn from.

    Of responses that a model sampled the tokens are there too, the end token included where it was sampled: they are
    what is trained on, since their text would not always be tokenized back to them. Of texts that people wrote they are not.
    """

    comparison_id: Series[str] = pa.Field(unique=True)
    prompt_id: Series[str]
    prompt: Series[str] = pa.Field(str_length={"min_value": 1})
    chosen: Series[str]
    rejected: Series[str]
    chosen_ended: Series[bool]
    rejected_ended: Series[bool]
    chosen_score: Series[int] = pa.Field(ge=0, le=10)
    rejected_score: Series[int] = pa.Field(ge=0, le=10)
    strength: Series[str] = pa.Field(isin=STRENGTHS)
    chosen_tokens: Series[object] | None
    rejected_tokens: Series[object] | None

    @pa.dataframe_check(error="a list of token ids for both responses, or for neither")
    def tokens_of_both(cls, frame: pd.DataFrame) -> pd.Series:
        """Both columns or none; in each row at least one token, none negative."""
        columns = [name for name in ("chosen_tokens", "rejected_tokens") if name in frame]
        if len(columns) < 2:
            return pd.Series(not columns, index=frame.index)
        return frame[columns].map(lambda tokens: isinstance(tokens, list | np.ndarray) and _ids(tokens)).all(axis=1)


class Generations(Table):
    """A policy's answers to test problems with every score: one greedy answer (temperature 0), samples at the others.

    `steps` is a stratum, a kind of answer (tasks/measures.py). Without a reward model there is no `reward`.
    """

    problem_id: Series[str]
    temperature: Series[float] = pa.Field(ge=0)
    sample: Series[int] = pa.Field(ge=0)
    response: Series[str]
    length: Series[int] = pa.Field(ge=1)
    ended: Series[bool]
    steps: Series[bool]
    strict: Series[bool]
    lenient: Series[bool]
    correctness: Series[int] = pa.Field(ge=0, le=5)
    reasoning: Series[int] = pa.Field(ge=0, le=3)
    clarity: Series[int] = pa.Field(ge=0, le=2)
    rubric: Series[int] = pa.Field(ge=0, le=10)
    reward: Series[float] | None
    kl: Series[float]

    @pa.dataframe_check(error="a problem's samples at a temperature are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(problem_id, temperature, sample) is a key."""
        return ~frame.duplicated(["problem_id", "temperature", "sample"])

    @pa.dataframe_check(error="one greedy answer to a problem")
    def one_greedy(cls, frame: pd.DataFrame) -> pd.Series:
        """At temperature 0 every sample would be the same."""
        return (frame["temperature"] > 0) | (frame["sample"] == 0)


class Measures(Table):
    """A policy's evaluation as one value for each problem and metric, so that policies can be compared problem by problem."""

    problem_id: Series[str] = pa.Field(str_length={"min_value": 1})
    metric: Series[str] = pa.Field(str_length={"min_value": 1})
    value: Series[float]

    @pa.dataframe_check(error="a problem has one value of a metric")
    def values_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(problem_id, metric) is a key."""
        return ~frame.duplicated(["problem_id", "metric"])


class Measured(Table):
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

"""The tables of the agents flow."""

import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class Spoken(Table):
    """What was read, said and paid in a turn."""

    episode: Series[int] = pa.Field(ge=0)
    turn: Series[int] = pa.Field(ge=0)
    observation: Series[str]  # what was read before the action; of turn 0 the opening, its messages as JSON
    action: Series[str]
    reward: Series[float]


class Turns(Spoken):
    """Turns of recorded episodes."""


class EpisodeTable(Table):
    """One row an episode."""

    episode: Series[int] = pa.Field(ge=0, unique=True)
    game: Series[int] = pa.Field(ge=0)  # the seed of its environment
    total: Series[float]  # the sum of its rewards
    optimum: Series[float] = pa.Field(
        nullable=True
    )  # the largest sum that search finds, knowing the whole game; null: unknown
    turns: Series[int] = pa.Field(ge=0)
    cut: Series[bool]  # after the environment's max_turns, when it would have gone on


class SampledTurns(Spoken):
    """Turns of policies, by policy (its seed, -1 where there is but one) and temperature."""

    seed: Series[int] = pa.Field(ge=-1)
    temperature: Series[float] = pa.Field(ge=0)
    tokens: Series[object]  # the action's tokens, the end token included
    logps: Series[object]  # each one's log-probability under the distribution sampled from
    observed: Series[object]  # the tokens that stood before the action and behind the last one: masked from every loss


class SampledEpisodes(Table):
    """One row an episode, by policy and temperature."""

    seed: Series[int] = pa.Field(ge=-1)
    temperature: Series[float] = pa.Field(ge=0)
    episode: Series[int] = pa.Field(ge=0)
    game: Series[int] = pa.Field(ge=0)
    total: Series[float]
    optimum: Series[float] = pa.Field(nullable=True)
    turns: Series[int] = pa.Field(ge=0)
    counted: Series[str]  # JSON: sums of what the environment counted


FILES = {
    **{f"{split}_turns.parquet": Turns for split in ("train", "validation")},
    **{f"{split}_episodes.parquet": EpisodeTable for split in ("train", "validation")},
    "sampled_turns.parquet": SampledTurns,
    "sampled_episodes.parquet": SampledEpisodes,
}

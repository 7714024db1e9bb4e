"""The section `agent_episodes` of params.yaml."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Branch, Config, Seed


class EpisodeSet(Config):
    """One data set: the episodes of one policy, of the expert, or of both."""

    stage: Literal["behaviour_cloning", "agents"]  # the stage that trains the policy
    branch: str  # the stage's branch: an environment, or a key of branches.agents
    environment: str  # a key of branches.expert_episodes: where it plays
    temperature: float = Field(ge=0, le=100)  # at which the policy plays; 0 is greedy
    # games of the split `train` that the policy plays; of an agent each seed's policy plays them
    episodes: int = Field(ge=0, le=10**6)
    expert: int = Field(ge=0, le=10**6)  # the first of the expert's recorded episodes, beside them

    @field_validator("expert")
    @classmethod
    def _check_not_empty(cls, value: int, info: ValidationInfo) -> int:
        if value + info.data.get("episodes", 1) == 0:
            raise ValueError("expected at least 1 here or in episodes")
        return value


class AgentEpisodesConfig(Config):
    """Which data sets there are, and how texts become vectors (tasks/agents/environments/vectors.py)."""

    branched_by = "sets"

    sets: dict[Branch, EpisodeSet]  # data sets by a name of your own
    seed: Seed  # all random draws of the stage follow from it
    max_action_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an action; a longer one is cut off
    # turns that an action must be said in, of all; an episode with a rarer one is left out; 1 keeps all
    least: int = Field(ge=1, le=10**6)
    # buckets that words are hashed into; an observation has three times as many numbers, and one more
    features: int = Field(ge=1, le=10**5)
    decay: float = Field(ge=0, le=1)  # what the memory of earlier turns is worth a turn later; 1 forgets nothing

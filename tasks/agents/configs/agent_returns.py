"""The section `agent_returns` of params.yaml."""

from typing import Annotated

from pydantic import Field

from tasks.common.config import Config, Distinct, Seed


class AgentReturnsConfig(Config):
    """How policies are measured."""

    seed: Seed  # all random draws of the stage follow from it
    games: int = Field(ge=1, le=10**6)  # games of the split `test`, one episode each
    # temperatures at which every policy plays; 0 is greedy. The best of the policy before training is what a gain
    # counts against
    temperatures: Annotated[list[Annotated[float, Field(ge=0, le=100)]], Field(min_length=1), Distinct]
    max_action_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an action; a longer one is cut off

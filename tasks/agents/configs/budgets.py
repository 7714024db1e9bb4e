"""The section `budgets` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.common.config import Branch, Config, Distinct, Seed
from tasks.language.configs.parts.training import UNUSED, TrainingConfig

Source = Literal["demonstrations", "teacher", "successes", "comparisons", "rewards"]


class BudgetConfig(Config):
    """What a policy learns from, and what that may cost."""

    environment: str  # a key of branches.expert_episodes: where it plays
    clone: str  # a key of branches.expert_episodes: whose clone training starts from
    # demonstrations: the expert's | teacher: another model's episodes | successes: the best of own episodes (rejection
    # sampling) comparisons: which of two own episodes went better (DPO) | rewards: of own episodes (GRPO)
    source: Source
    dollars: float = Field(gt=0)  # what may be spent at `prices`
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up


class PricesConfig(Config):
    """What things cost, in dollars."""

    demonstration: float = Field(gt=0)  # a turn that the expert plays
    teacher: float = Field(gt=0)  # a turn that the other model plays
    comparison: float = Field(gt=0)  # two episodes compared: each turn of the longer one
    reward: float = Field(gt=0)  # an episode rated


class BudgetsConfig(Config):
    """The policies, and what their training has in common."""

    idle = UNUSED
    branched_by = "policies"

    policies: dict[Branch, BudgetConfig]  # policies by a name of your own
    teacher: str  # a key of branches.expert_episodes: the clone that is the teacher, which plays greedily
    prices: PricesConfig  # dollars
    seeds: Annotated[list[Seed], Field(min_length=1), Distinct]  # each trains a policy of its own
    games: int = Field(ge=1, le=10**6)  # games that are played at once, and with rewards in a step
    episodes: int = Field(ge=2, le=10**5)  # own episodes of each game, which are a group
    temperature: float = Field(gt=0, le=100)  # temperature of own play; 1 is the model's own distribution
    max_action_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an action; a longer one is cut off
    epochs: int = Field(ge=1, le=10**6)  # passes over what was bought; with rewards over each step's episodes
    batch_size: int = Field(ge=1, le=10**6)  # episodes or pairs of a gradient step; with rewards of one pass
    beta: float = Field(gt=0)  # how much a margin counts, with comparisons (arXiv:2305.18290, eq. 7)
    clip: float = Field(gt=0)  # largest norm of the gradient; a larger one is scaled down
    # how far the ratio may move from 1 before the gradient stops, with rewards (arXiv:1707.06347, eq. 7)
    clip_ratio: float = Field(gt=0, lt=1)
    training: TrainingConfig  # optimizer, schedule, memory

"""The section `agents` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Branch, Config, Distinct, Idle, Seed
from tasks.language.configs.parts.training import UNUSED, TrainingConfig


class AgentConfig(Config):
    """One policy: where it plays, how its actions get credit, and how it is updated (tasks/algorithms/agents)."""

    idle = (
        Idle(("lam",), {"credit": ("total", "to_go")}),
        Idle(("learning_rate",), {"update": ("trust_region",)}),
    )

    environment: str  # a key of branches.expert_episodes: where it plays
    clone: str  # a key of branches.expert_episodes: whose clone training starts from
    # total: the episode's return for every turn | to_go: the rewards after it | q, advantage: by a critic of actions or
    # states
    credit: Literal["total", "to_go", "q", "advantage"]
    over: Literal["turns", "tokens"]  # tokens: generalised advantage estimation over every token; with credit advantage
    # none | mean: of the batch | group: of the episodes of one game (GRPO); not with credit advantage
    baseline: Literal["none", "mean", "group"]
    standardized: bool  # whether advantages are divided by their standard deviation
    # lambda of the critic's targets and of generalised advantage estimation: 0 is one step and then the value, 1 all
    # rewards
    lam: float = Field(ge=0, le=1)
    # plain: one step along the policy gradient | clip: PPO's clipped surrogate | trust_region: TRPO
    update: Literal["plain", "clip", "trust_region"]
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up

    @field_validator("over")
    @classmethod
    def _check_over_fits_credit(cls, value: str, info: ValidationInfo) -> str:
        if value == "tokens" and info.data.get("credit", "advantage") != "advantage":
            raise ValueError("expected 'turns' with another credit than advantage")
        return value

    @field_validator("baseline")
    @classmethod
    def _check_baseline_fits_credit(cls, value: str, info: ValidationInfo) -> str:
        if value != "none" and info.data.get("credit") == "advantage":
            raise ValueError("expected 'none' with credit advantage, whose baseline is its critic")
        return value


class AgentsConfig(Config):
    """The policies, and what their training has in common."""

    idle = UNUSED
    branched_by = "policies"

    policies: dict[Branch, AgentConfig]  # policies by a name of your own
    seeds: Annotated[list[Seed], Field(min_length=1), Distinct]  # each trains a policy of its own
    steps: int = Field(ge=1, le=10**9)  # batches of episodes that are played and learned from
    games: int = Field(ge=1, le=10**6)  # games of a step
    episodes: int = Field(ge=1, le=10**5)  # episodes of each game, which are a group
    temperature: float = Field(gt=0, le=100)  # temperature of sampling; 1 is the model's own distribution
    max_action_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an action; a longer one is cut off
    gamma: float = Field(gt=0, le=1)  # discount of a reward one turn later
    clip: float = Field(gt=0)  # largest norm of the gradient; a larger one is scaled down
    # how far the ratio may move from 1 before the gradient stops, with update clip (arXiv:1707.06347, eq. 7)
    clip_ratio: float = Field(gt=0, lt=1)
    epochs: int = Field(ge=1, le=10**6)  # passes over each batch, with update clip
    minibatches: int = Field(ge=1, le=10**6)  # minibatches in a pass
    critic_learning_rate: float = Field(gt=0)  # learning rate of critics
    # steps of a critic on each batch; with update clip one beside each of the policy's
    critic_updates: int = Field(ge=1, le=10**6)
    # largest KL divergence of a step from the policy before, in nats a token, with update trust_region
    radius: float = Field(gt=0)
    iterations: int = Field(ge=1, le=10**5)  # steps of conjugate gradients (arXiv:1502.05477, appendix C)
    damping: float = Field(ge=0)  # what is added to the diagonal of the Fisher matrix
    halvings: int = Field(ge=0, le=100)  # of a step that goes beyond the radius or gains nothing
    micro_batch: int = Field(ge=1, le=10**6)  # episodes in one pass of training; a trust region passes all of a batch
    training: TrainingConfig  # optimizer, schedule, memory

    @field_validator("episodes")
    @classmethod
    def _check_episodes_for_baseline(cls, value: int, info: ValidationInfo) -> int:
        policies: dict[str, AgentConfig] = info.data.get("policies", {})
        for name, policy in policies.items():
            if value == 1 and policy.baseline == "group":
                raise ValueError(
                    f"expected a whole number of at least 2, since branches.agents.{name} has the baseline group"
                )
            if value == info.data.get("games") == 1 and (policy.baseline, policy.credit) == ("mean", "total"):
                raise ValueError(
                    f"expected at least 2 with games: 1, since branches.agents.{name} has the baseline mean"
                )
        return value

    @field_validator("minibatches")
    @classmethod
    def _check_minibatch_count(cls, value: int, info: ValidationInfo) -> int:
        episodes = info.data.get("games", value) * info.data.get("episodes", 1)
        if value > episodes:
            raise ValueError(f"expected at most games x episodes = {episodes}")
        return value

"""The section `behaviour` of params.yaml."""

from pydantic import Field, field_validator

from tasks.common.config import Branch, Config, LocalPath, Seed, Sizes
from tasks.offline.configs import wrappers

OWN = ("graph", "key-to-door", "bit-flip", "goal-graph", "reach")  # the environments of this repository


class BehaviourTraining(Config):
    """PPO's training in one environment; with 0 steps there is only a random policy."""

    # Gymnasium's id or module:id, with the arguments of gymnasium.make in braces or without, or module:folder; any with
    # wrappers or without, in quotes: "FrozenLake-v1 {is_slippery: false} | TimeLimit {max_episode_steps: 50}"; null:
    # the key itself
    id: str | None
    steps: int = Field(ge=0, le=10**9)  # steps in the environment
    medium: float = Field(gt=0, lt=1)  # place of the medium policy's return between the random and the best policy's
    evaluate_every: int = Field(ge=1, le=10**9)  # updates between two evaluations
    learning_rate: float = Field(gt=0)  # learning rate of policy and critic
    gamma: float = Field(ge=0, le=1)  # discount of a reward one step later
    entropy: float = Field(ge=0)  # weight of the entropy bonus

    @field_validator("id", mode="before")
    @classmethod
    def _check_id_is_quoted(cls, name: object) -> object:
        if isinstance(name, dict):  # YAML takes what stands before a colon for a key
            raise ValueError(f'expected text in quotes where it has braces, such as "{wrappers.EXAMPLE}"')
        return name

    @field_validator("id")
    @classmethod
    def _check_id_and_wrappers(cls, name: str | None) -> str | None:
        if name is not None:
            wrappers.check_environment_name(name)
        return name


class BehaviourConfig(Config):
    """PPO's settings; those of single environments stand in their own entries."""

    branched_by = "environments"

    environments: dict[Branch, BehaviourTraining]  # environments of Gymnasium or another package, or our own
    # file or folder of the environments that are named module:folder, such as data/agent_episodes, a dep of the stage;
    # environments/none where there are none
    environment_files: LocalPath
    seed: Seed  # all random draws of the stage follow from it
    copies: int = Field(ge=1, le=10000)  # copies of the environment, played side by side
    horizon: int = Field(ge=1, le=10**6)  # steps of each copy for one update
    hidden: Sizes  # width of each hidden layer
    # lambda of generalised advantage estimation (arXiv:1506.02438): 0 is one step and then the value, 1 all rewards
    lam: float = Field(ge=0, le=1)
    clip: float = Field(gt=0)  # how far the ratio may move from 1 before the gradient stops
    epochs: int = Field(ge=1, le=10**6)  # passes over each batch
    minibatches: int = Field(ge=1, le=10**6)  # minibatches in a pass
    max_gradient: float = Field(gt=0)  # norm that gradients are clipped to
    evaluate_episodes: int = Field(ge=2, le=10**7)  # episodes that evaluate every policy on the way: the first look
    # policies that get a second look: so many of the best, and of those nearest to the medium return
    finalists: int = Field(ge=1)
    final_episodes: int = Field(ge=2, le=10**7)  # other episodes of each of these: the second look, which chooses
    measure_episodes: int = Field(ge=2, le=10**7)  # yet other episodes, which measure each chosen policy

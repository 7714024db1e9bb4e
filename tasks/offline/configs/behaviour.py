"""The section `behaviour` of params.yaml."""

from pydantic import Field

from tasks.common.config import Branch, Config, Seed, Sizes

ENVIRONMENT = r"^(\w+(\.\w+)*:)?[\w./-]+$"  # an environment's name, with or without the module that registers it
OWN = ("graph", "key-to-door")  # the environments of this repository


class Training(Config):
    """PPO's way in one environment; without steps there is a random policy only."""

    id: str | None = Field(pattern=ENVIRONMENT)  # Gymnasium's, or module:id; null: the key itself
    steps: int = Field(ge=0, le=10**9)  # in the environment
    medium: float = Field(gt=0, lt=1)  # where between the random and the best policy's return the medium one's lies
    evaluate_every: int = Field(ge=1, le=10**9)  # updates
    learning_rate: float = Field(gt=0)  # of policy and critic
    gamma: float = Field(ge=0, le=1)  # discount of a reward one step later
    entropy: float = Field(ge=0)  # weight of the bonus


class BehaviourConfig(Config):
    """PPO, alike in all environments but for what they say themselves."""

    environments: dict[Branch, Training]  # Gymnasium's, another package's or our own
    seed: Seed  # all of the stage's draws follow from it
    copies: int = Field(ge=1, le=10000)  # of the environment, side by side
    horizon: int = Field(ge=1, le=10**6)  # steps of each for one update
    hidden: Sizes  # width of each hidden layer
    # of generalised advantage estimation (arXiv:1506.02438): 0 is one step and then the value, 1 all rewards
    lam: float = Field(ge=0, le=1)
    clip: float = Field(gt=0)  # of the ratio, as in PPO
    epochs: int = Field(ge=1, le=10**6)  # passes over each batch
    minibatches: int = Field(ge=1, le=10**6)  # in a pass
    max_gradient: float = Field(gt=0)  # norm that gradients are clipped to
    evaluate_episodes: int = Field(ge=2, le=10**7)  # of every policy on the way: the first look
    # policies that get a second look: the best ones, and those nearest to the medium return
    finalists: int = Field(ge=1)
    final_episodes: int = Field(ge=2, le=10**7)  # of each of them, others: the second look, which chooses
    measure_episodes: int = Field(ge=2, le=10**7)  # of each policy that was chosen, others again

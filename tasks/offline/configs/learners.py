"""What the sections of the methods that learn from data sets have in common."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from tasks.common.config import Branch, Config, Distinct, Seed, Sizes

RELABEL = Literal["none", "future", "final", "episode"]  # which of its episode's goals a transition gets (hindsight.py)
DataSets = Annotated[list[Branch], Distinct]  # keys of branches.transitions


class MethodConfig(Config):
    """A method that learns from data sets, by which flows and the report know it: its branches are `datasets`, a list
    or a mapping.

    Its variants, whose names stand in tables, are one of a fixed name, or the keys of one of its mappings.
    """

    branched_by = "datasets"
    if TYPE_CHECKING:
        datasets: Collection[str]

    variant: ClassVar[str] = ""  # the name of the one variant
    named_by: ClassVar[str] = ""  # or the key of the section whose entries are the variants
    needs_actions: ClassVar[Literal["", "discrete", "continuous"]] = ""  # the only kind that it is for; empty: either

    @property
    def variant_names(self) -> list[str]:
        """The names of its variants, in the order of the tables."""
        return [*getattr(self, self.named_by)] if self.named_by else [self.variant]

    @property
    def has_relabelling(self) -> bool:
        """Whether it, or one of its variants, gives transitions other goals, which an environment must have."""
        variants = getattr(self, "variants", None) or {}
        return any(getattr(variant, "relabel", "none") != "none" for variant in (self, *variants.values()))


class LearnerConfig(MethodConfig):
    """How long a method learns, with which seeds, and how often it is evaluated."""

    seeds: Annotated[list[Seed], Field(min_length=1), Distinct]  # each trains a policy of its own
    steps: int = Field(ge=1, le=10**9)  # gradient steps
    batch_size: int = Field(ge=1, le=10**6)  # transitions, or windows of them, a gradient step
    log_every: int = Field(ge=1, le=10**9)  # steps whose metrics become one row of the curve
    evaluate_every: int = Field(ge=1, le=10**9)  # rows between two evaluations
    # episodes of an evaluation; the policy that is kept is the last one, not the best
    evaluate_episodes: int = Field(ge=1, le=10**7)
    # matrix products in bfloat16; faster for wide networks where the processor has it, and results differ a little
    bfloat16: bool


class QConfig(LearnerConfig):
    """The network, how it is fitted, and how its target network follows it."""

    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of Adam
    gamma: float = Field(ge=0, le=1)  # discount of a reward one step later
    loss: Literal["huber", "squared"]  # loss of the temporal difference: huber | squared
    target_every: int = Field(ge=1, le=10**9)  # steps between two updates of the target network
    target_rate: float = Field(gt=0, le=1)  # how far it then moves: 1 all the way, less is Polyak averaging


class FineTuningConfig(Config):
    """How a variant that learned from a data set goes on in its environment."""

    after: int = Field(ge=0, le=10**9)  # gradient steps on the data set alone
    steps: int = Field(ge=1, le=10**6)  # steps in the environment before each gradient step from then on
    replay: int = Field(ge=1)  # transitions that are kept of them
    # share of each batch that is drawn from them; null: drawn from them and the data set as from one heap
    share: float | None = Field(gt=0, lt=1)


def check_fine_tuning_is_reached(tuning: FineTuningConfig, section: Mapping[str, Any]) -> None:
    """ValueError if a variant of the section is to go on online after the last of all its gradient steps."""
    online = any(variant.online for variant in section.get("variants", {}).values())
    steps = section.get("steps")
    if online and steps is not None and tuning.after >= steps:
        raise ValueError(f"expected after below steps, which are {steps}: a variant would never go online")


class ExplorationConfig(Config):
    """How an environment is explored."""

    replay: int = Field(ge=1)  # transitions that the memory keeps, those with other goals too
    warmup: int = Field(ge=1)  # steps of random play before the first gradient step
    steps: int = Field(ge=1)  # steps in the environment before each gradient step
    first_epsilon: float = Field(ge=0, le=1)  # share of random actions at first; it falls linearly
    last_epsilon: float = Field(ge=0, le=1)  # share of random actions that it falls to
    last_from: int = Field(ge=1)  # step in the environment from which on the share is last_epsilon

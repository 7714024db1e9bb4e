"""The section `dqn` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Idle, Name
from tasks.offline.configs.learners import RELABEL, DataSets, ExplorationConfig, QConfig


class DQNVariant(Config):
    """One variant of the method."""

    idle = (Idle(("relabel",), {"replay": (False,)}, neutral="none"),)

    double: bool  # whether the online network selects the next action, which the target network values
    # a target network, apart from the online one; without one the online network values the next action itself
    target: bool
    # batches drawn from all that is kept; without, of steps that followed each other: online the last ones
    replay: bool
    online: bool  # learns in the data set's environment, and not from the data set
    # hindsight: goals that an episode reached in the place of the one asked: none | future | final | episode
    relabel: RELABEL


class DqnConfig(QConfig):
    """How the network learns."""

    named_by = "variants"
    needs_actions = "discrete"
    idle = (
        Idle(("exploration",), {"variants.*.online": (False,)}),
        Idle(("target_every", "target_rate"), {"variants.*.target": (False,)}),
        Idle(("relabelled",), {"variants.*.relabel": ("none",)}),
    )

    datasets: DataSets  # keys of branches.transitions that it learns from
    variants: dict[Name, DQNVariant] = Field(min_length=1)  # variants by the names that tables show
    # copies of each transition with such goals; from a data set the same share of each batch gets them
    relabelled: int = Field(ge=1, le=100)
    exploration: ExplorationConfig  # settings for variants that learn online

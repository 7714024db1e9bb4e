"""The section `rebrac` of params.yaml."""

from pydantic import Field

from tasks.extensions.continuous_control.configs.td3_bc import TwinDelayedConfig


class RebracConfig(TwinDelayedConfig):
    """The two penalties, and the networks."""

    variant = "ReBRAC"
    needs_actions = "continuous"

    # weight of the squared distance to the data's actions in the policy's loss, whose values are scaled to a mean size
    # of 1
    policy_beta: float = Field(ge=0)
    critic_beta: float = Field(ge=0)  # value subtracted from the critics' targets for a squared distance of 1
    layer_norm: bool  # layer normalisation in the critics

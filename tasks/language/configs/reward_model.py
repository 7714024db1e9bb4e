"""The section `reward_model` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, Seed


class RewardModelConfig(Config):
    """How the reward model scores a response, and how it is trained."""

    idle = (Idle(("beta",), {"kind": ("head",)}), Idle(("likelihood",), {"kind": ("head",)}, neutral=0.0))

    seed: Seed  # all of the stage's draws follow from it
    kind: Literal["head", "log_probability"]  # on the last token's state | beta x the mean over the tokens
    beta: float = Field(gt=0)  # log_probability only: 0.1 nats a token more are 0.1 beta more of log-odds
    likelihood: float = Field(ge=0)  # log_probability only: weight of the chosen responses' NLL a token
    epochs: int = Field(ge=1, le=10**6)  # passes over the data
    prompts_per_batch: int = Field(ge=1, le=10**6)  # all pairs of a prompt stand in one batch
    learning_rate: float = Field(gt=0)  # at its highest, behind the warm-up
    weight_decay: float = Field(ge=0)  # decoupled from the gradient (AdamW, arXiv:1711.05101)
    centering: float = Field(ge=0)  # weight of the mean squared sum of a pair's scores
    # weight of a corrupted best answer as one more rejected; a prompt's pairs together have 1
    corrupted: float = Field(ge=0)
    margin: float = Field(ge=0)  # asked of strong preferences over slight ones (arXiv:2307.09288, eq. 2); 0 for none
    clip: float = Field(gt=0)  # of the gradient's norm, for all weights together

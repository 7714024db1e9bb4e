"""The section `reward_model` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, LocalPath, Seed
from tasks.language.configs.parts.training import UNUSED, AccumulatingConfig, DroppingAdapterConfig

SOLUTIONS = ("outcome", "process")  # objectives that learn from solutions, not from preferences


class MarginsConfig(Config):
    """The score difference asked of a pair by its level of strength (arXiv:2307.09288, eq. 2); 0 asks for none."""

    negligibly: float = Field(ge=0)  # of pairs whose chosen response is negligibly better
    slightly: float = Field(ge=0)  # slightly better
    better: float = Field(ge=0)  # better
    significantly: float = Field(ge=0)  # significantly better


class RewardModelConfig(Config):
    """What the reward model learns from, how it scores a response, and how it is trained."""

    idle = (
        *UNUSED,
        Idle(("centering", "corrupted"), {"objective": SOLUTIONS}, neutral=0.0),
        Idle(("beta",), {"kind": ("head",)}),
        Idle(("threshold",), {"kind": ("head",)}),
        Idle(("threshold",), {"objective": ("pairs", "ranking")}),
        Idle(("likelihood",), {"kind": ("head",)}, neutral=0.0),
        Idle(("truncation",), {"max_length": (None,)}),
        Idle(("margins",), {"objective": ("ranking", *SOLUTIONS)}),
        Idle(("ties",), {"objective": ("pairs", *SOLUTIONS)}),
        Idle(("outcome_tokens",), {"objective": ("pairs", "ranking", "process")}),
        Idle(("outcome_tokens",), {"kind": ("log_probability",)}),
        Idle(("step_score",), {"objective": ("pairs", "ranking", "outcome")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    # pairs: of two answers the better one | ranking: all pairs of a ranking at once | outcome: answers that are right
    # or wrong | process: steps that are bad, neutral or good
    objective: Literal["pairs", "ranking", "outcome", "process"]
    # folder of the examples, a dep: data/preferences, or data/solutions for outcome and process
    data: LocalPath
    # head: on the last token's state | log_probability: beta x the mean over the tokens, of an answer or of a step
    kind: Literal["head", "log_probability"]
    beta: float = Field(gt=0)  # with log_probability: factor on the mean log-probability of a token
    # with log_probability of outcome and process: the mean negative log-probability a token, in nats, at which right
    # and wrong are equally likely
    threshold: float = Field(gt=0)
    # with log_probability: weight of the NLL a token of the chosen responses, the right answers or the steps that are
    # not bad
    likelihood: float = Field(ge=0)
    epochs: int = Field(ge=1, le=10**6)  # passes over the data
    prompts_per_batch: int = Field(ge=1, le=10**6)  # prompts in a batch, each with all its pairs
    # tokens of a prompt with a response, at most; null: the model's own limit
    max_length: int | None = Field(ge=8, le=10**7)
    # of longer ones: right cuts off the response's end, left the prompt's beginning, drop leaves the pair out
    truncation: Literal["right", "left", "drop"]
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    centering: float = Field(ge=0)  # weight of the mean squared sum of a pair's scores
    # weight of the pair of a best answer and its corruption; a prompt's own pairs together have 1
    corrupted: float = Field(ge=0)
    margins: MarginsConfig  # with pairs: the score difference asked of a pair, by its level of strength
    # with ranking: half, a tied pair asks for equal scores | drop, it is left out
    ties: Literal["half", "drop"]
    # with outcome and head: which tokens of an answer say whether it is right
    outcome_tokens: Literal["all", "last"]
    # with process: what a response is worth by its steps' probabilities of not being bad: their minimum, their product
    # or the last one
    step_score: Literal["minimum", "product", "last"]
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory
    lora: DroppingAdapterConfig | None  # an adapter in place of all weights; null for none

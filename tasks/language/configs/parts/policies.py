"""What the sections of policies that are trained by reward have in common."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from tasks.common.config import Config, Idle, LocalPath, Seed
from tasks.language.configs.parts.names import Reward
from tasks.language.configs.parts.python_rewards import contains_reward_file, is_python_reward
from tasks.language.configs.parts.training import UNUSED, AdapterConfig, TrainingConfig


def _check_positive_weight(weights: dict[str, float]) -> dict[str, float]:
    if not any(weights.values()):
        raise ValueError("expected one weight above 0")
    return weights


RewardWeights = Annotated[dict[Reward, Annotated[float, Field(ge=0)]], AfterValidator(_check_positive_weight)]


class SamplingConfig(Config):
    """What every stage that samples from its policy and judges the samples has in its section."""

    seed: Seed  # all random draws of the stage follow from it
    training: TrainingConfig  # optimizer, schedule, memory
    samples: int = Field(ge=1, le=10**5)  # responses to a prompt
    temperature: float = Field(gt=0, le=100)  # temperature of sampling; 1 is the model's own distribution
    # share of the probability that sampling keeps, that of the likeliest tokens (top-p); 1 keeps all
    top_p: float = Field(gt=0, le=1)
    max_new_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an answer; a longer one is cut off
    # weights in the sum that is paid: verifiable (right final answer), rubric (points / 10), reward_model (its score),
    # format, constraints (share that is kept), code (passes its tests), outcome (the score of an outcome reward model),
    # process (of a process reward model), functions of your own
    reward: RewardWeights
    reward_model_path: LocalPath  # folder of the reward model, a dep; read only where a reward asks for it
    # file or folder of the functions in Python that the reward uses, a dep of the stage; rewards/none where it uses
    # none
    reward_files: LocalPath
    reward_seconds: float = Field(gt=0, le=10**6)  # longest time that one call of a function in Python may take
    # largest share of a step's responses that may have no reward (None, or a judge that fails); above it the stage
    # stops. 1 never stops
    reward_none_limit: float = Field(ge=0, le=1)
    # whether rewards read answers without `<think>...</think>` (the reward model reads all); an unclosed block is no
    # answer
    strip_thinking: bool

    @field_validator("reward_files")
    @classmethod
    def _check_path_is_tracked(cls, value: str, info: ValidationInfo) -> str:
        for name, weight in info.data.get("reward", {}).items():
            if weight and is_python_reward(name) and not contains_reward_file(value, name):
                raise ValueError(f"expected {name.partition(':')[0]} or a folder that holds it, since reward counts it")
        return value


class PolicyConfig(SamplingConfig):
    """What the sections of all policies trained by reward have in common."""

    idle: ClassVar[tuple[Idle, ...]] = (*UNUSED, Idle(("evaluate_prompts",), {"evaluate_every": (0,)}))

    # temperature of the distribution that is trained; null: that of sampling. Another one is a sampler that differs
    # from the trainer
    trained_temperature: Annotated[float, Field(gt=0, le=100)] | None
    # trainer: answers are sampled from the weights that are trained | bf16: from a copy in bfloat16, rounded anew
    # before each step, as inference engines keep one; it needs half the memory of the weights
    sampler_precision: Literal["trainer", "bf16"]
    # largest importance weight of a token, its probability in training over that in sampling; null: no weights
    importance_cap: Annotated[float, Field(gt=0)] | None
    steps: int = Field(ge=1, le=10**9)  # batches of prompts that are answered and learned from
    prompts_per_step: int = Field(ge=1, le=10**6)  # prompts of a step, each with `samples` responses
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    clip: float = Field(gt=0)  # largest norm of the gradient; a larger one is scaled down
    lora: AdapterConfig | None  # an adapter in place of all weights; null for none
    keep: Literal["best", "last"]  # which checkpoint is the out: the best by reward on validation problems, or the last
    evaluate_every: int = Field(ge=0, le=10**9)  # steps between two evaluations on validation problems; 0 for none
    evaluate_prompts: int = Field(ge=1, le=10**7)  # validation problems of an evaluation
    show_every: int = Field(ge=0, le=10**9)  # steps between two tables of samples in MLflow; 0 for none

    @property
    def old_from_sampler(self) -> bool:
        """Whether the sampler's log-probabilities are the policy's own before an update, so that no pass computes
        these.
        """
        differs = self.top_p < 1 or self.trained_temperature not in (None, self.temperature)
        differs |= self.sampler_precision != "trainer"
        return not differs and self.importance_cap is None

    @field_validator("sampler_precision")
    @classmethod
    def _check_sampler_precision(cls, value: str, info: ValidationInfo) -> str:
        training = info.data.get("training")
        if value != "trainer" and training is not None and training.precision != "fp32":
            raise ValueError(
                f"expected 'trainer' with training.precision {training.precision}, which samples in bfloat16"
            )
        return value

    @field_validator("evaluate_every")
    @classmethod
    def _check_best_is_evaluated(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("keep") == "best" and not value:
            raise ValueError("expected at least 1 with keep best")
        return value

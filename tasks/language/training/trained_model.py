"""A model while it is trained: in the precision that its section asks for, and how it is kept and saved."""

from pathlib import Path
from typing import Generic, TypeVar

from tasks.algorithms.common.precision import TrainedWeights, compute_dtype, in_full, set_precision
from tasks.algorithms.language import checkpointing
from tasks.algorithms.language.causal_lm import CausalLMWithBody, PretrainedCausalLM, PretrainedModel
from tasks.algorithms.language.critic import Critic
from tasks.common import models
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.training import TrainingConfig

Model = TypeVar("Model", bound=PretrainedModel)


class TrainedModel(Generic[Model]):
    """A model with what a checkpoint of its training holds (`weights`)."""

    def __init__(self, model: Model, config: TrainingConfig) -> None:
        """Round the model in place, and have its layers recomputed, where `config` asks for it."""
        set_precision(model, config.precision)
        if config.gradient_checkpointing:
            checkpointing.enable(model)
        self.model, self.config, self.weights = model, config, TrainedWeights(model)

    def save(self, tokenizer: Tokenizer, out: Path) -> None:
        """Write the model to `out`, in fp32 unless the precision is pure_bf16. Training is over: the model is what was written."""
        if self.config.precision == "bf16":
            in_full(self.model)
        models.save_model(self.model, tokenizer, out)


def new_critic(policy: CausalLMWithBody, config: TrainingConfig) -> Critic:
    """The critic of a policy, trained as the policy is."""
    critic = Critic(policy)
    set_precision(critic, config.precision)
    return critic


def load(path: Path, config: TrainingConfig) -> TrainedModel[PretrainedCausalLM]:
    """The causal language model at `path`, about to be trained."""
    return TrainedModel(models.load_model(path, "bfloat16" if config.precision == "pure_bf16" else "float32"), config)


def frozen_dtype(config: TrainingConfig) -> str:
    """The type, as transformers names it, of a model that only takes part in the training, such as a reference."""
    return str(compute_dtype(config.precision)).removeprefix("torch.")

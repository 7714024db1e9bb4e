"""A model while it is trained: in the precision that its section asks for, with an adapter or without, and how it is
saved.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from tasks.algorithms.common import distributed, gradient_checkpointing, sharding
from tasks.algorithms.common.precision import (
    TrainedWeights,
    convert_weights_to_precision,
    get_compute_dtype,
    restore_full_precision,
)
from tasks.algorithms.language.causal_lm import CausalLM, PretrainedCausalLM, PretrainedModel
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.lm_head import probe_head
from tasks.common import adapters, models
from tasks.common.errors import ConfigError
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.parts.training import AdapterConfig, TrainingConfig

Model = TypeVar("Model", bound=PretrainedModel)


class TrainedModel(Generic[Model]):
    """A model with what a checkpoint of its training holds (`weights`): of a model with an adapter only that, and a new
    head.
    """

    def __init__(
        self,
        loaded: Callable[[str], Model],
        config: TrainingConfig,
        adapter: AdapterConfig | None = None,
    ) -> None:
        """`loaded` returns the model as it was before training, as the type that transformers names so."""
        self.loaded = loaded
        self.config = config
        self.adapter = adapter
        small = config.precision == "pure_bf16" or (adapter is not None and config.precision == "bf16")
        self.model = loaded("bfloat16" if small else "float32")
        self._add_adapter(self.model)
        if distributed.is_model_sharded():
            self._shard_model()
        convert_weights_to_precision(self.model, config.precision)
        if config.gradient_checkpointing:
            try:
                gradient_checkpointing.enable_gradient_checkpointing(self.model)
            except ValueError as error:
                name = self.model.name_or_path
                raise ConfigError(f"params.yaml: training.gradient_checkpointing: {name}: {error}") from None
        self.weights = TrainedWeights(self.model)

    def rounded(self) -> Model:
        """The same model once more, in bfloat16 throughout: to be given weights by `copy_weights_to_rounded_model`,
        and never trained.
        """
        with torch.random.fork_rng(devices=[]):  # a new adapter is drawn
            model = self.loaded("bfloat16")
            self._add_adapter(model)
        convert_weights_to_precision(model, "pure_bf16")
        for p in model.parameters():
            p.requires_grad_(False)
        return model

    def save(self, tokenizer: Tokenizer, out: Path) -> None:
        """Write the model to `out`, in fp32 unless the precision is pure_bf16; training is over, and the model is what
        was written.

        An adapter is merged into the weights, and stands in `out`/adapter besides; or it stands beside the weights that
        it was trained on, from where transformers and `models.load_model` load both.
        """
        if self.adapter is None and distributed.is_model_sharded():
            models.save_model(self.model, tokenizer, out, self.weights.state_dict())
            return
        if self.adapter is None:
            if self.config.precision == "bf16":
                restore_full_precision(self.model)
            models.save_model(self.model, tokenizer, out)
            return
        if self.config.precision != "fp32":  # the weights below the adapter were rounded
            trained = self.weights.state_dict()
            self.model = self.loaded("float32")
            self._add_adapter(self.model)
            TrainedWeights(self.model).load_state_dict(trained)
        adapters.save_adapter(self.model, out / "adapter" if self.adapter.merge else out)
        if not self.adapter.merge:
            self._save_base(tokenizer, out)
        adapters.merge_adapters(self.model)
        if self.adapter.merge:
            if self.config.precision == "pure_bf16":
                convert_weights_to_precision(self.model, "pure_bf16")
            models.save_model(self.model, tokenizer, out)

    def _shard_model(self) -> None:
        """Have the processes divide the model; of one with a new head on its body, the body alone."""
        if self.adapter is not None:
            raise ConfigError(
                "params.yaml: lora: a model with an adapter cannot be divided; expected lora null, or in dvc.yaml "
                "meta.resources.shard: optimizer"
            )
        probe_head(self.model)  # not when one process alone has come to need it
        _shard_module(self.model if getattr(self.model, "score", None) is None else self.model.base_model, self.config)

    def _add_adapter(self, model: Model) -> None:
        if self.adapter is not None:
            adapter_settings = self.adapter.model_dump(exclude={"merge"})
            adapters.add_adapter(model, **{"dropout": 0.0, **adapter_settings})

    def _save_base(self, tokenizer: Tokenizer, out: Path) -> None:
        """Write the model without its adapter, with the head that was trained."""
        base = self.loaded("float32")
        weights = base.state_dict()
        with torch.no_grad():
            for name, trained in TrainedWeights(self.model).state_dict().items():
                if name in weights:
                    weights[name].copy_(trained)
        models.save_model(base, tokenizer, out)


class WithoutAdapter:
    """A policy as it was before its adapter: a reference that needs no memory of its own.

    For passes without gradients.
    """

    def __init__(self, policy: PretrainedCausalLM) -> None:
        self.policy = policy

    def __call__(self, **inputs: Any) -> Any:
        """What the policy makes of the inputs without its adapter."""
        with adapters.disable_adapters(self.policy):
            return self.policy(**inputs)

    def __getattr__(self, name: str) -> Any:
        """All else is the policy's."""
        return getattr(self.policy, name)


def load_trainable_model(
    path: Path, config: TrainingConfig, adapter: AdapterConfig | None = None
) -> TrainedModel[PretrainedCausalLM]:
    """The causal language model at `path`, about to be trained."""
    return TrainedModel(partial(models.load_model, path), config, adapter)


def build_reference_model(path: Path, trained: TrainedModel[PretrainedCausalLM]) -> CausalLM:
    """The model at `path`, from which `trained` began: that model itself without its adapter, where it has one."""
    if trained.adapter is not None:
        without: CausalLM = WithoutAdapter(trained.model)
        return without
    return models.load_model(path, get_frozen_model_dtype(trained.config))


def build_policy_critic(trained: TrainedModel[PretrainedCausalLM]) -> Critic:
    """The critic of a policy, trained as the policy is; with an adapter of its own beside the same weights, where that
    has one.
    """
    if not distributed.is_model_sharded():
        critic = Critic(trained.model)
    else:  # the policy's weights are elsewhere
        critic = Critic(trained.loaded("bfloat16" if trained.config.precision == "pure_bf16" else "float32"))
        _shard_module(critic.body, trained.config)
    convert_weights_to_precision(critic, trained.config.precision)
    return critic


def _shard_module(body: object, config: TrainingConfig) -> None:
    assert isinstance(body, torch.nn.Module)
    sharding.shard_model(
        body, gradient_checkpointing.list_checkpointable_layers(body), get_compute_dtype(config.precision)
    )


def get_frozen_model_dtype(config: TrainingConfig) -> str:
    """The type, as transformers names it, of a model that only takes part in the training, such as a reward model."""
    return str(get_compute_dtype(config.precision)).removeprefix("torch.")

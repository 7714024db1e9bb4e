"""Gradient checkpointing: activations are kept between layers only, and recomputed within each in the backward pass
(arXiv:1604.06174).

transformers does it while a model's layers are in training mode, and then without a key-value cache. The algorithms
train with dropout off, and read a prompt once for all its responses, through the cache. So a pass with gradients reads
whole sequences here, with the layers alone in training mode, and what is within them as it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

Output = TypeVar("Output")


class Checkpointable(Protocol):
    """A model of transformers."""

    def modules(self) -> Iterator[nn.Module]:
        """All parts, itself included."""
        ...

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, object]) -> None:
        """Mark its layers."""
        ...


def enable_gradient_checkpointing(model: Checkpointable) -> None:
    """Have the model's layers recomputed from now on; ValueError for a model that does not support it."""
    model.activation_checkpointing_enable({"use_reentrant": False})
    if not any(isinstance(part, GradientCheckpointingLayer) for part in model.modules()):
        raise ValueError(f"{type(model).__name__} has no layers that transformers can recompute")


def list_checkpointable_layers(model: nn.Module) -> list[nn.Module]:
    """The model's layers, as transformers names those that can be recomputed."""
    return [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]


def list_layers_to_recompute(model: object) -> list[nn.Module]:
    """The layers that are to be recomputed in a pass with gradients; none outside of one, or where it was not asked
    for.
    """
    if not torch.is_grad_enabled() or not isinstance(model, nn.Module):
        return []
    return [
        part for part in model.modules() if isinstance(part, GradientCheckpointingLayer) and part.gradient_checkpointing
    ]


@contextmanager
def recompute_activations(marked: list[nn.Module]) -> Iterator[None]:
    """In the block these layers keep no activations, even those of a model with dropout off, which stays off."""
    resting = [layer for layer in marked if not layer.training]
    before = [layer._gradient_checkpointing_func for layer in resting]
    for layer in resting:
        layer.training, layer._gradient_checkpointing_func = True, partial(_checkpoint_without_dropout, layer)  # type: ignore[assignment]
    try:
        yield
    finally:
        for layer, function in zip(resting, before, strict=True):
            layer.training = False
            layer._gradient_checkpointing_func = function


def _checkpoint_without_dropout(layer: nn.Module, forward: Callable[..., Output], *inputs: Tensor) -> Output:
    layer.training = False
    output: Output = checkpoint(forward, *inputs, use_reentrant=False)
    return output

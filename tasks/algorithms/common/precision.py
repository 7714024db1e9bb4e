"""The precision of a model in training: fp32, bfloat16 with fp32 master weights, or bfloat16 for everything.

bfloat16 has 8 significant bits. They are enough for activations and gradients, but an update below about a 512th of its
weight is lost. So with `bf16` the optimizer updates a copy of each weight in fp32, its master, for which gradients are
summed in fp32 too; the model computes with the masters rounded (arXiv:1710.03740, section 3.1). `pure_bf16` has no
masters, and loses such updates.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from tasks.algorithms.common import distributed, sharding

Precision = Literal["fp32", "bf16", "pure_bf16"]


class Weighted(Protocol):
    """A module, as far as its weights are concerned."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All weights."""
        ...

    def state_dict(self, *, keep_vars: bool) -> Mapping[str, Tensor]:
        """All tensors by name; with `keep_vars` the weights themselves."""
        ...


def get_compute_dtype(precision: Precision) -> torch.dtype:
    """What a model computes with, and its keys and values are kept in."""
    return torch.float32 if precision == "fp32" else torch.bfloat16


def convert_weights_to_precision(model: Weighted, precision: Precision) -> None:
    """Round the weights in place; with bf16 those that are trained keep what they were as their masters.

    Divided weights stay as they are: their rows are the masters, and `sharding.shard_model` was told what to compute
    with.
    """
    if precision == "fp32":
        return
    for p in [p for p in model.parameters() if not sharding.is_sharded_weight(p)]:
        if precision == "bf16" and p.requires_grad:
            setattr(p, "master", nn.Parameter(p.detach().float()))  # noqa: B010 - torch knows no such attribute
            p.register_post_accumulate_grad_hook(_move_gradient_to_master)
        p.data = p.data.bfloat16()


def get_master_weight(p: Tensor) -> Tensor:
    """The weight as the optimizer updates it: the fp32 master of a rounded weight, this rank's rows of a divided one,
    any other itself.
    """
    weight: Tensor = getattr(p, "master", p)
    return weight


@torch.no_grad()
def copy_weights_to_rounded_model(model: Weighted, rounded: Weighted) -> None:
    """Give `rounded`, the same model in bfloat16, the model's weights as they are now; of a divided model they have to
    be whole here.
    """
    for rounded_weight, p in zip(rounded.parameters(), model.parameters(), strict=True):
        rounded_weight.copy_(p)


def restore_full_precision(model: Weighted) -> None:
    """Give a model with masters, in place, its weights in fp32 again: the masters, and the others as they are."""
    for p in model.parameters():
        p.data = get_master_weight(p).detach().float()
        vars(p).pop("master", None)


def _move_gradient_to_master(p: Tensor) -> None:
    """Move a weight's gradient to its master: summed there, parts of a batch lose nothing."""
    gradient = p.grad
    whole = get_master_weight(p)
    assert gradient is not None
    whole.grad = gradient.float() if whole.grad is None else whole.grad.add_(gradient)
    p.grad = None


class TrainedWeights:
    """What training changes of a model, unrounded, as a checkpoint holds it: no weight that is frozen, masters where
    there are some.
    """

    def __init__(self, model: Weighted) -> None:
        self.model = model

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name; they are the live ones.

        Ranks that divide the model all have to ask; the first gets the whole tensors, the others none.
        """
        trained = self._collect_trained_tensors()
        if not sharding.has_sharded_parts(self.model):
            return {name: get_master_weight(tensor).detach() for name, tensor in trained.items()}
        rows = {
            name: get_master_weight(tensor) for name, tensor in trained.items() if sharding.is_sharded_weight(tensor)
        }
        apart = {
            name: get_master_weight(tensor).detach()
            for name, tensor in trained.items()
            if not sharding.is_sharded_weight(tensor)
        }
        return {**sharding.gather_shards_on_main(rows), **(apart if distributed.is_main_rank() else {})}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned; ranks that divide the model need it on the first alone."""
        shared = sharding.has_sharded_parts(self.model)
        for name, tensor in self._collect_trained_tensors().items():
            updated = get_master_weight(tensor)
            if shared:
                whole = sharding.broadcast_tensor_from_main(state.get(name), tensor.shape, updated)
                updated.copy_(sharding.select_local_rows(whole) if sharding.is_sharded_weight(tensor) else whole)
            else:
                updated.copy_(state[name])
            if updated is not tensor and not sharding.is_sharded_weight(tensor):
                tensor.copy_(updated)

    def broadcast(self) -> None:
        """Give all ranks what rank 0 has; ranks that divide a model have done so before."""
        if not sharding.has_sharded_parts(self.model):
            distributed.broadcast_tensors(self.state_dict().values())

    def _collect_trained_tensors(self) -> dict[str, Tensor]:
        return {
            name: tensor
            for name, tensor in self.model.state_dict(keep_vars=True).items()
            if tensor.requires_grad or not isinstance(tensor, nn.Parameter)
        }

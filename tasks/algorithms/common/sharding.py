"""A model that ranks divide: weights, gradients and moments, by torch's FSDP2; stage 3 of ZeRO (arXiv:1910.02054,
section 5.3).

Each rank keeps some rows of each weight. A layer's weights are gathered when a pass reaches it and given back behind
it; its gradients are summed over ranks, and each keeps the sums of its rows. So all ranks have to call a divided model
equally often, with gradients or without: a rank that has no rows of a batch passes one that counts nothing. In a block
of `whole` the model is whole on each rank, and each calls it as often as it likes: to sample and to evaluate.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from tasks.algorithms.common import distributed

if TYPE_CHECKING:  # its import costs half a second, which no training needs that divides nothing
    from torch.distributed.fsdp import FSDPModule

DIVIDED = "divided"  # attribute of a weight


def shard_model(body: nn.Module, layers: Iterable[nn.Module], dtype: torch.dtype) -> None:
    """Have ranks divide the module in place, layer by layer; it computes with `dtype`, and gradients are summed in
    fp32.

    All ranks have rank 0's weights then. Each weight gets an attribute `master` for the optimizer: this rank's rows of
    it (precision.py), unrounded.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    # torch warns of models whose output is a view: one must not write to it. Nothing here does.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    distributed.broadcast_tensors(body.parameters())
    device = next(body.parameters()).device.type
    mesh = init_device_mesh(device, (distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for part in (*layers, body):
        fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=part is not body)
    for made in _list_fsdp_modules(body):
        made.set_gradient_divide_factor(1.0)  # a sum over ranks, not a mean
        made.set_force_sum_reduction_for_comms(True)
    for p in body.parameters():
        rows = cast("Any", p).to_local().detach()
        vars(p).update({"master": nn.Parameter(rows), DIVIDED: True})


def has_sharded_parts(model: object) -> bool:
    """Whether ranks divide this model, or a part of it."""
    return distributed.is_model_sharded() and isinstance(model, nn.Module) and bool(_list_fsdp_modules(model))


@contextmanager
def hold_unsharded_model(model: object) -> Iterator[None]:
    """In the block each rank has the model's weights, and may call it as often as it likes. No gradients are summed."""
    parts = _list_fsdp_modules(model) if has_sharded_parts(model) else []
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.set_reshard_after_backward(False, recurse=False)
        part.set_requires_gradient_sync(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for number, part in enumerate(parts):
            part.set_reshard_after_forward(number > 0, recurse=False)  # the first has the others in it
            part.set_reshard_after_backward(True, recurse=False)
            part.set_requires_gradient_sync(True, recurse=False)
            part.reshard()


def move_gradient_to_rows(p: Tensor, rows: Tensor) -> None:
    """Move the gradient of a divided weight to this rank's rows of it."""
    gradient: Any = p.grad
    rows.grad = None if gradient is None else gradient.to_local()
    p.grad = None


def is_sharded_weight(p: Tensor) -> bool:
    """Whether this is a weight of which each rank has its rows only."""
    return getattr(p, DIVIDED, False)


def gather_shards_on_main(shards: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The whole tensors in rank 0's main memory, gathered one after another; others get nothing.

    One that has two names is one tensor.
    """
    tensors: dict[str, Tensor] = {}
    seen: dict[int, Tensor] = {}
    for name, rows in shards.items():
        if id(rows) not in seen:
            all_rows = distributed.gather_rows(rows.detach())
            seen[id(rows)] = all_rows.cpu() if distributed.is_main_rank() else all_rows[:0]
        if distributed.is_main_rank():
            tensors[name] = seen[id(rows)]
    return tensors


def broadcast_tensor_from_main(values: Tensor | None, shape: torch.Size, like: Tensor) -> Tensor:
    """Rank 0's `values` of this shape on all ranks, of the type and on the device of `like`; others need to give
    none.
    """
    room = torch.empty(shape, dtype=like.dtype, device=like.device)
    if distributed.is_main_rank():
        assert values is not None
        room.copy_(values)
    distributed.broadcast_tensors([room])
    return room


def select_local_rows(everything: Tensor) -> Tensor:
    """This rank's rows, as `divide` divides them: as torch.chunk does, so that the last ranks may have fewer or
    none.
    """
    each = -(-len(everything) // distributed.get_world_size())
    return everything[distributed.get_rank() * each :][:each]


def _list_fsdp_modules(model: object) -> "list[FSDPModule]":
    from torch.distributed.fsdp import FSDPModule

    return [part for part in model.modules() if isinstance(part, FSDPModule)] if isinstance(model, nn.Module) else []

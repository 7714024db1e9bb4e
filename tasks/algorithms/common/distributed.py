"""Several processes that train one model: what each of them takes of a batch, and the sums over all of them.

Each process holds the whole model and works on its share of every batch, a *rank*'s share. The algorithms weigh a part
of a batch by its share of the whole batch's loss, so that the parts' gradients add up to the batch's. So the gradient
is a plain sum over ranks, whatever a loss is a mean over; a rank without a part of the batch adds 0. Sums are the same
bits on all ranks, so weights and optimizers stay equal without being sent.

With one process every function here returns what it was given, and sends nothing.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor, distributed

BUCKET = 2**25  # numbers that are sent in one exchange; changes speed and memory only
SHARD = "POSTTRAIN_SHARD"  # variable: what the processes of a stage divide; "optimizer", "model", or nothing


def get_world_size() -> int:
    """The number of processes; 1 where training is not distributed."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def get_rank() -> int:
    """This process's number, from 0."""
    return distributed.get_rank() if get_world_size() > 1 else 0


def is_main_rank() -> bool:
    """Whether this is the process that writes and shows; others only compute."""
    return get_rank() == 0


def is_optimizer_sharded() -> bool:
    """Whether each rank keeps the moments of its own weights only."""
    return get_world_size() > 1 and os.environ.get(SHARD) == "optimizer"


def is_model_sharded() -> bool:
    """Whether each rank keeps its rows of the weights only, with their gradients and moments (sharding.py)."""
    return get_world_size() > 1 and os.environ.get(SHARD) == "model"


def is_state_sharded() -> bool:
    """Whether a rank has something of the training's state that the first has not."""
    return is_optimizer_sharded() or is_model_sharded()


def broadcast_decision(answer: bool) -> bool:
    """Rank 0's answer, on all ranks: for what hangs on a clock."""
    return bool(_broadcast_from(torch.tensor(answer), 0)) if get_world_size() > 1 else answer


def get_local_slice(count: int) -> slice:
    """The rows of `count` that this rank takes: neighbours, as evenly as possible, none where there are fewer rows than
    ranks.
    """
    return get_rank_slice(count, get_rank(), get_world_size())


def get_rank_slice(count: int, number: int, ranks: int) -> slice:
    """The rows that rank `number` of `ranks` takes: the first ranks have one more where they do not divide evenly."""
    each, more = divmod(count, ranks)
    start = number * each + min(number, more)
    return slice(start, start + each + (number < more))


def is_batch_of_this_rank(number: int) -> bool:
    """Whether batch `number` is this rank's, where ranks take whole batches in turn."""
    return number % get_world_size() == get_rank()


def sum_values_over_ranks(values: Mapping[str, float]) -> dict[str, float]:
    """Each value summed over ranks, in double precision; all ranks name the same values in the same order."""
    if get_world_size() == 1 or not values:
        return dict(values)
    sums = torch.tensor(list(values.values()), dtype=torch.float64)
    distributed.all_reduce(sums)
    return dict(zip(values, sums.tolist(), strict=True))


def all_reduce_sum(values: Tensor) -> Tensor:
    """The tensor summed over ranks, in place."""
    if get_world_size() > 1:
        distributed.all_reduce(values)
    return values


def gather_rows(rows: Tensor) -> Tensor:
    """All ranks' rows, (n, ..) from each, in the order of the ranks; n may differ and be 0, the rest of the shape may
    not.
    """
    if get_world_size() == 1:
        return rows
    counts = torch.zeros(get_world_size(), dtype=torch.long, device=rows.device)
    counts[get_rank()] = len(rows)
    most = int(all_reduce_sum(counts).max())
    padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])]).contiguous()
    sent = padded.to(torch.uint8) if rows.dtype == torch.bool else padded  # NCCL knows no booleans
    received = [torch.empty_like(sent) for _ in counts]
    distributed.all_gather(received, sent)
    kept = [part[:count] for part, count in zip(received, counts.tolist(), strict=True)]
    return torch.cat(kept).to(rows.dtype)


def gather_columns(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same of several columns (n,) of one type, which all ranks name in the same order."""
    if get_world_size() == 1:
        return dict(columns)
    whole = gather_rows(torch.stack(list(columns.values()), dim=1))
    return dict(zip(columns, whole.unbind(1), strict=True))


def gather_names(names: Iterable[str]) -> list[str]:
    """The names that any rank has, in the order in which the ranks first name them."""
    local_names = list(names)
    if get_world_size() == 1:
        return local_names
    text = torch.tensor(list("".join(f"{json.dumps(name)}\n" for name in local_names).encode()), dtype=torch.uint8)
    lines = bytes(gather_rows(text).tolist()).decode().splitlines()
    return list(dict.fromkeys(json.loads(line) for line in lines))


def broadcast_tensors(tensors: Iterable[Tensor]) -> None:
    """Give all ranks what rank 0 has in these tensors, in place."""
    if get_world_size() > 1:
        for tensor in tensors:
            whole = _broadcast_from(tensor.detach().contiguous(), 0)
            if whole.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(whole)


@torch.no_grad()
def broadcast_owned_weights(weights: Sequence[Tensor], owners: Sequence[int]) -> None:
    """Give all ranks each weight as its owner has it, in place; few exchanges of many weights."""
    for owner in range(get_world_size()):
        owned = [p for p, whose in zip(weights, owners, strict=True) if whose == owner]
        for _, same in groupby(owned, key=lambda p: (p.device, p.dtype)):
            for bucket in _split_into_buckets(same):
                whole = _broadcast_from(torch.cat([p.detach().reshape(-1) for p in bucket]), owner)
                for p, part in zip(bucket, whole.split([p.numel() for p in bucket]), strict=True):
                    p.copy_(part.view_as(p))


def collect_tensors_on_main(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """What all ranks have on their `device`, together, in rank 0's main memory; no two have the same name. Others
    return nothing.

    They are sent one after another, so that no rank holds more than one that is another's.
    """
    merged: dict[str, Tensor] = {}
    for owner in range(get_world_size()):
        kinds = [[name, str(t.dtype).removeprefix("torch."), t.shape] for name, t in tensors.items()]
        for line in gather_names(json.dumps(kind) for kind in (kinds if get_rank() == owner else [])):
            name, dtype, shape = json.loads(line)
            empty = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            sent = _broadcast_from(tensors[name].contiguous() if get_rank() == owner else empty, owner)
            if is_main_rank():
                merged[name] = sent.cpu()
    return merged


def _broadcast_from(tensor: Tensor, source: int) -> Tensor:
    """The rank `source`'s values, in place in a contiguous tensor."""
    distributed.broadcast(tensor, src=source)
    return tensor


@torch.no_grad()
def sum_gradients(parameters: Sequence[Tensor]) -> None:
    """Replace each gradient by its sum over ranks; one that no rank has stays None.

    Rounded gradients are summed in fp32.
    """
    if get_world_size() == 1:
        return
    for _, same in groupby(parameters, key=lambda p: (p.device, torch.promote_types(p.dtype, torch.float32))):
        for bucket in _split_into_buckets(same):
            _sum_bucket_gradients(bucket)


def _sum_bucket_gradients(bucket: Sequence[Tensor]) -> None:
    dtype = torch.promote_types(bucket[0].dtype, torch.float32)
    has_gradient = torch.tensor([p.grad is not None for p in bucket], device=bucket[0].device).to(dtype)
    flat = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).to(dtype) for p in bucket]
    buffer = torch.cat([has_gradient, *flat])
    distributed.all_reduce(buffer)
    counts, *sums = buffer.split([len(bucket), *(p.numel() for p in bucket)])
    for p, count, gradient in zip(bucket, counts.tolist(), sums, strict=True):
        p.grad = gradient.view_as(p).to(p.dtype) if count else None


def _split_into_buckets(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for p in parameters:
        if bucket and sum(held.numel() for held in bucket) + p.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(p)
    if bucket:
        yield bucket

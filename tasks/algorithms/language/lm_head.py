"""Log-probabilities of tokens from a large vocabulary, without the logits of all positions in memory at once.

Qwen's 151,936 logits at each of 4,096 positions are 2.5 GB in fp32, and a softmax with its gradient needs several
tensors of this size. So where the logits would be large, the model's head is left out of the pass over the tokens. It
is then applied to a few positions at a time, and to the same positions again in the backward pass, so that only the
states are kept. Cut cross-entropy (arXiv:2411.09009) and Liger's kernels (arXiv:2410.10989) do the same in kernels of
their own. Values and gradients are those of the whole tensor but for rounding.

A model may have more rows than its tokenizer has tokens (Qwen's have some hundreds). `restrict` takes them out of every
distribution.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tasks.algorithms.common.linear import Linear
from tasks.algorithms.language.causal_lm import CausalLM

# These decide speed, memory and rounding, and nothing else.
LARGE = 2**26  # logits: fewer, up to 256 MB in fp32, are kept as a whole, which is faster
CHUNK = 2**24  # logits that are in memory at once, where there are more: 110 positions of Qwen's vocabulary
_PLAIN: WeakKeyDictionary[object, bool] = WeakKeyDictionary()  # whether a model's logits are what its head returns
SPARE = "spare_rows"  # the name of a restricted model's buffer, which is not saved with it


class Head(NamedTuple):
    """What a linear head does to states (.., D)."""

    weight: Tensor  # (V, D)
    bias: Tensor | None  # (V,)


def mask_spare_tokens(model: nn.Module, spare: Tensor) -> None:
    """From now on the model's logits at the rows `spare` (n,) are -inf: they are never sampled, have no probability and
    no gradient.

    So the sampler, the trainer, a reference and transformers' own `generate` all speak of the same tokens. The weights
    stay.
    """
    if not len(spare):
        return
    model.register_buffer(SPARE, spare.to(next(model.parameters()).device), persistent=False)
    model.register_forward_hook(_mask_spare_logits)


def _mask_spare_logits(model: Any, _: object, output: Any) -> None:
    if not _is_head_replaced(model.get_output_embeddings()):
        fill = (
            output.logits.index_fill if output.logits.requires_grad else output.logits.index_fill_
        )  # in place: no copy
        output.logits = fill(-1, getattr(model, SPARE), -torch.inf)


def _build_masked_head(head: nn.Linear, spare: Tensor) -> Head:
    """Its bias does what `_mask_spare_logits` does to logits."""
    bias = head.weight.new_zeros(head.out_features) if head.bias is None else head.bias
    return Head(head.weight, bias.index_fill(0, spare, -torch.inf))


@contextmanager
def defer_large_head(model: CausalLM, positions: int) -> Iterator[Head | nn.Linear | None]:
    """While it lasts `model` returns states (B, T, D) as its logits, if those at `positions` would be too many to keep.

    Yields the head, which `compute_chunked_logps` then applies; None where the model returns logits as always: if they
    are few, or if the model does more than to apply a linear layer, as those do that scale or cap their logits (Gemma
    2, Cohere, Granite).
    """
    head = _find_linear_head(model)
    if head is None or positions * head.out_features < LARGE or not _is_head_output_unchanged(model, head):
        yield None
        return
    spare: Tensor | None = getattr(model, SPARE, None)
    with _replace_head_forward(head, lambda states: states):
        yield head if spare is None else _build_masked_head(head, spare)


def probe_head(model: CausalLM) -> None:
    """Find out now what `defer_large_head` will need to know of the model, for which it is called once."""
    if head := _find_linear_head(model):
        _is_head_output_unchanged(model, head)


def compute_chunked_logps(
    head: Head | nn.Linear, states: Tensor, tokens: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of `tokens` (n) behind `states` (n, D), with the logits divided by `temperature`; and the
    likeliest tokens (n).
    """
    device = states.device.type
    mixed = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if mixed else head.weight.dtype
    bias = None if head.bias is None else head.bias.to(dtype)
    with torch.autocast(device, enabled=False):
        return _apply(states.to(dtype), head.weight.to(dtype), bias, tokens, temperature)


class _HeadContext(Protocol):
    """What the log-probabilities save for their gradient."""

    saved_tensors: tuple[Tensor, Tensor, Tensor | None, Tensor]
    needs_input_grad: tuple[bool, ...]
    temperature: float

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...


class _ChunkedLogps(torch.autograd.Function):
    """log softmax((x W^T + b) / temperature) at one token of each row; x (n, D), W (V, D), b (V), all of one type."""

    @staticmethod
    def forward(
        ctx: _HeadContext, x: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight, bias, tokens)
        ctx.temperature = temperature
        chunks = [
            _compute_logps_and_argmax(_compute_scaled_logits(rows, weight, bias, temperature), wanted)
            for rows, wanted in zip(_split_into_chunks(x, weight), _split_into_chunks(tokens, weight), strict=True)
        ]
        logps, first = (torch.cat(part) for part in zip(*chunks, strict=True))
        ctx.mark_non_differentiable(first)
        return logps, first

    @staticmethod
    @once_differentiable
    def backward(ctx: _HeadContext, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, tokens = ctx.saved_tensors
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        wide = gradient.dtype  # sums over chunks are kept in it
        of_weight = torch.zeros_like(weight, dtype=wide) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros_like(bias, dtype=wide) if bias is not None and ctx.needs_input_grad[2] else None
        start = 0
        for rows, wanted, above in zip(
            *(_split_into_chunks(part, weight) for part in (x, tokens, gradient)), strict=True
        ):
            # d logp / d logits: 1 at the token, minus the probabilities.
            of_logits = (
                _compute_scaled_logits(rows, weight, bias, ctx.temperature).softmax(-1).mul_(-above.unsqueeze(1))
            )
            of_logits.scatter_add_(1, wanted.unsqueeze(1), above.unsqueeze(1)).div_(ctx.temperature)
            if of_bias is not None:
                of_bias += of_logits.sum(0)
            if of_x is not None:
                of_x[start : start + len(rows)] = of_logits.to(weight.dtype) @ weight
            if of_weight is not None:
                of_weight.addmm_(of_logits.t(), rows.to(wide))  # in bf16 each chunk's part would be rounded
            start += len(rows)
        return of_x, _cast_gradient(of_weight, weight), _cast_gradient(of_bias, weight), None, None


_apply: Callable[[Tensor, Tensor, Tensor | None, Tensor, float], tuple[Tensor, Tensor]] = _ChunkedLogps.apply


def _split_into_chunks(rows: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = rows.split(max(1, CHUNK // len(weight)))
    return parts


def _compute_scaled_logits(x: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """In fp32 at least, as where the whole tensor is kept."""
    logits = nn.functional.linear(x, weight, bias)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).div_(temperature)


def _compute_logps_and_argmax(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    logps = logits.log_softmax(-1)
    return logps.gather(1, tokens.unsqueeze(1)).squeeze(1), logits.argmax(-1)


def _cast_gradient(gradient: Tensor | None, weight: Tensor) -> Tensor | None:
    return None if gradient is None else gradient.to(weight.dtype)


def _find_linear_head(model: CausalLM) -> nn.Linear | None:
    """The model's head where it is a linear layer and nothing else: no adapter, no hook."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if not isinstance(head, nn.Linear) or type(head) not in (nn.Linear, Linear) or _is_head_replaced(head):
        return None
    hooks = head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks
    return None if any(hooks) or hasattr(head, "parametrizations") else head


@torch.no_grad()
def _is_head_output_unchanged(model: CausalLM, head: nn.Linear) -> bool:
    """Whether the model's logits are what its head returns, and nothing is done to them.

    Tried once, with dropout off: the head returns numbers of every size, which have to arrive unchanged. That finds a
    model whatever it calls its caps and scales, also where small logits would hide them.
    """
    if model not in _PLAIN:
        device = head.weight.device
        probe = torch.linspace(-1000, 1000, head.out_features, device=device).to(head.weight.dtype).view(1, 1, -1)
        with _disable_dropout(model), _replace_head_forward(head, lambda _: probe):
            token = torch.zeros(1, 1, dtype=torch.long, device=device)
            logits = model(input_ids=token, attention_mask=torch.ones_like(token), use_cache=False).logits
        _PLAIN[model] = logits.shape == probe.shape and torch.equal(logits, probe.to(logits.dtype))
    return _PLAIN[model]


def _is_head_replaced(head: object) -> bool:
    """Whether something else than the head's own weights makes its logits at present: `defer_large_head`, or a
    library.
    """
    return "forward" in getattr(head, "__dict__", {})


@contextmanager
def _disable_dropout(model: CausalLM) -> Iterator[None]:
    """In the block no part of the model is in training mode, so that nothing is drawn; they may be in different modes
    before.
    """
    parts: Iterator[nn.Module] = getattr(model, "modules", lambda: iter(()))()
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def _replace_head_forward(head: nn.Linear, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    head.forward = forward  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del head.forward

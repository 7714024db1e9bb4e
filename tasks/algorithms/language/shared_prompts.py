"""Attention in which the samples of a prompt read one copy of its keys and values while they are decoded.

The queries of a prompt's samples go into one matrix product with the prompt's keys, instead of one pass over memory for
each sample. The softmax is taken over the prompt's and the row's own scores together, so that the results are those of
attention over whole rows. It is registered with transformers' attention interface while a batch is sampled.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self, TypeGuard

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer

from tasks.algorithms.language.cache import RoomyLayer, select_rows_and_reserve_cache_room
from tasks.algorithms.language.causal_lm import CausalLM, KeyValueCache, SwitchableAttention

# torch's attention, and this one, as transformers knows them
SDPA = "sdpa"
NAME = "shared_prompts"


class SharedLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """One layer's keys and values of P prompts (P, heads, length, size), and of the N rows that continue them."""

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, room: int) -> None:
        super().__init__()
        self.is_initialized = True
        self.keys = keys
        self.values = values
        self.response_layer = RoomyLayer(keys[:, :, :0], values[:, :, :0], rows, room)
        self._set_row_slots(rows)

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Self, Self]:
        """Write the new tokens' keys and values.

        Attention is given the layer itself: a model that reads keys fails with an error.
        """
        self.response_layer.update(key_states, value_states)
        return self, self

    def get_seq_length(self) -> int:
        """Tokens of a row, its prompt's included."""
        length: int = self.keys.shape[-2] + self.response_layer.get_seq_length()
        return length

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows and their prompts only."""
        self.response_layer.batch_select_indices(indices)
        self._set_row_slots(self.owner[indices])

    def attend(self, query: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
        """Attention of one token a row, query (N, heads, 1, size) and mask (N, 1, 1, length): (N, 1, heads, size)."""
        rows = len(query)
        heads = query.shape[1]
        size = query.shape[3]
        # Query heads that share a key head are further queries of it: (N, key heads, queries, size).
        query = query.reshape(rows, self.keys.shape[1], -1, size) * (size**-0.5 if scaling is None else scaling)
        prompt = self._ungroup_rows(self._group_rows_by_prompt(query) @ self.keys.mT)
        response = query @ self.response_layer.keys.mT
        scores = torch.cat([prompt, response], dim=-1)  # (N, key heads, queries, length)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
        prompt, response = weights.tensor_split([self.keys.shape[-2]], dim=-1)
        out = (
            self._ungroup_rows(self._group_rows_by_prompt(prompt) @ self.values) + response @ self.response_layer.values
        )
        return out.reshape(rows, 1, heads, -1)

    def _set_row_slots(self, rows: Tensor) -> None:
        """Row n stands at `slots[n]` of a grid of prompts by samples, with gaps for prompts that have fewer rows left
        than others.
        """
        kept, self.owner, counts = rows.unique(return_inverse=True, return_counts=True)
        self.keys, self.values = (part if len(kept) == len(part) else part[kept] for part in (self.keys, self.values))
        order = self.owner.argsort(stable=True)
        before = counts.cumsum(0) - counts
        rank = torch.empty_like(rows)
        rank[order] = torch.arange(len(rows), device=rows.device) - before[self.owner[order]]
        self.samples = int(counts.max())
        self.slots = self.owner * self.samples + rank
        self.full = torch.equal(self.slots, torch.arange(len(kept) * self.samples, device=rows.device))

    def _group_rows_by_prompt(self, rows: Tensor) -> Tensor:
        """(N, key heads, queries, x) by prompts: (P, key heads, samples x queries, x)."""
        _, heads, queries, last = rows.shape
        if not self.full:
            grid = rows.new_zeros(len(self.keys) * self.samples, heads, queries, last)
            rows = grid.index_copy_(0, self.slots, rows)
        grid = rows.view(len(self.keys), self.samples, heads, queries, last).transpose(1, 2)
        return grid.reshape(len(self.keys), heads, -1, last)

    def _ungroup_rows(self, grid: Tensor) -> Tensor:
        """The inverse of `_group_rows_by_prompt`."""
        prompts, heads, _, last = grid.shape
        rows = grid.view(prompts, heads, self.samples, -1, last).transpose(1, 2).flatten(0, 1)
        return rows if self.full else rows[self.slots]


class _Attention:
    """Attention: transformers' sdpa for plain layers, our own for shared ones."""

    def __init__(self) -> None:
        self.sdpa = AttentionInterface()[SDPA]
        self.plain: dict[
            nn.Module, tuple[Tensor, Tensor]
        ] = {}  # keys and values that each module gave to plain attention

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: "Tensor | SharedLayer",
        value: "Tensor | SharedLayer",
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """The function that a model calls. A shared layer's `update` passes the layer itself as keys and values."""
        if isinstance(key, SharedLayer):
            return key.attend(query, attention_mask, options.get("scaling")), None
        if not options.get("dropout") and options.get("position_bias") is None:
            self.plain[module] = key, value
        out: tuple[Tensor, None] = self.sdpa(module, query, key, value, attention_mask, **options)
        return out

    def kind(self, layer: DynamicLayer) -> type[DynamicLayer]:
        """SharedLayer if prefilling passed the cache's keys and values to attention unchanged, else RoomyLayer."""
        plain = any(key is layer.keys and value is layer.values for key, value in self.plain.values())
        return SharedLayer if plain else RoomyLayer


@contextmanager
def use_shared_prompt_attention(
    model: CausalLM, samples: int
) -> Iterator[Callable[[KeyValueCache, Tensor, int], None]]:
    """Yield the function that lays out a prefilled cache for its rows: with shared prompts where that is faster and
    possible.

    On a GPU it is not faster: there the time goes into starting kernels, and shared prompts need more of them. On a CPU
    a line on standard error says where it is not possible.
    """
    if samples == 1 or next(model.parameters()).device.type != "cpu":
        yield select_rows_and_reserve_cache_room
        return
    if not _uses_sdpa(model):
        warn_prompts_not_shared(model, f"its attention is not {SDPA}")
        yield select_rows_and_reserve_cache_room
        return
    attention = _Attention()

    def lay_out(cache: KeyValueCache, rows: Tensor, room: int) -> None:
        select_rows_and_reserve_cache_room(cache, rows, room, kind=attention.kind)
        others = sum(not isinstance(layer, SharedLayer) for layer in cache.layers)
        if others:
            warn_prompts_not_shared(
                model, f"{others} of {len(cache.layers)} layers have a sliding window, or an attention of their own"
            )

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, AttentionMaskInterface()[SDPA])
    model.set_attn_implementation(NAME)
    try:
        yield lay_out
    finally:
        model.set_attn_implementation(SDPA)


def warn_prompts_not_shared(model: CausalLM, why: str) -> None:
    """Log that prompts are not shared, once for each architecture."""
    _warn_once_per_architecture(getattr(getattr(model, "config", None), "model_type", type(model).__name__), why)


@lru_cache(maxsize=64)
def _warn_once_per_architecture(architecture: str, why: str) -> None:
    logging.getLogger(__name__).warning(
        f"{architecture}: {why}, so every sample has its own copy of its prompt's keys and values; sampling is slower"
    )


def _uses_sdpa(model: CausalLM) -> TypeGuard[SwitchableAttention]:
    return getattr(getattr(model, "config", None), "_attn_implementation", None) == SDPA

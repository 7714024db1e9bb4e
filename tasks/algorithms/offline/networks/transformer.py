"""A small GPT-2 stack without embeddings: vectors in, hidden states out, at the requested positions only.

It computes what transformers' GPT2Model does (with ReLU, and position embeddings of zero), in three quarters of the
time: where only some positions are read, the last layer computes only those.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from tasks.algorithms.common.linear import Linear, Rectified
from tasks.algorithms.offline.networks.dropout import dropout


class Block(nn.Module):
    """Attention to the past, then a feed-forward network, each on normalised input and added to it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.dropout = dropout
        self.attention_norm = nn.LayerNorm(width)
        self.forward_norm = nn.LayerNorm(width)
        self.query = Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.out = Linear(width, width)
        self.up = Rectified(width, 4 * width)
        self.down = Linear(4 * width, width)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, W) to (B, T, W), or to (B, P, W) for these `positions` (P,) only."""
        asking = seen = self.attention_norm(x)
        when = query_positions = torch.arange(seen.shape[1], device=x.device)
        if positions is not None:
            x = x[:, positions]
            asking = seen[:, positions]
            query_positions = positions
        key, value = self.key_value(seen).chunk(2, dim=-1)
        query, key, value = (self._split_heads(part) for part in (self.query(asking), key, value))
        attended = self._compute_attention(query, key, value, when > query_positions[:, None]).unflatten(
            0, (len(x), self.heads)
        )
        x = x + dropout(self.out(attended.transpose(1, 2).flatten(2)), self.dropout, self.training)
        return x + dropout(self.down(self.up(self.forward_norm(x))), self.dropout, self.training)

    def _split_heads(self, x: Tensor) -> Tensor:
        """(B, T, W) to (B H, T, D)."""
        parts: Tensor = x.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)
        return parts

    def _compute_attention(self, query: Tensor, key: Tensor, value: Tensor, future: Tensor) -> Tensor:
        """(B H, P, D) of queries (B H, P, D), keys and values (B H, T, D); what is `future` (P, T) is not seen.

        For sequences this short, products are faster than torch's fused attention, whose gradient in bfloat16 takes
        three times as long.
        """
        hidden = torch.zeros(future.shape, device=query.device).masked_fill(future, -torch.inf)
        scores = torch.baddbmm(hidden, query, key.transpose(-1, -2), alpha=query.shape[-1] ** -0.5)
        return dropout(scores.softmax(-1), self.dropout, self.training) @ value


class Trunk(Protocol):
    """A stack of transformer blocks without embeddings or head, our own or a Hugging Face model's."""

    @property
    def width(self) -> int:
        """W, the size of its vectors."""
        ...

    @property
    def sizes(self) -> Mapping[str, object]:
        """The arguments that it is made from, as JSON values."""
        ...

    def __call__(self, embeddings: Tensor, positions: Tensor | None = None) -> Tensor:
        """Hidden states (B, P, W) of these positions (P,) of `embeddings` (B, T, W); of all without `positions`."""
        ...


class Transformer(nn.Module):
    """The stack; weights start as GPT-2's do."""

    def __init__(self, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        self.width = width
        self.dropout = dropout
        self.sizes: dict[str, object] = {"width": width, "layers": layers, "heads": heads, "dropout": dropout}
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, embeddings: Tensor, positions: Tensor | None = None) -> Tensor:
        """Hidden states (B, P, W) of these positions (P,) of `embeddings` (B, T, W); of all without `positions`."""
        x = dropout(embeddings, self.dropout, self.training)
        for block in self.blocks[:-1]:
            x = block(x)
        states: Tensor = self.norm(self.blocks[-1](x, positions))
        return states

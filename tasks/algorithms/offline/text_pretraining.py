"""Next-token prediction around a trunk: on text, which keeps what `language` trunks learned, and on Markov chains as a
control.

The auxiliary loss follows Reid et al. 2022 (arXiv:2201.12122) and LaMo (arXiv:2310.20587); Markov chains as pretraining
that holds no language follow Wang et al. 2023 (arXiv:2310.00771).
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.algorithms.offline.networks.transformer import Trunk


class Text(nn.Module):
    """Token and position embeddings and the output matrix of a language model whose stack is a trunk."""

    def __init__(self, tokens: Tensor, positions: Tensor, head: Tensor | None = None) -> None:
        """Takes copies of (V, W), (C, W) and (V, W); without `head` the output matrix is that of the tokens."""
        super().__init__()
        self.tokens = nn.Parameter(tokens.clone())
        self.positions = nn.Parameter(positions.clone())
        self.head = self.tokens if head is None else nn.Parameter(head.clone())

    def loss(self, trunk: Trunk, rows: Tensor) -> Tensor:
        """The mean negative log-likelihood of each token but the first, given those before it; rows (B, T), T <= C +
        1.
        """
        seen = rows[:, :-1]
        hidden = trunk(self.tokens[seen] + self.positions[: seen.shape[1]])
        logits = functional.linear(hidden, self.head).float()
        return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def make_text_model(vocabulary: int, width: int, length: int) -> Text:
    """An untrained Text for rows of up to `length` tokens."""
    return Text(0.02 * torch.randn(vocabulary, width), 0.02 * torch.randn(length, width))


def iterate_markov_chains(states: int, rows: int, length: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows (B, T) of a Markov chain, without end.

    Its transition matrix is drawn first, as softmaxes of normal numbers.
    """
    steps = torch.softmax(torch.randn(states, states, generator=generator), dim=-1)
    while True:
        drawn = [torch.randint(states, (rows,), generator=generator)]
        for _ in range(length - 1):
            drawn.append(torch.multinomial(steps[drawn[-1]], 1, generator=generator)[:, 0])
        yield torch.stack(drawn, dim=1)


def iterate_random_text_rows(stream: Tensor, rows: int, length: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows (B, T) cut at random places out of one long stream of tokens, without end."""
    while True:
        starts = torch.randint(len(stream) - length + 1, (rows, 1), generator=generator)
        yield stream[starts + torch.arange(length)]

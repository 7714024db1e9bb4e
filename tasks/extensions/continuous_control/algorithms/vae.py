"""A conditional variational autoencoder of the data's actions: a behaviour model that can have several modes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.networks.mlp import Normaliser, mlp
from tasks.algorithms.offline.transition_tensors import Spaces

KL_WEIGHT = 0.5  # of the latent's divergence against the squared error, as in BCQ's and BEAR's code
LATENT_LIMIT = 0.5  # bound on the latent when sampling, as in that code: keeps to actions that were seen often


class ActionModel(nn.Module):
    """p(a | s): the encoder reads state and action, the decoder state and latent (arXiv:1312.6114;
    arXiv:1812.02900).
    """

    def __init__(self, spaces: Spaces, hidden: Sequence[int]) -> None:
        super().__init__()
        self.latent = 2 * spaces.action
        self.normaliser = Normaliser(spaces.observation)
        self.encoder = mlp(spaces.observation + spaces.action, hidden, 2 * self.latent)
        self.decoder = mlp(spaces.observation + self.latent, hidden, spaces.action)

    def loss(self, observations: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """Mean squared error of the decoded actions plus the weighted KL to N(0, 1), a mean too; a scalar."""
        seen = self.normaliser(observations)
        mean, log_deviation = self.encoder(torch.cat([seen, actions], dim=-1)).chunk(2, dim=-1)
        log_deviation = log_deviation.clamp(-4, 15)
        noise = torch.randn(mean.shape, generator=generator).to(mean.device)
        error = (self._decode(seen, mean + log_deviation.exp() * noise) - actions).square().mean()
        return error + KL_WEIGHT * gaussian_kl(mean, log_deviation).mean()

    @torch.no_grad()
    def sample(self, observations: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """`count` likely actions in each state: (B, O) to (count, B, A)."""
        seen = self.normaliser(observations).expand(count, -1, -1)
        latent = torch.randn((*seen.shape[:-1], self.latent), generator=generator).to(seen.device)
        return self._decode(seen, latent.clamp(-LATENT_LIMIT, LATENT_LIMIT))

    def _decode(self, seen: Tensor, latent: Tensor) -> Tensor:
        decoded: Tensor = self.decoder(torch.cat([seen, latent], dim=-1))
        return decoded.tanh()


def gaussian_kl(mean: Tensor, log_deviation: Tensor) -> Tensor:
    """KL(N(mean, deviation^2) || N(0, 1)) of each component."""
    return (mean.square() + (2 * log_deviation).exp() - 1) / 2 - log_deviation

"""Policies with a density, for methods that weight, bound or sample what the policy does; all act by their mode or
mean.

`log_likelihood` is differentiable, `sample` too (by reparameterisation); random numbers come from the caller's
generator.
"""

from collections.abc import Sequence
from math import log, pi

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.algorithms.offline.networks.mlp import MeanAction, Network, Preferences
from tasks.algorithms.offline.transition_tensors import Spaces

LOG_DEVIATION = (-5.0, 2.0)  # bounds for a Gaussian; beyond them its density is a spike or flat
INSIDE = 0.999  # recorded actions at the box's edge are read as this: tanh reaches 1 only at infinity


def gaussian_log_density(noise: Tensor, log_deviation: Tensor) -> Tensor:
    """The log density of x = mean + deviation * noise, summed over components: (.., A) to (..)."""
    return -(noise.square() / 2 + log_deviation + log(2 * pi) / 2).sum(-1)


class Categorical(Preferences):
    """Probabilities of the discrete actions, by softmax over preferences."""

    def log_likelihood(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a | s): (B, O) and (B,) to (B,)."""
        return -functional.cross_entropy(self(observations), actions, reduction="none")

    @torch.no_grad()
    def drawn(self, observation: Tensor, generator: torch.Generator) -> Tensor:
        """A random action of the policy: (O,) to () long."""
        shares = self(observation).softmax(-1).cpu()
        return torch.multinomial(shares, 1, generator=generator).squeeze(0).to(observation.device)

    def divergence(self, other: "Categorical", observations: Tensor) -> Tensor:
        """KL(self || other) in each state, exact: (B, O) to (B,)."""
        mine = self(observations).log_softmax(-1)
        its = other(observations).log_softmax(-1)
        return (mine.exp() * (mine - its)).sum(-1)


class Gaussian(MeanAction):
    """A Gaussian whose mean is a tanh and whose deviations are the same in all states; its density is finite at the
    box's edge.
    """

    def __init__(self, spaces: Spaces, hidden: Sequence[int]) -> None:
        super().__init__(spaces, hidden)
        self.log_deviation = nn.Parameter(torch.full((spaces.action,), -1.0))

    def log_likelihood(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a | s): (B, O) and (B, A) to (B,)."""
        log_deviation = self.log_deviation.clamp(*LOG_DEVIATION)
        return gaussian_log_density((actions - self(observations)) / log_deviation.exp(), log_deviation)

    @torch.no_grad()
    def drawn(self, observation: Tensor, generator: torch.Generator) -> Tensor:
        """A random action of the policy, kept within the box: (O,) to (A,)."""
        mean = self(observation)
        noise = torch.randn(mean.shape, generator=generator).to(mean.device)
        return (mean + self.log_deviation.clamp(*LOG_DEVIATION).exp() * noise).clamp(-1, 1)


class SquashedGaussian(Network):
    """tanh of a Gaussian whose mean and deviation depend on the state (arXiv:1801.01290, appendix C)."""

    def __init__(self, spaces: Spaces, hidden: Sequence[int]) -> None:
        super().__init__(spaces, hidden, 2 * spaces.action)

    def compute_gaussian_parameters(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log deviation before the tanh, (.., A) each."""
        mean, log_deviation = self(observations).chunk(2, dim=-1)
        return mean, log_deviation.clamp(*LOG_DEVIATION)

    def sample(self, observations: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`count` actions in each state and their log densities: (B, O) to (count, B, A) and (count, B)."""
        mean, log_deviation = self.compute_gaussian_parameters(observations)
        noise = torch.randn((count, *mean.shape), generator=generator).to(mean.device)
        raw = mean + log_deviation.exp() * noise
        return raw.tanh(), gaussian_log_density(noise, log_deviation) - _tanh_log_derivative(raw)

    def log_likelihood(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a | s): (B, O) and (B, A) to (B,)."""
        mean, log_deviation = self.compute_gaussian_parameters(observations)
        raw = actions.clamp(-INSIDE, INSIDE).atanh()
        return gaussian_log_density((raw - mean) / log_deviation.exp(), log_deviation) - _tanh_log_derivative(raw)

    def divergence(self, other: "SquashedGaussian", observations: Tensor) -> Tensor:
        """KL(self || other) in each state: exact, since both pass through the same tanh. (B, O) to (B,)."""
        (mean, log_deviation) = self.compute_gaussian_parameters(observations)
        (its_mean, its_log) = other.compute_gaussian_parameters(observations)
        squares = (2 * (log_deviation - its_log)).exp() + ((mean - its_mean) / its_log.exp()).square()
        return (its_log - log_deviation + (squares - 1) / 2).sum(-1)

    @torch.no_grad()
    def drawn(self, observation: Tensor, generator: torch.Generator) -> Tensor:
        """A random action of the policy: (O,) to (A,)."""
        return self.sample(observation.unsqueeze(0), 1, generator)[0][0, 0]

    @torch.no_grad()
    def act(self, observations: Tensor) -> Tensor:
        """tanh of the mean: (M, O) to (M, A)."""
        return self.compute_gaussian_parameters(observations)[0].tanh()


def _tanh_log_derivative(raw: Tensor) -> Tensor:
    """log |d tanh(u) / du| = log(1 - tanh(u)^2), summed over components; without the square's loss of digits."""
    return 2 * (log(2) - raw - functional.softplus(-2 * raw)).sum(-1)

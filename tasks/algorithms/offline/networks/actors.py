"""The policies that record data, and the critic beside them: small tanh networks; the policies draw their actions at
random.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log, pi

import torch
from torch import Tensor, nn

from tasks.algorithms.common.linear import Linear
from tasks.algorithms.offline.networks.mlp import Network
from tasks.algorithms.offline.transition_tensors import Spaces

BOUND = 10.0  # normalised observations and rewards are clipped to it


class Tanh(Network):
    """A network with tanh activations and orthogonal initial weights, the last layer's scaled by `gain`."""

    def __init__(self, spaces: Spaces, hidden: Sequence[int], outputs: int, gain: float) -> None:
        super().__init__(spaces, hidden, outputs)
        linear = [Linear(*pair) for pair in pairwise([spaces.observation, *hidden, outputs])]
        between = [module for layer in linear[:-1] for module in (layer, nn.Tanh())]
        self.layers = nn.Sequential(*between, linear[-1])
        for layer in linear:
            nn.init.orthogonal_(layer.weight, gain if layer is linear[-1] else 2**0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, observations: Tensor) -> Tensor:
        """The raw outputs, for observations kept within BOUND deviations."""
        outputs: Tensor = self.layers(self.normaliser(observations).clamp(-BOUND, BOUND))
        return outputs


class Behaviour(Tanh):
    """The policy: probabilities of discrete actions, or a Gaussian whose deviations are the same in all states.

    Untrained it prefers no action: all are equally likely, or normal around 0.
    """

    def __init__(self, spaces: Spaces, hidden: Sequence[int]) -> None:
        super().__init__(spaces, hidden, spaces.action, gain=0.0)
        self.log_deviation = nn.Parameter(torch.zeros(0 if spaces.discrete else spaces.action))

    @torch.no_grad()
    def act(self, observations: Tensor) -> Tensor:
        """The most probable action: (M, O) to (M,) long or (M, A) within [-1, 1]."""
        outputs = self(observations)
        return outputs.argmax(-1) if self.spaces.discrete else outputs.clamp(-1, 1)

    @torch.no_grad()
    def sample(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """A random action, which the environment clips: (M, O) to (M,) long or (M, A)."""
        outputs = self(observations)
        if self.spaces.discrete:
            return outputs.softmax(-1).multinomial(1, generator=generator).squeeze(-1)
        return outputs + self.log_deviation.exp() * torch.randn(outputs.shape, generator=generator)

    def log_likelihood(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """log pi(a | s) and the entropy of pi(. | s), (B,) each."""
        outputs = self(observations)
        if self.spaces.discrete:
            logs = outputs.log_softmax(-1)
            return logs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), -(logs.exp() * logs).sum(-1)
        noise = (actions - outputs) / self.log_deviation.exp()
        entropy = (self.log_deviation + (1 + log(2 * pi)) / 2).sum().expand(len(outputs))
        return -(noise.square() / 2 + self.log_deviation + log(2 * pi) / 2).sum(-1), entropy


class Sampled:
    """The policy drawing its actions at random instead of taking the most probable ones;
    tasks/offline/environments/rollouts.py plays it.
    """

    def __init__(self, policy: Behaviour, seed: int) -> None:
        self.policy = policy
        self.generator = torch.Generator().manual_seed(seed)

    def act(self, observations: Tensor) -> Tensor:
        """As the environment executes them: vectors are clipped to [-1, 1]."""
        actions = self.policy.sample(observations, self.generator)
        return actions if self.policy.spaces.discrete else actions.clamp(-1, 1)

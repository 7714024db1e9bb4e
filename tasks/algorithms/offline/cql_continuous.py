"""Conservative Q-learning for continuous actions, on top of soft actor-critic (arXiv:2006.04779, eq. 4; sampling:
appendix F).

Each critic: mean (Q(s, a) - r - gamma (1 - terminated) min_i Q'_i(s', a'))^2 + alpha (logsumexp_j [Q(s, a_j) - log q_j]
- Q(s, a)), where the a_j are drawn with density q_j: `samples` each from the uniform one (log 0.5^d on the box), from
  pi(s)
and from pi(s'), all scored at s, their log densities without gradient. As in the authors' code, the error is not
halved, there is no entropy in the target, and the sum over a_j is not divided by their number, a constant that a `gap`
must allow for. Unlike there, the policy does not start by cloning. The policy minimises tau log pi(a|s) - min_i Q_i(s,
a), with tau adapted so that the entropy is -d (arXiv:1812.05905). With a `gap`, alpha is the multiplier of the paper's
Lagrange version, which gradient ascent moves. Calibrated (Cal-QL, arXiv:2303.05479, eq. 5.1), Q(s, a_j) of the policy's
actions is no lower than what was earned from s on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.cql import METRICS as CQL_METRICS
from tasks.algorithms.offline.networks.critics import Critics, bellman_targets, polyak_update, sum_mean_squared_errors
from tasks.algorithms.offline.networks.stochastic import SquashedGaussian
from tasks.algorithms.offline.transition_tensors import Referenced, Spaces, TransitionBatch

LARGEST_ALPHA = 1e6
UNIFORM = log(0.5)  # log density of a component drawn uniformly from [-1, 1]
METRICS = {
    **CQL_METRICS,
    "td_error": "The critics' mean squared temporal-difference errors, summed over the critics.",
    "policy_loss": "The mean of temperature times log pi(a|s) minus the lowest Q, with a sampled from the policy "
    "(d3rlpy: actor_loss).",
    "entropy": "The policy's mean entropy, estimated from one action in each state, in nats; its target is minus "
    "the number of components.",
    "temperature": "The weight of the entropy in the policy's loss (d3rlpy: temp).",
    "alpha": "The weight of the conservative term; it is learnt where there is a gap, and constant otherwise.",
}


@dataclass(frozen=True)
class CqlSettings:
    """The algorithm's settings."""

    gamma: float
    samples: int  # of each of the three kinds of actions
    gap: float | None  # value of the conservative term above which alpha rises; None keeps alpha constant
    target_rate: float  # share of the way that the target critics move in a step
    calibrated: bool = False  # Cal-QL; its batches are `Referenced`


class CQLAgent(nn.Module):
    """Policy, critics, their targets, and the two learnt weights, temperature and alpha; `alpha` is the latter's first
    value.
    """

    def __init__(self, spaces: Spaces, hidden: Sequence[int], critics: int, observations: Tensor, alpha: float) -> None:
        super().__init__()
        self.policy = SquashedGaussian(spaces, hidden)
        self.critics = Critics(spaces, hidden, critics)
        for network in (self.policy, self.critics):
            network.normaliser.fit(observations)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = nn.Parameter(torch.tensor(0.0))
        self.log_alpha = nn.Parameter(torch.tensor(log(alpha)))

    def alpha(self) -> Tensor:
        """The weight of the conservative term."""
        return self.log_alpha.exp().clamp(max=LARGEST_ALPHA)


@torch.no_grad()
def compute_q_targets(agent: CQLAgent, batch: TransitionBatch, gamma: float, generator: torch.Generator) -> Tensor:
    """What the critics are fitted to: (B,)."""
    actions, _ = agent.policy.sample(batch.next_observations, 1, generator)
    return bellman_targets(batch, agent.targets(batch.next_observations, actions[0]).amin(0), gamma)


@torch.no_grad()
def sample_proposal_actions(
    policy: SquashedGaussian, batch: TransitionBatch, samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Actions whose values are held down at each state, (3 samples, B, A), and their log densities, (3 samples, B)."""
    uniform = 2 * torch.rand((samples, *batch.actions.shape), generator=generator).to(batch.device) - 1
    density = torch.full(uniform.shape[:-1], UNIFORM * uniform.shape[-1], device=batch.device)
    now, now_density = policy.sample(batch.observations, samples, generator)
    after, after_density = policy.sample(batch.next_observations, samples, generator)
    return torch.cat([uniform, now, after]), torch.cat([density, now_density, after_density])


def conservative_penalty(q_proposed: Tensor, densities: Tensor, q: Tensor) -> Tensor:
    """logsumexp_j [Q(s, a_j) - log q_j] - Q(s, a), a mean for each critic: (E, J, B), (J, B), (E, B) to (E,)."""
    return ((q_proposed - densities).logsumexp(1) - q).mean(-1)


def critic_loss(
    agent: CQLAgent, batch: TransitionBatch, settings: CqlSettings, generator: torch.Generator
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The critics' loss, a scalar with gradient, the mean conservative term, and metrics."""
    targets = compute_q_targets(agent, batch, settings.gamma, generator)
    actions, densities = sample_proposal_actions(agent.policy, batch, settings.samples, generator)
    actions = torch.cat([batch.actions.unsqueeze(0), actions])
    every = agent.critics(batch.observations.expand(len(actions), -1, -1), actions)  # (E, 1 + J, B)
    q = every[:, 0]
    proposed = every[:, 1:]
    if settings.calibrated:
        assert isinstance(batch, Referenced), "Cal-QL needs to know what was earned"
        uniform, of_policy = proposed.split([settings.samples, 2 * settings.samples], dim=1)
        proposed = torch.cat([uniform, of_policy.maximum(batch.reference)], dim=1)
    error = sum_mean_squared_errors(q, targets)
    terms = conservative_penalty(proposed, densities, q)
    loss = error + (agent.alpha().detach() * terms).sum()
    term = terms.detach().mean()
    return loss, term, {"td_error": error.detach(), "conservative": term, "q": q.detach().mean()}


def policy_loss(agent: CQLAgent, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The policy's loss, a scalar with gradient, and its mean log density."""
    actions, densities = agent.policy.sample(observations, 1, generator)
    gain = agent.critics(observations, actions[0]).amin(0)
    loss = (agent.log_temperature.exp().detach() * densities[0] - gain).mean()
    return loss, densities.detach().mean()


def fit(
    agent: CQLAgent,
    optimizers: Mapping[str, Adam],
    batches: Iterable[TransitionBatch],
    settings: CqlSettings,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, one step a batch; yields each step's metrics (METRICS).

    Optimizers: policy, critics, temperature, alpha.
    """
    for batch in batches:
        loss, density = policy_loss(agent, batch.observations, generator)
        optimizers["policy"].step(loss)
        target_entropy = -batch.actions.shape[1]
        optimizers["temperature"].step(-agent.log_temperature.exp() * (density + target_entropy))
        q_loss, term, metrics = critic_loss(agent, batch, settings, generator)
        optimizers["critics"].step(q_loss)
        if settings.gap is not None:
            optimizers["alpha"].step(-agent.alpha() * (term - settings.gap))
        polyak_update(agent.targets, agent.critics, settings.target_rate)
        yield {
            "loss": q_loss.detach(),
            "policy_loss": loss.detach(),
            "entropy": -density,
            "temperature": agent.log_temperature.detach().exp(),
            "alpha": agent.alpha().detach(),
            **metrics,
        }

"""What is believed of a policy's discounted return, from its own Q-values or from the data alone, and what it is.

Both bootstrap through truncation: to them an episode that the time limit ends would go on. So what it is comes from episodes that
do go on, until what is left counts for nothing.
"""

from dataclasses import dataclass
from math import ceil, inf, log

import torch
from torch import Tensor

from tasks.algorithms.offline import fitted_q
from tasks.algorithms.offline.networks.critics import Critics
from tasks.offline.configs.returns import FittedQConfig
from tasks.offline.datasets.stored import StoredDataset
from tasks.offline.environments.rollouts import Played, Player, play

TAIL = 1e-3  # gamma^t from which on rewards are left out


@dataclass(frozen=True)
class Truth:
    """The mean discounted return of some episodes, and the share of them that were cut off while it still counted."""

    value: float
    cut: float


def truth(environment: str, player: Player, played: Played, gamma: float, seed: int) -> Truth:
    """Of what was `played` from `seed` on; where the time limit cut it short it is played again without one.

    What an environment truncates by itself, or has no discount, stays cut.
    """
    horizon = ceil(log(TAIL) / log(gamma)) if 0 < gamma < 1 else inf if gamma else 1
    if _cut(played, horizon) and horizon < inf:
        played = play(environment, player, len(played.episodes), seed, limit=int(horizon))
    return Truth(float(played.discounted(gamma).mean()), _cut(played, horizon))


def _cut(played: Played, horizon: float) -> float:
    return float((played.truncated & (played.lengths < horizon)).mean())


def fitted(
    config: FittedQConfig, policy: fitted_q.Policy, dataset: StoredDataset, starts: Tensor, gamma: float, seed: int
) -> fitted_q.Fit:
    """What fitted-Q evaluation makes of a memoryless policy from the states `starts` (M, O), on the data's device."""
    torch.manual_seed(seed)
    data = dataset.transitions
    critic = Critics(dataset.spaces, config.hidden, 1).to(data.device)
    steps = fitted_q.fit(
        critic,
        policy,
        data,
        gamma=gamma,
        learning_rate=config.learning_rate,
        target_rate=config.target_rate,
        batch_size=config.batch_size,
        generator=torch.Generator().manual_seed(seed),
    )
    return fitted_q.converge(
        critic,
        policy,
        starts.to(data.device),
        steps,
        window=fitted_q.window(data, gamma, config.target_rate),
        tolerance=config.tolerance * fitted_q.scale(data, gamma),
        most=config.most_steps,
    )

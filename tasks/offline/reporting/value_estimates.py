"""Estimates of a policy's discounted return, from its own Q-values or from the data alone, and the true one.

Both estimates bootstrap through truncation, as if an episode that the time limit ends went on. So the true return is
measured in episodes that do go on, until the rewards left hardly count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log

import torch
from torch import Tensor

from tasks.algorithms.offline import fitted_q
from tasks.offline.configs.returns import FittedQConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.environments.rollouts import EpisodeOutcomes, Player, play_seeded_episodes

TAIL = 1e-3  # gamma^t from which on rewards are left out


@dataclass(frozen=True)
class Truth:
    """The mean discounted return of some episodes, and the share of them that were cut off while it still counted."""

    value: float
    cut: float


def measure_true_return(environment: str, player: Player, played: EpisodeOutcomes, gamma: float, seed: int) -> Truth:
    """The truth of what was `played` from `seed` on; episodes that the time limit cut short are played again without
    it.

    Episodes that the environment itself truncates stay cut, and so do all without a discount.
    """
    horizon = ceil(log(TAIL) / log(gamma)) if 0 < gamma < 1 else inf if gamma else 1
    if _compute_cut_share(played, horizon) and horizon < inf:
        played = play_seeded_episodes(environment, player, len(played.episodes), seed, limit=int(horizon))
    return Truth(float(played.compute_discounted_returns(gamma).mean()), _compute_cut_share(played, horizon))


def _compute_cut_share(played: EpisodeOutcomes, horizon: float) -> float:
    return float((played.truncated & (played.lengths < horizon)).mean())


def run_fitted_q_evaluation(
    config: FittedQConfig,
    policies: Sequence[fitted_q.DeterministicPolicy],
    seeds: Sequence[int],
    dataset: StoredDataset,
    starts: Tensor,
    gamma: float,
) -> list[fitted_q.Fit]:
    """What fitted-Q evaluation makes of memoryless policies from the states `starts` (M, O), on the data's device; each
    policy has a seed.
    """
    data = dataset.transitions
    critics = fitted_q.Evaluators(dataset.spaces, config.hidden, seeds).to(data.device)
    steps = fitted_q.fit(
        critics,
        policies,
        data,
        gamma=gamma,
        learning_rate=config.learning_rate,
        target_rate=config.target_rate,
        batch_size=config.batch_size,
        generators=[torch.Generator().manual_seed(seed) for seed in seeds],
    )
    return fitted_q.fit_until_converged(
        critics,
        policies,
        starts.to(data.device),
        steps,
        window=fitted_q.compute_convergence_window(data, gamma, config.target_rate),
        tolerance=config.tolerance * fitted_q.compute_return_scale(data, gamma),
        most=config.most_steps,
    )

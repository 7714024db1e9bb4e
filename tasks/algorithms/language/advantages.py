"""Returns and advantages: reward-to-go, generalised advantage estimation, advantages within a group, whitening.

All are over response tokens only: `mask` (N, L) is True on these tokens, which fill a row from the left. Every result
is zero elsewhere.
"""

from typing import Literal

import torch
from torch import Tensor

STD_FLOOR = 1e-4  # added to a group's standard deviation, as in TRL


def put_scores_at_last_token(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores of responses (N,) as rewards of tokens (N, L): the last real token gets the whole score."""
    rewards = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
    return rewards.scatter(1, mask.sum(1, keepdim=True) - 1, scores.unsqueeze(1))


def compute_reward_increments(worth: Tensor, is_known: Tensor) -> Tensor:
    """The reward at each token (N, L): how much `worth` (N, L) has risen since it was last `is_known` (bool), from 0 at
    the start.

    So a row's rewards add up to its last known worth. A token whose worth is not known gets 0.
    """
    paid = torch.zeros_like(worth)
    before = torch.zeros_like(worth[:, 0])
    for t in range(worth.shape[1]):
        now = torch.where(is_known[:, t], worth[:, t], before)
        paid[:, t] = now - before
        before = now
    return paid


def reward_to_go(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """G_t = sum over t' >= t of gamma^(t' - t) r_t': (N, L), from rewards (N, L) (Sutton and Barto 2018, eq. 3.8)."""
    returns = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        following = (rewards[:, t] + gamma * following) * mask[:, t]
        returns[:, t] = following
    return returns


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float | Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Advantages and returns (N, L) by generalised advantage estimation (arXiv:1506.02438, eq. 16).

    `values` (N, L) are V(s_t), of the state that token t is chosen in; after a response's last token the value is 0.
    Returns are advantages + values, before any whitening: they are what the critic is fitted to. `gamma` is one
    discount, or (N, L) the discount between each token and the next.
    """
    values = values * mask
    advantages = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        after = values[:, t + 1] if t + 1 < rewards.shape[1] else 0.0
        discount = gamma[:, t] if isinstance(gamma, Tensor) else gamma
        error = rewards[:, t] + discount * after - values[:, t]
        following = (error + discount * lam * following) * mask[:, t]
        advantages[:, t] = following
    return advantages, (advantages + values) * mask


def group_advantages(rewards: Tensor, owner: Tensor, kind: Literal["standardized", "centered"]) -> Tensor:
    """Each response's reward relative to the rewards of its prompt's responses (`owner` (N,) is the prompt): (N,).

    standardized: (r - mean) / (std + 1e-4), with the unbiased standard deviation (GRPO, arXiv:2402.03300, section
    4.1.2; the floor and the estimator are TRL's); centered: r - mean (Dr. GRPO, arXiv:2503.20783). The advantages are
    exactly 0 where all rewards of a group are equal.
    """
    counts = torch.bincount(owner).clamp(min=1)
    mean = torch.zeros(len(counts), dtype=rewards.dtype, device=rewards.device).index_add(0, owner, rewards) / counts
    centred = rewards - mean[owner]
    centred = torch.where(compute_reward_spread_mask(rewards, owner)[owner], centred, torch.zeros_like(centred))
    if kind == "centered":
        return centred
    squares = torch.zeros_like(mean).index_add(0, owner, centred.square())
    return centred / ((squares / (counts - 1).clamp(min=1)).sqrt()[owner] + STD_FLOOR)


def step_advantages(rewards: Tensor, mask: Tensor, owner: Tensor, kind: Literal["standardized", "centered"]) -> Tensor:
    """The advantage of each token by the rewards of steps (N, L), given at their last tokens and nan elsewhere: (N, L).

    Process supervision (GRPO, arXiv:2402.03300, section 4.1.3): a step's reward counts relative to those of all steps
    of its prompt's responses, as `group_advantages` says of responses; a token's advantage is the sum over its own step
    and those after it.
    """
    at_end = ~rewards.isnan()
    rows = at_end.nonzero()[:, 0]
    paid = torch.zeros_like(rewards).masked_scatter(at_end, group_advantages(rewards[at_end], owner[rows], kind))
    return reward_to_go(paid, mask, 1.0)


def compute_reward_spread_mask(rewards: Tensor, owner: Tensor) -> Tensor:
    """Whether a prompt's responses earned different rewards: (B,) bool."""
    low = torch.full((len(torch.bincount(owner)),), torch.inf, dtype=rewards.dtype, device=rewards.device)
    high = low.neg().scatter_reduce(0, owner, rewards, "amax")
    return low.scatter_reduce(0, owner, rewards, "amin") < high


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over masked-in entries; a scalar. 0 where there are none."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """(values - mean) / std over the masked-in entries of the whole batch (population variance), zero elsewhere."""
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean).square(), mask)
    return (values - mean) * (variance + 1e-8).rsqrt() * mask

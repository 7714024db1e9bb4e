"""Who gets the credit: from the rewards of turns to the advantage of each token of the policy.

    total       R(tau) = sum_k gamma^k r_k for every turn, as the plain policy gradient has it
    to_go       G_k = sum over l >= k of gamma^(l - k) r_l: only what came after counts (reward-to-go)
    q           Q_w(s_k, a_k), what a critic says of the action (Q actor-critic)
    advantage   generalised advantage estimation over V_w (arXiv:1506.02438, eq. 16); lambda 0 is the one-step TD error
                r_k + gamma V(s_k+1) - V(s_k), lambda 1 is G_k - V(s_k)

Discounting is by turn: gamma stands between two turns, never between two tokens of one action. With `over` tokens, GAE
runs over the tokens of all actions, and a turn's reward is that of its last token.

A group is the episodes of one game. Its baseline is the mean of its episodes: for `total` GRPO by episode, for `to_go`
GRPO by turn, where a turn is compared with the group's turns of the same number.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tasks.algorithms.agents.transcripts import Transcripts
from tasks.algorithms.language.advantages import gae, group_advantages, masked_mean, reward_to_go, whiten

Credit = Literal["total", "to_go", "q", "advantage"]
Baseline = Literal["none", "mean", "group"]
Over = Literal["turns", "tokens"]
FLOOR = 1e-4  # added to a standard deviation, as in advantages.py


@dataclass(frozen=True)
class Credited:
    """What the policy and the critic learn from."""

    advantages: Tensor  # (N, T), zero where the policy did not speak
    targets: (
        Tensor | None
    )  # (N, K) what the critic's value of each turn is fitted to; (N, T) over tokens; None without a critic
    returns: Tensor  # (N, K) the rewards that really followed, by which a critic is judged


def compute_credit(
    how: Credit,
    transcripts: Transcripts,
    rewards: Tensor,
    groups: Tensor,
    values: Tensor | None,
    *,
    over: Over,
    baseline: Baseline,
    standardized: bool,
    gamma: float,
    lam: float,
) -> Credited:
    """Advantages of tokens from rewards of turns (N, K); `groups` (N,) numbers each episode's game.

    `values` are the critic's, read where `how` needs them: V before each action, or Q behind it (N, K); over tokens V
    before each token of the policy (N, T).
    """
    turn_mask = transcripts.taken
    to_go = reward_to_go(rewards, turn_mask, gamma)
    if how == "advantage" and over == "tokens":
        assert values is not None
        advantages, wanted = _compute_gae_over_tokens(transcripts, rewards, values, gamma, lam)
        advantages = whiten(advantages, transcripts.acts) if standardized else advantages
        return Credited(advantages, wanted, to_go)
    targets: Tensor | None = None
    if how == "advantage":
        assert values is not None
        turn_advantages, targets = gae(rewards, values, turn_mask, gamma, lam)
    elif how == "q":
        assert values is not None
        turn_advantages = values * turn_mask
        targets = gae(rewards, values, turn_mask, gamma, lam)[1]
    else:
        turn_advantages = to_go if how == "to_go" else to_go[:, :1].expand_as(to_go) * turn_mask
    turn_advantages = subtract_baseline(
        turn_advantages, turn_mask, groups, baseline, by_episode=how == "total", standardized=standardized
    )
    return Credited(transcripts.expand_to_tokens(turn_advantages), targets, to_go)


def subtract_baseline(
    values: Tensor, turn_mask: Tensor, groups: Tensor, baseline: Baseline, *, by_episode: bool, standardized: bool
) -> Tensor:
    """Values of turns (N, K) less their baseline, divided by the standard deviation of what it is the mean of if
    `standardized`.
    """
    if baseline == "group":
        kind: Literal["standardized", "centered"] = "standardized" if standardized else "centered"
        if by_episode:
            return group_advantages(values[:, 0], groups, kind).unsqueeze(1) * turn_mask
        result = torch.zeros_like(values)
        for turn in range(values.shape[1]):
            rows = turn_mask[:, turn].nonzero().squeeze(1)
            result[rows, turn] = group_advantages(values[rows, turn], groups[rows], kind)
        return result
    if baseline == "mean":
        values = (values - masked_mean(values, turn_mask)) * turn_mask
    if standardized:
        deviation = (
            (masked_mean(values.square(), turn_mask) - masked_mean(values, turn_mask).square()).clamp(min=0).sqrt()
        )
        values = values / (deviation + FLOOR)
    return values


def _compute_gae_over_tokens(
    transcripts: Transcripts, rewards: Tensor, values: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """GAE over the tokens of the policy, without the observations in between: advantages and targets, (N, T) each."""
    acts = transcripts.acts
    order = (~acts).long().sort(dim=1, stable=True).indices[:, : int(acts.sum(1).max())]
    real = acts.gather(1, order)
    paid = torch.zeros(acts.shape)
    discount = torch.ones(acts.shape)
    rows, turns = transcripts.taken.nonzero(as_tuple=True)
    last = transcripts.last[rows, turns]
    paid[rows, last] = rewards[rows, turns]
    discount[rows, last] = gamma
    parts = (part.gather(1, order) for part in (paid, values, discount))
    compact, token_values, between = parts
    estimates = gae(compact, token_values, real, between, lam)
    advantages, targets = (torch.zeros(acts.shape).scatter(1, order, part) for part in estimates)
    return advantages, targets

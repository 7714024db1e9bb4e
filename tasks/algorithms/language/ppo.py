"""Proximal policy optimisation for language models (arXiv:1707.06347, eqs. 7 and 9; details as in arXiv:2203.02155).

The reward of a token is -beta k1 to the reference; the last real token also gets the response's score. Advantages come
from GAE, are whitened over the whole batch, and serve several epochs of minibatches with clipped ratio and clipped
value. A response without a reward is in none of them.

Where the sampler is not the trainer, one more pass gives the trainer's own log-probabilities before the updates: the
clipped ratio and the KL are of these, and weights correct for the rest (policy_gradient.importance_weights).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer, check_finite
from tasks.algorithms.language.advantages import at_last_token, gae, masked_mean, reward_to_go, whiten
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import token_logps
from tasks.algorithms.language.critic import METRICS as CRITIC_METRICS
from tasks.algorithms.language.critic import Critic, explained_variance
from tasks.algorithms.language.experience import METRICS as SAMPLE_METRICS
from tasks.algorithms.language.experience import (
    SAMPLER,
    SAMPLER_METRICS,
    WEIGHT,
    Collect,
    Experience,
    Look,
    check_rewards,
    in_parts,
    parts_of,
    shares,
    summary,
)
from tasks.algorithms.language.kl import AdaptiveKl, k1
from tasks.algorithms.language.policy_gradient import importance_weights, policy_loss

METRICS = {
    **{name: text for name, text in SAMPLE_METRICS.items() if name != "entropy"},
    **SAMPLER_METRICS,
    "policy/entropy": SAMPLE_METRICS["entropy"],
    "objective/kl": "The mean over responses of log pi - log pi_ref (k1): an estimate of the KL divergence to the "
    "reference, in nats; below 0 only by chance.",
    "objective/scores": "The mean score of the samples, without the penalties for KL and for a missing end: the "
    "same as reward.",
    "objective/kl_coef": "The weight of the KL penalty in the step's rewards.",
    "loss/policy": "The clipped surrogate loss, a mean over the step's updates (TRL: loss/policy_avg).",
    "loss/value": "Half the critic's squared error, of the value or of the clipped one, whichever is larger; a "
    "mean over the step's updates (TRL: loss/value_avg).",
    "policy/approxkl": "Half the mean squared change of a token's log-probability since sampling (k2), an estimate "
    "of the KL divergence in nats; a mean over the step's updates (TRL: policy/approxkl_avg).",
    "policy/clipfrac": "The share of the tokens where clipping acts, from 0 to 1; a mean over the step's updates "
    "(TRL: policy/clipfrac_avg).",
    "val/ratio": "The mean ratio of a token's probability to that when it was sampled; it should stay near 1.",
    **CRITIC_METRICS,
    **OPTIMIZER_METRICS,
    "grad_norm": "The norm of the policy's gradient before it is clipped, a mean over the step's updates.",
    "grad_norm/value": "The norm of the critic's gradient before it is clipped, a mean over the step's updates.",
}

UPDATED = (
    "loss/policy",
    "loss/value",
    "policy/approxkl",
    "policy/clipfrac",
    "val/ratio",
    SAMPLER,
)  # means over tokens in an update


@dataclass(frozen=True)
class PpoSettings:
    """The algorithm's settings."""

    gamma: float
    lam: float
    clip_ratio: float
    clip_value: float  # how far a value may move from its value at sampling time; 0 does not clip
    epochs: int
    minibatches: int  # in an epoch
    missing_end_penalty: float  # subtracted from the score of a response that the length limit cut off
    whiten: bool  # whether advantages are whitened over the batch
    temperature: float  # of the distribution that is trained
    old_from_sampler: bool  # whether the log-probabilities before the updates are the sampler's
    importance_cap: (
        float | None
    )  # largest weight of a token by how likely the trainer and the sampler hold it; None for no weights
    micro_batch: int  # responses in one pass; changes memory, not the gradient
    seed: int


@dataclass(frozen=True)
class Prepared:
    """A batch with what stays fixed over its epochs, all (N, L)."""

    old_logps: Tensor
    weights: Tensor  # importance weights; 1 without a cap
    old_values: Tensor
    advantages: Tensor
    returns: Tensor  # lambda-returns, which the critic is fitted to; with lambda below 1 they contain its own values
    reward_to_go: Tensor  # the rewards that really followed, by which the critic is judged


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Half the larger of the squared errors of a value and of that value clipped to within `clip` of the old one: (N,
    L).
    """
    errors = (values - returns).square()
    if clip:
        held = old_values + (values - old_values).clamp(-clip, clip)
        errors = torch.max(errors, (held - returns).square())
    return errors / 2


@torch.no_grad()
def prepare(
    experience: Experience,
    old_logps: Tensor,
    reference_logps: Tensor,
    values: Tensor,
    settings: PpoSettings,
    kl_coefficient: float,
) -> Prepared:
    """Token rewards, GAE and returns, in that order; whitening comes last and leaves the returns alone.

    `old_logps` are the policy's before the updates: those of the samples, unless the sampler is not the trainer.
    """
    mask = experience.completions.mask
    scores = experience.rewards - settings.missing_end_penalty * ~experience.ended
    rewards = at_last_token(scores, mask) - kl_coefficient * k1(old_logps, reference_logps) * mask
    advantages, returns = gae(rewards, values, mask, settings.gamma, settings.lam)
    if settings.whiten:
        advantages = whiten(advantages, mask)
    cap = settings.importance_cap
    weights = torch.ones_like(old_logps) if cap is None else importance_weights(old_logps, experience.logps, cap)
    return Prepared(old_logps, weights, values, advantages, returns, reward_to_go(rewards, mask, settings.gamma))


def fit(
    policy: CausalLM,
    critic: Critic,
    reference: CausalLM,
    collect: Collect,
    optimizers: tuple[Optimizer, Optimizer],
    settings: PpoSettings,
    kl: AdaptiveKl,
    *,
    start: int,
    steps: int,
    look: Look | None = None,
) -> Iterator[dict[str, float]]:
    """Train `policy` and `critic` in place from step `start` + 1 to `steps`, dropout off. `look` sees each step's
    samples with their advantages.

    `optimizers` are the policy's and the critic's. Yields a step's metrics (METRICS), and what the samples have logged.
    The critic is judged by the reward-to-go, since the lambda-returns contain its own values.
    """
    for model in (policy, critic, reference):
        model.eval()
    for step in range(start + 1, steps + 1):
        experience = collect(step)
        check_rewards(experience)
        samples = experience.samples()
        batch = samples.completions
        with sharding.whole(critic):
            reference_logps, values = (
                in_parts(passed, batch, settings.micro_batch)
                for passed in (lambda part: token_logps(reference, part, settings.temperature), critic)
            )
        old_logps, coefficient = _old_logps(policy, samples, settings), kl.coefficient
        prepared = prepare(samples, old_logps, reference_logps, values, settings, coefficient)
        if look is not None:
            look(step, experience, experience.whole(prepared.advantages))
        measured = (k1(old_logps, reference_logps) * batch.mask).sum().item() / max(1, len(batch))
        rate = optimizers[0].learning_rate
        trained = _epochs(policy, critic, samples, prepared, optimizers, settings, step)
        if len(batch):
            kl.update(measured)
        sampled = summary(experience)
        yield {
            "policy/entropy": sampled.pop("entropy"),
            **sampled,
            "objective/kl": measured,
            "objective/scores": sampled["reward"],
            "objective/kl_coef": coefficient,
            "val/explained_variance": explained_variance(values, prepared.reward_to_go, batch.mask),
            **({} if settings.importance_cap is None else {WEIGHT: masked_mean(prepared.weights, batch.mask).item()}),
            **trained,
            "learning_rate": rate,
        }


def _old_logps(policy: CausalLM, experience: Experience, settings: PpoSettings) -> Tensor:
    """The log-probabilities of the samples before the updates: (N, L)."""
    if settings.old_from_sampler:
        return experience.logps
    with sharding.whole(policy):
        return in_parts(
            lambda part: token_logps(policy, part, settings.temperature), experience.completions, settings.micro_batch
        )


def _epochs(
    policy: CausalLM,
    critic: Critic,
    experience: Experience,
    prepared: Prepared,
    optimizers: tuple[Optimizer, Optimizer],
    settings: PpoSettings,
    step: int,
) -> dict[str, float]:
    """All updates on one batch; the means of their metrics."""
    shuffle = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    updates: list[dict[str, float]] = []
    for _ in range(settings.epochs):
        order = torch.randperm(len(experience.rewards), generator=shuffle)
        for rows in order.tensor_split(settings.minibatches):
            tokens = int(experience.completions.mask[rows].sum())
            metrics = dict.fromkeys(UPDATED, 0.0)
            parts = parts_of(experience.completions, rows, settings.micro_batch)
            for _, local_rows, counted in shares(policy, experience.completions, parts):
                portion = int(experience.completions.mask[local_rows].sum()) / tokens * counted
                losses, values = _losses(policy, critic, experience, prepared, settings, local_rows)
                check_finite("loss", (losses[0] + losses[1]).item())
                for loss in losses:
                    (loss * portion).backward()
                metrics = {name: metrics[name] + values[name] * portion for name in UPDATED}
            metrics = distributed.total(metrics)
            norms = [optimizer.step() for optimizer in optimizers]
            if len(rows) or not updates:  # where few responses have a reward, the last minibatches may be empty
                updates.append({**metrics, "grad_norm": norms[0], "grad_norm/value": norms[1]})
    means = {name: sum(row[name] for row in updates) / len(updates) for name in updates[0]}
    return {**means, SAMPLER: updates[0][SAMPLER]}  # later minibatches meet a policy that has been updated


def _losses(
    policy: CausalLM, critic: Critic, experience: Experience, prepared: Prepared, settings: PpoSettings, rows: Tensor
) -> tuple[tuple[Tensor, Tensor], dict[str, float]]:
    """The policy's and the critic's loss on a minibatch or a part of one, each a mean over its tokens."""
    minibatch = experience.completions.rows(rows).on(policy)
    mask, width = minibatch.mask, minibatch.mask.shape[1]
    sampled, old_logps, weights, old_values, advantages, returns = (
        part[rows, :width].to(mask.device)
        for part in (
            experience.logps,
            prepared.old_logps,
            prepared.weights,
            prepared.old_values,
            prepared.advantages,
            prepared.returns,
        )
    )
    logps = token_logps(policy, minibatch, settings.temperature)
    per_token, acts = policy_loss(logps, old_logps, advantages, settings.clip_ratio, settings.clip_ratio)
    policy_part = masked_mean(per_token * weights, mask)
    value_part = masked_mean(value_loss(critic(minibatch), old_values, returns, settings.clip_value), mask)
    log_ratio = (logps.detach() - old_logps) * mask
    return (policy_part, value_part), {
        "loss/policy": policy_part.item(),
        "loss/value": value_part.item(),
        "policy/approxkl": masked_mean(log_ratio.square() / 2, mask).item(),
        "policy/clipfrac": masked_mean(acts.float(), mask).item(),
        "val/ratio": masked_mean(log_ratio.exp(), mask).item(),
        SAMPLER: masked_mean((logps.detach() - sampled).abs() * mask, mask).item(),
    }

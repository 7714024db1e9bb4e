"""Proximal policy optimisation for language models (arXiv:1707.06347, eqs. 7 and 9; details as in arXiv:2203.02155).

The reward of a token is -beta k1 to the reference; the last real token also gets the response's score. Advantages come
from GAE, are whitened over the whole batch, and serve several epochs of minibatches with clipped ratio and clipped
value. A response without a reward is in none of them.

Where the sampler is not the trainer, one more pass gives the trainer's own log-probabilities before the updates: the
clipped ratio and the KL are of these, and weights correct for the rest
(policy_gradient.compute_capped_importance_weights).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tasks.algorithms.common import sharding
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.accumulation import (
    AccumulatedStep,
    BatchPart,
    compute_token_values_in_parts,
    cut_into_micro_batches_if_needed,
    iterate_batch_parts,
)
from tasks.algorithms.language.advantages import gae, masked_mean, put_scores_at_last_token, reward_to_go, whiten
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import compute_token_logps
from tasks.algorithms.language.critic import Critic, explained_variance
from tasks.algorithms.language.experience import (
    SAMPLER,
    WEIGHT,
    Collect,
    Experience,
    Look,
    check_rewards_and_logps,
    summarise_samples,
)
from tasks.algorithms.language.kl import AdaptiveKl, k1
from tasks.algorithms.language.policy_gradient import clipped_policy_loss, compute_capped_importance_weights

UPDATED = ("loss/policy", "loss/value", "policy/approxkl", "policy/clipfrac", "val/ratio", SAMPLER)  # token means


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
    importance_cap: float | None  # largest weight of a token by how likely trainer and sampler hold it; None: none
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


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Half the larger of the squared errors of a value and of that value clipped to within `clip` of the old one: (N,
    L).
    """
    errors = (values - returns).square()
    if clip:
        held = old_values + (values - old_values).clamp(-clip, clip)
        errors = torch.max(errors, (held - returns).square())
    return errors / 2


@torch.no_grad()
def prepare_ppo_batch(
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
    rewards = put_scores_at_last_token(scores, mask) - kl_coefficient * k1(old_logps, reference_logps) * mask
    advantages, returns = gae(rewards, values, mask, settings.gamma, settings.lam)
    if settings.whiten:
        advantages = whiten(advantages, mask)
    cap = settings.importance_cap
    weights = (
        torch.ones_like(old_logps)
        if cap is None
        else compute_capped_importance_weights(old_logps, experience.logps, cap)
    )
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
        check_rewards_and_logps(experience)
        samples = experience.samples()
        batch = samples.completions
        with sharding.hold_unsharded_model(critic):
            reference_logps = _compute_logps_in_parts(reference, samples, settings)
            values = compute_token_values_in_parts(critic, batch, settings.micro_batch)
        old_logps = samples.logps
        coefficient = kl.coefficient
        if not settings.old_from_sampler:
            with sharding.hold_unsharded_model(policy):
                old_logps = _compute_logps_in_parts(policy, samples, settings)
        prepared = prepare_ppo_batch(samples, old_logps, reference_logps, values, settings, coefficient)
        if look is not None:
            look(step, experience, experience.whole(prepared.advantages))
        measured = (k1(old_logps, reference_logps) * batch.mask).sum().item() / max(1, len(batch))
        rate = optimizers[0].learning_rate
        trained = _run_epochs(policy, critic, samples, prepared, optimizers, settings, step)
        if len(batch):
            kl.update(measured)
        sampled = summarise_samples(experience)
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


def _compute_logps_in_parts(model: CausalLM, samples: Experience, settings: PpoSettings) -> Tensor:
    score = partial(compute_token_logps, model, temperature=settings.temperature)
    return compute_token_values_in_parts(score, samples.completions, settings.micro_batch)


def _run_epochs(
    policy: CausalLM,
    critic: Critic,
    samples: Experience,
    prepared: Prepared,
    optimizers: tuple[Optimizer, Optimizer],
    settings: PpoSettings,
    step: int,
) -> dict[str, float]:
    """All updates on one batch; the means of their metrics."""
    batch = samples.completions
    shuffle = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    updates: list[dict[str, float]] = []
    for _ in range(settings.epochs):
        order = torch.randperm(len(batch), generator=shuffle)
        for rows in order.tensor_split(settings.minibatches):
            tokens = int(batch.mask[rows].sum())
            policy_step = AccumulatedStep(optimizers[0], UPDATED)
            critic_step = AccumulatedStep(optimizers[1])
            for part in iterate_batch_parts(
                policy, batch, cut_into_micro_batches_if_needed(batch, rows, settings.micro_batch)
            ):
                share = int(batch.mask[part.rows].sum()) / tokens
                policy_mean, value_mean, means = _compute_losses(policy, critic, samples, prepared, settings, part)
                policy_step.backward(part, policy_mean * share, {name: means[name] * share for name in UPDATED})
                critic_step.backward(part, value_mean * share)
            metrics = policy_step.finish()
            critic_metrics = critic_step.finish()
            if len(rows) or not updates:  # where few responses have a reward, the last minibatches may be empty
                norms = {"grad_norm": metrics["grad_norm"], "grad_norm/value": critic_metrics["grad_norm"]}
                updates.append({**{name: metrics[name] for name in UPDATED}, **norms})
    means = {name: sum(update[name] for update in updates) / len(updates) for name in updates[0]}
    return {**means, SAMPLER: updates[0][SAMPLER]}  # later minibatches meet a policy that has been updated


def _compute_losses(
    policy: CausalLM,
    critic: Critic,
    samples: Experience,
    prepared: Prepared,
    settings: PpoSettings,
    part: BatchPart,
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """The policy's and the critic's loss on a part of a minibatch, and METRICS of it, all means over its tokens."""
    mask = part.completions.mask
    old_logps = part.select(prepared.old_logps)
    logps = compute_token_logps(policy, part.completions, settings.temperature)
    advantages = part.select(prepared.advantages)
    clip = settings.clip_ratio
    per_token, clipped = clipped_policy_loss(logps, old_logps, advantages, clip, clip)
    policy_mean = masked_mean(per_token * part.select(prepared.weights), mask)
    old_values = part.select(prepared.old_values)
    returns = part.select(prepared.returns)
    value_mean = masked_mean(
        clipped_value_loss(critic(part.completions), old_values, returns, settings.clip_value), mask
    )
    log_ratio = (logps.detach() - old_logps) * mask
    since_sampling = (logps.detach() - part.select(samples.logps)).abs() * mask
    return (
        policy_mean,
        value_mean,
        {
            "loss/policy": policy_mean.item(),
            "loss/value": value_mean.item(),
            "policy/approxkl": masked_mean(log_ratio.square() / 2, mask).item(),
            "policy/clipfrac": masked_mean(clipped.float(), mask).item(),
            "val/ratio": masked_mean(log_ratio.exp(), mask).item(),
            SAMPLER: masked_mean(since_sampling, mask).item(),
        },
    )

"""REINFORCE with reward-to-go (Williams 1992; Sutton et al. 1999), with a baseline or a critic (advantage
actor-critic).

The gradient is the mean over responses, of those that have a reward, of sum_t A_t grad log pi(a_t | s_t), with A_t =
G_t - b: b is nothing, a running mean of earlier returns, or a critic's V(s_t). None of them biases the gradient; they
differ in its variance, which is measured.

G_t counts the rewards from token t on; token t did not cause the earlier ones. So it differs from the response's total
only where rewards are paid before the last token (`Experience.paid`). The variance with the total in place of G_t is
measured too.

With a reference, each token is also paid -beta k1 to it, as in PPO (arXiv:2203.02155); beta is the KL coefficient.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from tasks.algorithms.common import sharding
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.accumulation import (
    AccumulatedStep,
    compute_token_values_in_parts,
    cut_into_micro_batches,
    iterate_batch_parts,
)
from tasks.algorithms.language.advantages import masked_mean, put_scores_at_last_token, reward_to_go
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import Completions, compute_token_logps
from tasks.algorithms.language.critic import Critic, explained_variance
from tasks.algorithms.language.experience import (
    SAMPLER,
    WEIGHT,
    Collect,
    Experience,
    Look,
    check_rewards_and_logps,
    sum_logp_differences,
    summarise_samples,
)
from tasks.algorithms.language.kl import k1
from tasks.algorithms.language.policy_gradient import (
    compute_capped_importance_weights,
    estimate_gradient_variance,
    policy_gradient_loss,
)

Baseline = Literal["none", "running_mean", "critic"]


@dataclass(frozen=True)
class ReinforceSettings:
    """The algorithm's settings."""

    baseline: Baseline
    gamma: float
    kl_coefficient: float  # weight of k1 in each token's reward; counts only where there is a reference
    mean_rate: float  # of the running mean: mean += rate * (batch's mean return - mean)
    critic_updates: int  # steps of the critic towards each batch's returns, after the batch has been used
    variance_every: int  # steps between two measurements of the gradient's variance; 0 for none
    variance_parts: int  # parts that the batch is cut into for a measurement
    temperature: float  # of the distribution that is trained
    importance_cap: float | None  # largest weight of a token by how likely trainer and sampler hold it; None: none
    micro_batch: int  # responses in one pass; changes memory, not the gradient


class RunningMean:
    """The running mean of returns: 0 before the first batch, then it starts from that batch's mean."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.value = 0.0
        self.batches = 0

    def update(self, batch: float) -> None:
        """Take a batch's mean return into account, after it has been used."""
        self.value += (self.rate if self.batches else 1.0) * (batch - self.value)
        self.batches += 1

    def state_dict(self) -> dict[str, Tensor]:
        """The mean and how many batches it has seen."""
        return {"value": torch.tensor([self.value, self.batches], dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.value = state["value"][0].item()
        self.batches = int(state["value"][1])


def fit(
    policy: CausalLM,
    critic: Critic | None,
    collect: Collect,
    optimizers: tuple[Optimizer, Optimizer | None],
    settings: ReinforceSettings,
    mean: RunningMean,
    *,
    start: int,
    steps: int,
    reference: CausalLM | None = None,
    look: Look | None = None,
) -> Iterator[dict[str, float]]:
    """Train `policy` in place from step `start` + 1 to `steps`, dropout off; with baseline critic, `critic` as well.
    `look` sees each step's samples with their advantages.

    With a `reference` the KL to it is subtracted from the rewards; it is that of the distribution sampled from.

    Yields a step's metrics (METRICS), and what the samples have logged. The gradient's variance is among them at the
    first step and at each `variance_every`-th step only.
    """
    for model in (policy, critic, reference):
        if model is not None:
            model.eval()
    for step in range(start + 1, steps + 1):
        experience = collect(step)
        check_rewards_and_logps(experience)
        samples = experience.samples()
        batch = samples.completions
        paid = put_scores_at_last_token(samples.rewards, batch.mask) if samples.paid is None else samples.paid
        divergence = None
        if reference is not None:
            scored = partial(compute_token_logps, reference, temperature=settings.temperature)
            divergence = (
                k1(samples.logps, compute_token_values_in_parts(scored, batch, settings.micro_batch)) * batch.mask
            )
            paid = paid - settings.kl_coefficient * divergence
        returns = reward_to_go(paid, batch.mask, settings.gamma)
        baselines = {"none": torch.zeros_like(returns), "running_mean": torch.full_like(returns, mean.value)}
        if critic is not None:
            with torch.no_grad(), sharding.hold_unsharded_model(critic):
                baselines["critic"] = compute_token_values_in_parts(critic, batch, max(1, len(batch)))
        advantages = {name: returns - value for name, value in baselines.items()}
        if look is not None:
            look(step, experience, experience.whole(advantages[settings.baseline]))
        to_go = masked_mean(returns, batch.mask).item()
        row = {"baseline": mean.value, "return_to_go": to_go, "learning_rate": optimizers[0].learning_rate}
        if settings.variance_every and (step == 1 or step % settings.variance_every == 0):
            compared = {"total_return": returns[:, :1].expand_as(returns), **advantages}
            with sharding.hold_unsharded_model(policy):
                variances = estimate_gradient_variance(
                    policy, batch, compared, settings.variance_parts, settings.temperature
                )
            row |= {f"grad_variance/{name}": value for name, value in variances.items()}
        if divergence is not None:
            row["objective/kl"] = divergence.sum().item() / max(1, len(batch))
        row |= _update_policy(policy, samples, advantages[settings.baseline], optimizers[0], settings)
        if critic is not None and optimizers[1] is not None:
            row["val/explained_variance"] = explained_variance(baselines["critic"], returns, batch.mask)
            losses = [
                _update_critic(critic, batch, returns, optimizers[1], settings) for _ in range(settings.critic_updates)
            ]
            row["loss/value"] = losses[0]
        if len(batch):
            mean.update(to_go)
        yield {**summarise_samples(experience), **row}


def _update_policy(
    policy: CausalLM, samples: Experience, advantages: Tensor, optimizer: Optimizer, settings: ReinforceSettings
) -> dict[str, float]:
    """One step along the batch's policy gradient."""
    batch = samples.completions
    cap = settings.importance_cap
    names = (SAMPLER,) if cap is None else (SAMPLER, WEIGHT)
    step = AccumulatedStep(optimizer, names)
    for part in iterate_batch_parts(policy, batch, _cut_micro_batches(batch, settings)):
        mask = part.completions.mask
        sampled = part.select(samples.logps)
        logps = compute_token_logps(policy, part.completions, settings.temperature)
        paid = part.select(advantages)
        sums = {SAMPLER: sum_logp_differences(logps, sampled, mask)}
        if cap is not None:
            weights = compute_capped_importance_weights(logps, sampled, cap)
            paid = paid * weights
            sums[WEIGHT] = (weights * mask).sum().item()
        step.backward(part, policy_gradient_loss(logps, paid, mask, len(batch)), sums)
    sums_of_batch = step.finish()
    tokens = max(1, int(batch.mask.sum()))
    means = {name: sums_of_batch[name] / tokens for name in names}
    return {"loss": sums_of_batch["loss"], "grad_norm": sums_of_batch["grad_norm"], **means}


def _update_critic(
    critic: Critic, batch: Completions, returns: Tensor, optimizer: Optimizer, settings: ReinforceSettings
) -> float:
    """One step of the critic towards the returns: half the mean squared error over tokens."""
    tokens = batch.mask.sum()
    step = AccumulatedStep(optimizer)
    for part in iterate_batch_parts(critic, batch, _cut_micro_batches(batch, settings)):
        mask = part.completions.mask
        errors = (critic(part.completions) - part.select(returns)) * mask
        step.backward(part, masked_mean(errors.square(), mask) * (mask.sum() / tokens.to(mask.device)) / 2)
    return step.finish()["loss"]


def _cut_micro_batches(batch: Completions, settings: ReinforceSettings) -> tuple[Tensor, ...]:
    return cut_into_micro_batches(batch, torch.arange(len(batch)), settings.micro_batch)

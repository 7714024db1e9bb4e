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

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer, check_finite
from tasks.algorithms.language.advantages import at_last_token, masked_mean, reward_to_go
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import Completions, token_logps
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
    micro_batches,
    moved,
    share,
    shares,
    summary,
)
from tasks.algorithms.language.kl import k1
from tasks.algorithms.language.policy_gradient import gradient_variance, importance_weights, policy_gradient_loss

Baseline = Literal["none", "running_mean", "critic"]
VARIANCE = "The trace of the covariance of the batch's gradient"
METRICS = {
    **SAMPLE_METRICS,
    **SAMPLER_METRICS,
    "loss": "The policy-gradient loss; its gradient has a meaning, its value has none.",
    "baseline": "The running mean of returns before the step, whether or not it is the baseline.",
    "return_to_go": "The mean return-to-go over the samples' tokens.",
    "grad_variance/none": f"{VARIANCE} with no baseline; lower is better for this metric and the next three.",
    "grad_variance/running_mean": f"{VARIANCE} with the running mean as baseline, on the same samples.",
    "grad_variance/critic": f"{VARIANCE} with the critic as baseline, on the same samples.",
    "grad_variance/total_return": f"{VARIANCE} with no baseline and each token weighted by the "
    "whole response's return.",
    "objective/kl": "The mean over responses of log pi - log pi_ref (k1): an estimate of the KL divergence to the "
    "reference, in nats; only where kl_coefficient is above 0.",
    "loss/value": "Half the critic's mean squared error over tokens, before its first update on the batch.",
    **CRITIC_METRICS,
    **OPTIMIZER_METRICS,
}


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
    importance_cap: (
        float | None
    )  # largest weight of a token by how likely the trainer and the sampler hold it; None for no weights
    micro_batch: int  # responses in one pass; changes memory, not the gradient


class RunningMean:
    """The running mean of returns: 0 before the first batch, then it starts from that batch's mean."""

    def __init__(self, rate: float) -> None:
        self.rate, self.value, self.batches = rate, 0.0, 0

    def update(self, batch: float) -> None:
        """Take a batch's mean return into account, after it has been used."""
        self.value += (self.rate if self.batches else 1.0) * (batch - self.value)
        self.batches += 1

    def state_dict(self) -> dict[str, Tensor]:
        """The mean and how many batches it has seen."""
        return {"value": torch.tensor([self.value, self.batches], dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.value, self.batches = state["value"][0].item(), int(state["value"][1])


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
        check_rewards(experience)
        samples = experience.samples()
        batch = samples.completions
        paid = at_last_token(samples.rewards, batch.mask) if samples.paid is None else samples.paid
        divergence = None
        if reference is not None:
            scored = partial(token_logps, reference, temperature=settings.temperature)
            divergence = k1(samples.logps, in_parts(scored, batch, settings.micro_batch)) * batch.mask
            paid = paid - settings.kl_coefficient * divergence
        returns = reward_to_go(paid, batch.mask, settings.gamma)
        baselines = {"none": torch.zeros_like(returns), "running_mean": torch.full_like(returns, mean.value)}
        if critic is not None:
            with torch.no_grad(), sharding.whole(critic):
                baselines["critic"] = _values(critic, batch)
        advantages = {name: returns - value for name, value in baselines.items()}
        if look is not None:
            look(step, experience, experience.whole(advantages[settings.baseline]))
        to_go = masked_mean(returns, batch.mask).item()
        row = {"baseline": mean.value, "return_to_go": to_go, "learning_rate": optimizers[0].learning_rate}
        if settings.variance_every and (step == 1 or step % settings.variance_every == 0):
            compared = {"total_return": returns[:, :1].expand_as(returns), **advantages}
            with sharding.whole(policy):
                variances = gradient_variance(policy, batch, compared, settings.variance_parts, settings.temperature)
            row |= {f"grad_variance/{name}": value for name, value in variances.items()}
        if divergence is not None:
            row["objective/kl"] = divergence.sum().item() / max(1, len(batch))
        row |= _update(policy, samples, advantages[settings.baseline], optimizers[0], settings)
        if critic is not None and optimizers[1] is not None:
            row["val/explained_variance"] = explained_variance(baselines["critic"], returns, batch.mask)
            losses = [
                _fit_critic(critic, batch, returns, optimizers[1], settings) for _ in range(settings.critic_updates)
            ]
            row["loss/value"] = losses[0]
        if len(batch):
            mean.update(to_go)
        yield {**summary(experience), **row}


def _update(
    policy: CausalLM, experience: Experience, advantages: Tensor, optimizer: Optimizer, settings: ReinforceSettings
) -> dict[str, float]:
    batch = experience.completions
    loss, apart, weighed = torch.zeros(()), 0.0, 0.0
    parts = micro_batches(batch, torch.arange(len(batch)), settings.micro_batch)
    for _, rows, counted in shares(policy, batch, parts):
        micro_batch = batch.rows(rows).on(policy)
        mask = micro_batch.mask
        logps = token_logps(policy, micro_batch, settings.temperature)
        paid = advantages[rows, : mask.shape[1]].to(mask.device)
        sampled = experience.logps[rows, : mask.shape[1]].to(mask.device)
        apart += moved(logps, sampled, mask) * counted
        if settings.importance_cap is not None:
            weights = importance_weights(logps, sampled, settings.importance_cap)
            weighed += (weights * mask).sum().item() * counted
            paid = paid * weights
        portion = policy_gradient_loss(logps, paid, mask, len(batch)) * counted
        portion.backward()
        loss = loss + portion.detach().cpu()
    total_loss, norm = _step(optimizer, loss)
    tokens = max(1, int(batch.mask.sum()))
    sums = {SAMPLER: apart} if settings.importance_cap is None else {SAMPLER: apart, WEIGHT: weighed}
    means = {name: value / tokens for name, value in distributed.total(sums).items()}
    return {"loss": total_loss, "grad_norm": norm, **means}


def _values(critic: Critic, batch: Completions) -> Tensor:
    """The critic's values (N, L) on the CPU; each rank computes those of its share."""
    if distributed.size() == 1 and len(batch):
        values: Tensor = critic(batch).cpu()
        return values
    values = torch.zeros(batch.mask.shape)
    if len(rows := share(batch, torch.arange(len(batch)))):
        local_values = critic(batch.rows(rows)).cpu()
        values[rows, : local_values.shape[1]] = local_values
    return distributed.summed(values)


def _fit_critic(
    critic: Critic, batch: Completions, returns: Tensor, optimizer: Optimizer, settings: ReinforceSettings
) -> float:
    """One step of the critic towards the returns: half the mean squared error over tokens."""
    tokens, loss = batch.mask.sum(), torch.zeros(())
    parts = micro_batches(batch, torch.arange(len(batch)), settings.micro_batch)
    for _, rows, counted in shares(critic, batch, parts):
        micro_batch = batch.rows(rows).on(critic)
        mask = micro_batch.mask
        errors = (critic(micro_batch) - returns[rows, : mask.shape[1]].to(mask.device)) * mask
        portion = masked_mean(errors.square(), mask) * (mask.sum() / tokens.to(mask.device)) / 2 * counted
        portion.backward()
        loss = loss + portion.detach().cpu()
    return _step(optimizer, loss)[0]


def _step(optimizer: Optimizer, loss: Tensor) -> tuple[float, float]:
    """One step of the optimizer; the loss of all ranks' portions, and the gradient's norm."""
    whole = distributed.total({"loss": loss.item()})["loss"]
    check_finite("loss", whole)
    return whole, optimizer.step()

"""Group-relative policy optimisation (arXiv:2402.03300, eq. 3): each response against the others to its prompt.

No critic: the advantage of a response is its reward minus its group's mean reward, divided by the group's standard
deviation (Dr. GRPO, arXiv:2503.20783, does not divide). Groups without spread have no gradient and are not passed
through the model. With process supervision a token's advantage is that of its step and those after it, by a process
reward model (section 4.1.3). A response without a reward is in no group and in no mean of the loss.

With beta > 0 the k3 term, differentiated as a loss, has the gradient of KL(ref || pi), not of KL(pi || ref). So the
policy does not converge to ref exp(r / beta) / Z, as with a KL penalty in the reward or with k2 in the loss, but to
beta ref / (beta + m - r), where m is its own expected reward. k1 in the loss has no gradient on average, so it holds
the policy nowhere (kl.py).

Where the sampler is not the trainer, the clipped ratio is to the trainer's own log-probabilities before the update,
which the first update's pass has; weights correct for the rest (policy_gradient.compute_capped_importance_weights).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from tasks.algorithms.common import distributed
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.accumulation import (
    AccumulatedStep,
    BatchPart,
    cut_into_micro_batches,
    iterate_batch_parts,
)
from tasks.algorithms.language.advantages import group_advantages, step_advantages
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import compute_token_logps
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
from tasks.algorithms.language.kl import ESTIMATORS, Estimator, compute_kl_slopes, k3
from tasks.algorithms.language.policy_gradient import (
    Aggregation,
    Totals,
    aggregate_loss,
    clipped_policy_loss,
    compute_capped_importance_weights,
)

OF_KL = ("kl", "kl_slope", "kl_slope_squared")  # what the loss sums over tokens where there is a KL term


@dataclass(frozen=True)
class GrpoSettings:
    """The algorithm's settings; `aggregate` (policy_gradient.py) explains the values of `aggregation`."""

    supervision: Literal["outcome", "process"]  # process: advantages of steps
    advantage: Literal["standardized", "centered"]
    aggregation: Aggregation
    updates: int  # optimizer steps on each batch
    clip_low: float  # the ratio is clipped to 1 - clip_low ... 1 + clip_high
    clip_high: float
    beta: float  # weight of the KL to the reference; 0 costs no reference pass
    kl: Estimator  # which is that KL in the loss
    temperature: float  # of the distribution that is trained
    old_from_sampler: bool  # whether the log-probabilities before the update are the sampler's
    importance_cap: float | None  # largest weight of a token by how likely trainer and sampler hold it; None: none
    max_new_tokens: int  # the length limit of a response, which is dr_grpo's constant
    mask_truncated: bool  # leave responses that the length limit cut off out of the loss
    micro_batch: int  # responses in one pass; changes memory, not the gradient (but see bnpo)


def grpo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    aggregation: Aggregation,
    totals: Totals,
    weights: Tensor | None = None,
    reference_logps: Tensor | None = None,
    beta: float = 0.0,
    kl: Estimator = "k3",
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a part of a batch, and sums over its tokens of `clip_ratio` and (with a reference) `kl`, `kl_slope`
    and its square.

    Log-probabilities are (n, L), advantages (n, L) or, where all tokens of a response share one, (n, 1). The loss is
    that of eq. 3 with k3 of eq. 4, or another estimator, aggregated as asked. `weights` (n, L) are importance weights;
    the KL has none.
    """
    values, acts = clipped_policy_loss(logps, old_logps, advantages, clip_low, clip_high)
    sums = {"clip_ratio": (acts & mask).sum()}
    if weights is not None:
        values = values * weights
    if reference_logps is not None:
        values = values + beta * ESTIMATORS[kl](logps, reference_logps)
        slope = compute_kl_slopes(kl, logps, reference_logps)
        of_kl = {"kl": k3(logps.detach(), reference_logps), "kl_slope": slope, "kl_slope_squared": slope.square()}
        sums |= {name: (values * mask).sum() for name, values in of_kl.items()}
    return aggregate_loss(values, mask, aggregation, totals), sums


def fit(
    policy: CausalLM,
    collect: Collect,
    optimizer: Optimizer,
    settings: GrpoSettings,
    *,
    start: int,
    steps: int,
    reference: CausalLM | None,
    look: Look | None = None,
) -> Iterator[dict[str, float]]:
    """Train `policy` in place from step `start` + 1 to `steps`, dropout off. `reference` is not used where beta is 0.
    Yields a step's METRICS and what the samples log.

    `look` sees each step's samples with their advantages.
    """
    policy.eval()
    if settings.beta:
        assert reference is not None, "beta weighs the distance to a reference"
        reference.eval()
    for step in range(start + 1, steps + 1):
        experience = collect(step)
        check_rewards_and_logps(experience)
        samples = experience.samples()
        advantages = compute_token_advantages(samples, settings)
        if look is not None:
            look(step, experience, experience.whole(advantages))
        trained = _update_policy(policy, samples, advantages, optimizer, settings, reference)
        yield {**summarise_samples(experience), **trained}


def compute_token_advantages(experience: Experience, settings: GrpoSettings) -> Tensor:
    """The advantages of a batch: (N, 1), or (N, L) with process supervision.

    There the process reward and the sum of all others, which is paid at the last token, count relative to their group
    each by itself, so that neither's scale matters; they are added with their weights. With centred advantages and no
    process reward this is what outcome supervision does.
    """
    owner = experience.completions.owner
    kind = settings.advantage
    if settings.supervision == "outcome":
        return group_advantages(experience.rewards, owner, kind).unsqueeze(1)
    steps = experience.steps
    mask = experience.completions.mask
    assert steps is not None, "a process reward model judges the steps"
    by_steps = step_advantages(steps.at_ends, mask, owner, kind)
    weight = steps.others_weight.masked_fill(steps.others_weight == 0, 1.0)
    by_others = weight * group_advantages(steps.others / weight, owner, kind)
    return (steps.weight.unsqueeze(1) * by_steps + by_others.unsqueeze(1)) * mask


def _update_policy(
    policy: CausalLM,
    samples: Experience,
    advantages: Tensor,
    optimizer: Optimizer,
    settings: GrpoSettings,
    reference: CausalLM | None,
) -> dict[str, float]:
    """The step's updates on one batch; the metrics of the last."""
    batch = samples.completions
    beta = settings.beta
    bnpo = settings.aggregation == "bnpo"
    differs = (advantages != 0).any(1)
    used = samples.ended if settings.mask_truncated else torch.ones_like(samples.ended)
    # Without a KL term a response whose advantage is 0 adds nothing but time; bnpo counts its tokens all the same.
    rows = (used & (differs | (beta > 0) | bnpo)).nonzero().squeeze(1)
    totals = Totals(len(rows) if bnpo else len(batch), int(batch.mask[used].sum()), settings.max_new_tokens)
    parts = [*iterate_batch_parts(policy, batch, cut_into_micro_batches(batch, rows, settings.micro_batch))]
    spread = torch.zeros(len(batch.prompts)).index_fill(0, batch.owner[differs], 1.0)
    without_spread = 1 - spread.mean().item() if len(spread) else 0.0
    metrics = {"frac_reward_zero_std": without_spread, "learning_rate": optimizer.learning_rate}
    references = [_compute_reference_logps(reference, part, settings) if beta else None for part in parts]
    old_logps: list[Tensor] = []  # before the first update, of each part
    for update in range(settings.updates):
        step = AccumulatedStep(optimizer, (SAMPLER, WEIGHT, "clip_ratio", *(OF_KL if beta else ())))
        for number, part in enumerate(parts):
            mask = part.completions.mask
            sampled = part.select(samples.logps)
            logps = compute_token_logps(policy, part.completions, settings.temperature)
            if update == 0:
                old_logps.append(sampled if settings.old_from_sampler else logps.detach())
            weights = None
            if settings.importance_cap is not None:
                weights = compute_capped_importance_weights(old_logps[number], sampled, settings.importance_cap)
            loss, sums = grpo_loss(
                logps,
                old_logps[number],
                part.select(advantages),
                mask,
                clip_low=settings.clip_low,
                clip_high=settings.clip_high,
                aggregation=settings.aggregation,
                totals=_adapt_totals_to_part(part, totals, batch.mask),
                weights=weights,
                reference_logps=references[number],
                beta=beta,
                kl=settings.kl,
            )
            weighed = 0.0 if weights is None else (weights * mask).sum()
            step.backward(part, loss, {SAMPLER: sum_logp_differences(logps, sampled, mask), WEIGHT: weighed, **sums})
        sums_of_batch = step.finish()
        if update == 0:
            names = (SAMPLER,) if settings.importance_cap is None else (SAMPLER, WEIGHT)
            metrics |= {name: sums_of_batch[name] / max(1, int(batch.mask[rows].sum())) for name in names}
        means = {name: value / max(1, totals.tokens) for name, value in sums_of_batch.items()}
        metrics |= {name: sums_of_batch[name] for name in ("grad_norm", "loss")} | {"clip_ratio": means["clip_ratio"]}
        if beta:
            variance = max(0.0, means["kl_slope_squared"] - means["kl_slope"] ** 2)
            metrics |= {"kl": means["kl"], "kl_slope_std": math.sqrt(variance)}
    return metrics


def _adapt_totals_to_part(part: BatchPart, totals: Totals, mask: Tensor) -> Totals:
    """The sizes that bnpo needs where several ranks share a part."""
    rows = part.rows_of_all_ranks
    return totals if distributed.get_world_size() == 1 else replace(totals, part=(len(rows), int(mask[rows].sum())))


@torch.no_grad()
def _compute_reference_logps(reference: CausalLM | None, part: BatchPart, settings: GrpoSettings) -> Tensor | None:
    return None if reference is None else compute_token_logps(reference, part.completions, settings.temperature)

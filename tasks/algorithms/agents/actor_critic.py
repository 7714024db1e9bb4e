"""Policy gradients over episodes of several turns: REINFORCE, actor-critics, PPO, GRPO and TRPO are settings of one
loop.

A step plays episodes with the current policy, gives credit (credit.py), and updates: `plain` is one step along the
policy gradient, `clip` several epochs of minibatches on PPO's clipped surrogate (arXiv:1707.06347, eq. 7),
`trust_region` one step of TRPO (trust_region.py). A critic, where credit needs one, is fitted to the lambda-returns
that credit was given by, half the mean squared error.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tasks.algorithms.agents import trust_region
from tasks.algorithms.agents.credit import Credited
from tasks.algorithms.agents.critic import TurnCritic
from tasks.algorithms.agents.experience import (
    AgentExperience,
    Collect,
    LoopSettings,
    check_experience,
    summarise_experience,
)
from tasks.algorithms.agents.transcripts import compute_action_distributions, compute_action_logps
from tasks.algorithms.agents.value_learning import assign_credit, fit_critic_to_batch, step_critic
from tasks.algorithms.common.optimizer import Optimizer, check_finite
from tasks.algorithms.language.advantages import masked_mean
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.critic import METRICS as CRITIC_METRICS
from tasks.algorithms.language.policy_gradient import clipped_policy_loss, policy_gradient_loss

METRICS = {
    "return": "The mean sum of rewards of the step's episodes; it should rise.",
    "return_std": "The standard deviation of these sums.",
    "turns": "The mean number of turns of an episode.",
    "action_tokens": "The mean number of tokens of an action, the end token included.",
    "actions_cut": "The share of the actions that the length limit cut off, from 0 to 1.",
    "context_cut": "The share of the episodes that ended since the next observation and action would not have "
    "fitted into the model's context, from 0 to 1.",
    "entropy": "The entropy at a token of the policy, estimated by the mean of its -log over the sampled tokens, "
    "in nats; near 0 the policy no longer explores.",
    "loss": "The policy's loss, a mean over the step's updates; with update trust_region the "
    "surrogate's gain, negated.",
    "kl": "The mean KL divergence of the policy before the step from that after it, over the step's action tokens, "
    "in nats: estimated by half the mean squared change of log-probability (k2); with trust_region exact.",
    "clip_ratio": "The share of the tokens where clipping acts, from 0 to 1, a mean over the step's updates; only "
    "with update clip.",
    "step_share": "The share of the full step that kept to the bound; 0: none did, and the policy stayed; only "
    "with update trust_region.",
    "grad_norm": "The norm of the policy's gradient, a mean over the step's updates.",
    "loss/value": "Half the critic's mean squared error, a mean over the step's updates.",
    **CRITIC_METRICS,
}


def fit(
    policy: CausalLM,
    critic: TurnCritic | None,
    collect: Collect,
    optimizers: tuple[Optimizer, Optimizer | None],
    settings: LoopSettings,
    *,
    start: int,
    steps: int,
) -> Iterator[dict[str, float]]:
    """Train `policy` and `critic` in place from step `start` + 1 to `steps`, dropout off. Yields a step's METRICS and
    what was logged.

    `optimizers` are the policy's, which trust_region does not use, and the critic's.
    """
    policy.eval()
    for step in range(start + 1, steps + 1):
        experience = collect(step)
        check_experience(experience)
        metrics = {**summarise_experience(experience)}
        credited, more = assign_credit(critic, experience, settings)
        metrics |= more
        if settings.update == "trust_region":
            metrics |= _take_trust_region_step(policy, experience, credited, settings)
            metrics |= fit_critic_to_batch(critic, experience, credited, optimizers[1], settings)
        elif settings.update == "clip":
            metrics |= _run_clipped_epochs(policy, critic, experience, credited, optimizers, settings, step)
        else:
            metrics |= _take_policy_gradient_step(policy, experience, credited, optimizers[0], settings)
            metrics |= fit_critic_to_batch(critic, experience, credited, optimizers[1], settings)
        yield metrics


def _take_policy_gradient_step(
    policy: CausalLM, experience: AgentExperience, credited: Credited, optimizer: Optimizer, settings: LoopSettings
) -> dict[str, float]:
    rate = optimizer.learning_rate
    whole = 0.0
    count = len(experience.transcripts)
    for rows in experience.transcripts.parts(torch.arange(count), settings.micro_batch):
        part = experience.transcripts.rows(rows).on(policy)
        logps = compute_action_logps(policy, part, settings.temperature)
        advantages = credited.advantages[rows, : part.acts.shape[1]].to(logps.device)
        loss = policy_gradient_loss(logps, advantages, part.acts, count)
        check_finite("loss", loss.item())
        loss.backward()
        whole += loss.item()
    return {"loss": whole, "grad_norm": optimizer.step(), "learning_rate": rate}


def _run_clipped_epochs(
    policy: CausalLM,
    critic: TurnCritic | None,
    experience: AgentExperience,
    credited: Credited,
    optimizers: tuple[Optimizer, Optimizer | None],
    settings: LoopSettings,
    step: int,
) -> dict[str, float]:
    shuffle = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    rate = optimizers[0].learning_rate
    rows = list[dict[str, float]]()
    for _ in range(settings.epochs):
        order = torch.randperm(len(experience.transcripts), generator=shuffle)
        for some in order.tensor_split(settings.minibatches):
            metrics = _add_clipped_gradient(policy, experience, credited, settings, some)
            metrics["grad_norm"] = optimizers[0].step()
            if critic is not None and optimizers[1] is not None and credited.targets is not None:
                part = experience.transcripts.rows(some)
                metrics["loss/value"] = step_critic(critic, optimizers[1], part, credited.targets[some], settings)
            rows.append(metrics)
    return {**{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}, "learning_rate": rate}


def _add_clipped_gradient(
    policy: CausalLM, experience: AgentExperience, credited: Credited, settings: LoopSettings, minibatch: Tensor
) -> dict[str, float]:
    """Add the gradient of a minibatch's surrogate, a mean over its action tokens; the means of what it is watched
    by.
    """
    tokens = int(experience.transcripts.acts[minibatch].sum())
    means = dict.fromkeys(("loss", "kl", "clip_ratio"), 0.0)
    for rows in experience.transcripts.parts(minibatch, settings.micro_batch):
        part = experience.transcripts.rows(rows).on(policy)
        width = part.acts.shape[1]
        old, advantages = (
            tensor[rows, :width].to(part.acts.device) for tensor in (experience.logps, credited.advantages)
        )
        logps = compute_action_logps(policy, part, settings.temperature)
        per_token, acts = clipped_policy_loss(logps, old, advantages, settings.clip_ratio, settings.clip_ratio)
        loss = (per_token * part.acts).sum() / tokens
        check_finite("loss", loss.item())
        loss.backward()
        moved = (logps.detach() - old).square() / 2
        for name, values in (("loss", per_token.detach()), ("kl", moved), ("clip_ratio", acts.float())):
            means[name] += (values * part.acts).sum().item() / tokens
    return means


def _take_trust_region_step(
    policy: CausalLM, experience: AgentExperience, credited: Credited, settings: LoopSettings
) -> dict[str, float]:
    transcripts = experience.transcripts.on(policy)
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    old, advantages = (part.to(transcripts.acts.device) for part in (experience.logps, credited.advantages))
    with torch.no_grad():
        before = compute_action_distributions(policy, transcripts, settings.temperature)

    def surrogate() -> Tensor:
        logps = compute_action_logps(policy, transcripts, settings.temperature)
        return masked_mean((logps - old).exp() * advantages, transcripts.acts)

    def divergence() -> Tensor:
        now = compute_action_distributions(policy, transcripts, settings.temperature)
        return (before.exp() * (before - now)).sum(1).mean()

    stepped = trust_region.take_trust_region_step(weights, surrogate, divergence, settings.region)
    check_finite("gain", stepped.gain)
    return {"loss": -stepped.gain, "kl": stepped.kl, "step_share": stepped.share, "grad_norm": stepped.gradient}

"""Policy gradients over episodes of several turns: REINFORCE, actor-critics, PPO, GRPO and TRPO are settings of one
loop.

A step plays episodes with the current policy, gives credit (credit.py), and updates: `plain` is one step along the
policy gradient, `clip` several epochs of minibatches on PPO's clipped surrogate (arXiv:1707.06347, eq. 7),
`trust_region` one step of TRPO (trust_region.py). A critic, where credit needs one, is fitted to the lambda-returns
that credit was given by, half the mean squared error.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from tasks.algorithms.agents import critic as read
from tasks.algorithms.agents import trust_region
from tasks.algorithms.agents.credit import Baseline, Credit, Credited, Over, credit
from tasks.algorithms.agents.critic import TurnCritic
from tasks.algorithms.agents.transcripts import Transcripts, distributions, token_logps
from tasks.algorithms.agents.trust_region import TrustRegion
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import Optimizer, check_finite
from tasks.algorithms.language.advantages import masked_mean
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.critic import METRICS as CRITIC_METRICS
from tasks.algorithms.language.critic import explained_variance
from tasks.algorithms.language.policy_gradient import policy_gradient_loss, policy_loss

Update = Literal["plain", "clip", "trust_region"]
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


@dataclass(frozen=True)
class AgentExperience:
    """N episodes of up to K turns, on the CPU."""

    transcripts: Transcripts
    logps: Tensor  # (N, T) when sampled, zero where the policy did not speak
    rewards: Tensor  # (N, K), zero without a turn
    groups: Tensor  # (N,) long, the number of each episode's game
    logged: Mapping[str, float] = field(default_factory=dict)


Collect = Callable[[int], AgentExperience]


@dataclass(frozen=True)
class LoopSettings:
    """The loop's settings."""

    credit: Credit
    over: Over
    baseline: Baseline
    standardized: bool  # whether advantages are divided by their standard deviation
    gamma: float  # discount of a reward one turn later
    lam: float
    update: Update
    clip_ratio: float
    epochs: int  # with clip
    minibatches: int  # in an epoch
    critic_updates: int  # of the critic on each batch, but with clip one beside each of the policy's
    temperature: float  # of the distribution that is trained
    region: TrustRegion
    micro_batch: int  # episodes in one pass; changes memory, not the gradient. A trust region passes the whole batch
    seed: int

    @property
    def criticised(self) -> bool:
        """Whether credit needs a critic."""
        return self.credit in ("q", "advantage")


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
        _check(experience)
        metrics = {**_summary(experience)}
        credited, more = give_credit(critic, experience, settings)
        metrics |= more
        if settings.update == "trust_region":
            metrics |= _trust_region(policy, experience, credited, settings)
            metrics |= critic_steps(critic, experience, credited, optimizers[1], settings)
        elif settings.update == "clip":
            metrics |= _clipped(policy, critic, experience, credited, optimizers, settings, step)
        else:
            metrics |= _plain(policy, experience, credited, optimizers[0], settings)
            metrics |= critic_steps(critic, experience, credited, optimizers[1], settings)
        yield metrics


def _check(experience: AgentExperience) -> None:
    bad = (~experience.rewards.isfinite()).nonzero()
    if len(bad):
        row, turn = bad[0].tolist()
        raise TrainingError(f"the reward of turn {turn + 1} of episode {row} is {experience.rewards[row, turn]:g}")
    check_finite("log-probability of a batch's samples", experience.logps.sum().item())


def _summary(experience: AgentExperience) -> dict[str, float]:
    totals, transcripts = experience.rewards.sum(1), experience.transcripts
    tokens, turns = int(transcripts.acts.sum()), int(transcripts.taken.sum())
    return {
        "return": totals.mean().item(),
        "return_std": totals.std().item() if len(totals) > 1 else 0.0,
        "turns": turns / len(totals),
        "action_tokens": tokens / turns,
        "entropy": -experience.logps.sum().item() / tokens,
        **experience.logged,
    }


@torch.no_grad()
def give_credit(
    critic: TurnCritic | None, experience: AgentExperience, settings: LoopSettings
) -> tuple[Credited, dict[str, float]]:
    """Credit for a batch's tokens, and how well the critic foresaw what followed: its explained variance, where there
    is one.
    """
    transcripts, values, logged = experience.transcripts, None, dict[str, float]()
    if settings.criticised:
        assert critic is not None
        read_out = torch.zeros(transcripts.mask.shape)
        for rows in transcripts.parts(torch.arange(len(transcripts)), settings.micro_batch):
            part = critic(transcripts.rows(rows)).cpu()
            read_out[rows, : part.shape[1]] = part
        values = _read(read_out, transcripts, settings)
    credited = credit(
        settings.credit,
        transcripts,
        experience.rewards,
        experience.groups,
        values,
        over=settings.over,
        baseline=settings.baseline,
        standardized=settings.standardized,
        gamma=settings.gamma,
        lam=settings.lam,
    )
    if values is not None:
        by_turn = values.shape == credited.returns.shape and settings.over == "turns"
        foreseen = values if by_turn else values.gather(1, transcripts.before + 1) * transcripts.taken
        logged["val/explained_variance"] = explained_variance(foreseen, credited.returns, transcripts.taken)
    return credited, logged


def _read(values: Tensor, transcripts: Transcripts, settings: LoopSettings) -> Tensor:
    """The critic's values where they are learned: (N, K), or (N, T) over tokens."""
    if settings.credit == "q":
        return read.of_actions(values, transcripts)
    if settings.over == "tokens":
        return read.of_tokens(values, transcripts)
    return read.of_states(values, transcripts)


def _value_step(
    critic: TurnCritic, optimizer: Optimizer, transcripts: Transcripts, targets: Tensor, settings: LoopSettings
) -> float:
    """One step of the critic towards its targets; half the mean squared error over turns, or over tokens."""
    by_token = settings.over == "tokens" and settings.credit == "advantage"
    count, whole = int((transcripts.acts if by_token else transcripts.taken).sum()), 0.0
    for rows in transcripts.parts(torch.arange(len(transcripts)), settings.micro_batch):
        part = transcripts.rows(rows).on(critic)
        values = _read(critic(part), part, settings)
        mask = part.acts if by_token else part.taken
        errors = values - targets[rows, : values.shape[1]].to(values.device)
        loss = (errors.square() * mask).sum() / (2 * count)
        check_finite("loss of the critic", loss.item())
        loss.backward()
        whole += loss.item()
    optimizer.step()
    return whole


def critic_steps(
    critic: TurnCritic | None,
    experience: AgentExperience,
    credited: Credited,
    optimizer: Optimizer | None,
    settings: LoopSettings,
) -> dict[str, float]:
    """Fit the critic to the targets of the batch's credit, `critic_updates` times; nothing without a critic."""
    if critic is None or optimizer is None or credited.targets is None:
        return {}
    losses = [
        _value_step(critic, optimizer, experience.transcripts, credited.targets, settings)
        for _ in range(settings.critic_updates)
    ]
    return {"loss/value": sum(losses) / len(losses)}


def _plain(
    policy: CausalLM, experience: AgentExperience, credited: Credited, optimizer: Optimizer, settings: LoopSettings
) -> dict[str, float]:
    rate, whole = optimizer.learning_rate, 0.0
    count = len(experience.transcripts)
    for rows in experience.transcripts.parts(torch.arange(count), settings.micro_batch):
        part = experience.transcripts.rows(rows).on(policy)
        logps = token_logps(policy, part, settings.temperature)
        advantages = credited.advantages[rows, : part.acts.shape[1]].to(logps.device)
        loss = policy_gradient_loss(logps, advantages, part.acts, count)
        check_finite("loss", loss.item())
        loss.backward()
        whole += loss.item()
    return {"loss": whole, "grad_norm": optimizer.step(), "learning_rate": rate}


def _clipped(
    policy: CausalLM,
    critic: TurnCritic | None,
    experience: AgentExperience,
    credited: Credited,
    optimizers: tuple[Optimizer, Optimizer | None],
    settings: LoopSettings,
    step: int,
) -> dict[str, float]:
    shuffle = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    rate, rows = optimizers[0].learning_rate, list[dict[str, float]]()
    for _ in range(settings.epochs):
        order = torch.randperm(len(experience.transcripts), generator=shuffle)
        for some in order.tensor_split(settings.minibatches):
            metrics = _add_clipped(policy, experience, credited, settings, some)
            metrics["grad_norm"] = optimizers[0].step()
            if critic is not None and optimizers[1] is not None and credited.targets is not None:
                part = experience.transcripts.rows(some)
                metrics["loss/value"] = _value_step(critic, optimizers[1], part, credited.targets[some], settings)
            rows.append(metrics)
    return {**{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}, "learning_rate": rate}


def _add_clipped(
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
        logps = token_logps(policy, part, settings.temperature)
        per_token, acts = policy_loss(logps, old, advantages, settings.clip_ratio, settings.clip_ratio)
        loss = (per_token * part.acts).sum() / tokens
        check_finite("loss", loss.item())
        loss.backward()
        moved = (logps.detach() - old).square() / 2
        for name, values in (("loss", per_token.detach()), ("kl", moved), ("clip_ratio", acts.float())):
            means[name] += (values * part.acts).sum().item() / tokens
    return means


def _trust_region(
    policy: CausalLM, experience: AgentExperience, credited: Credited, settings: LoopSettings
) -> dict[str, float]:
    transcripts = experience.transcripts.on(policy)
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    old, advantages = (part.to(transcripts.acts.device) for part in (experience.logps, credited.advantages))
    with torch.no_grad():
        before = distributions(policy, transcripts, settings.temperature)

    def surrogate() -> Tensor:
        logps = token_logps(policy, transcripts, settings.temperature)
        return masked_mean((logps - old).exp() * advantages, transcripts.acts)

    def divergence() -> Tensor:
        now = distributions(policy, transcripts, settings.temperature)
        return (before.exp() * (before - now)).sum(1).mean()

    stepped = trust_region.step(weights, surrogate, divergence, settings.region)
    check_finite("gain", stepped.gain)
    return {"loss": -stepped.gain, "kl": stepped.kl, "step_share": stepped.share, "grad_norm": stepped.gradient}

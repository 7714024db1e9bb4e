"""The critic's part in a policy gradient over episodes: credit by its values, and its steps towards what followed."""

import torch
from torch import Tensor

from tasks.algorithms.agents import critic as read
from tasks.algorithms.agents.credit import Credited, compute_credit
from tasks.algorithms.agents.critic import TurnCritic
from tasks.algorithms.agents.experience import AgentExperience, LoopSettings
from tasks.algorithms.agents.transcripts import Transcripts
from tasks.algorithms.common.optimizer import Optimizer, check_finite
from tasks.algorithms.language.critic import explained_variance


@torch.no_grad()
def assign_credit(
    critic: TurnCritic | None, experience: AgentExperience, settings: LoopSettings
) -> tuple[Credited, dict[str, float]]:
    """Credit for a batch's tokens, and how well the critic foresaw what followed: its explained variance, where there
    is one.
    """
    transcripts = experience.transcripts
    values = None
    logged = dict[str, float]()
    if settings.needs_critic:
        assert critic is not None
        read_out = torch.zeros(transcripts.mask.shape)
        for rows in transcripts.parts(torch.arange(len(transcripts)), settings.micro_batch):
            part = critic(transcripts.rows(rows)).cpu()
            read_out[rows, : part.shape[1]] = part
        values = _select_learned_values(read_out, transcripts, settings)
    credited = compute_credit(
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


def _select_learned_values(values: Tensor, transcripts: Transcripts, settings: LoopSettings) -> Tensor:
    """The critic's values where they are learned: (N, K), or (N, T) over tokens."""
    if settings.credit == "q":
        return read.gather_action_values(values, transcripts)
    if settings.over == "tokens":
        return read.gather_token_values(values, transcripts)
    return read.gather_state_values(values, transcripts)


def step_critic(
    critic: TurnCritic, optimizer: Optimizer, transcripts: Transcripts, targets: Tensor, settings: LoopSettings
) -> float:
    """One step of the critic towards its targets; half the mean squared error over turns, or over tokens."""
    by_token = settings.over == "tokens" and settings.credit == "advantage"
    count = int((transcripts.acts if by_token else transcripts.taken).sum())
    whole = 0.0
    for rows in transcripts.parts(torch.arange(len(transcripts)), settings.micro_batch):
        part = transcripts.rows(rows).on(critic)
        values = _select_learned_values(critic(part), part, settings)
        mask = part.acts if by_token else part.taken
        errors = values - targets[rows, : values.shape[1]].to(values.device)
        loss = (errors.square() * mask).sum() / (2 * count)
        check_finite("loss of the critic", loss.item())
        loss.backward()
        whole += loss.item()
    optimizer.step()
    return whole


def fit_critic_to_batch(
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
        step_critic(critic, optimizer, experience.transcripts, credited.targets, settings)
        for _ in range(settings.critic_updates)
    ]
    return {"loss/value": sum(losses) / len(losses)}

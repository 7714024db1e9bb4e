"""What the policy gradients over episodes learn from, and by which settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from tasks.algorithms.agents.credit import Baseline, Credit, Over
from tasks.algorithms.agents.transcripts import Transcripts
from tasks.algorithms.agents.trust_region import TrustRegion
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import check_finite


@dataclass(frozen=True)
class AgentExperience:
    """N episodes of up to K turns, on the CPU."""

    transcripts: Transcripts
    logps: Tensor  # (N, T) when sampled, zero where the policy did not speak
    rewards: Tensor  # (N, K), zero without a turn
    groups: Tensor  # (N,) long, the number of each episode's game
    logged: Mapping[str, float] = field(default_factory=dict)


Collect = Callable[[int], AgentExperience]
Update = Literal["plain", "clip", "trust_region"]


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
    def needs_critic(self) -> bool:
        """Whether credit needs a critic."""
        return self.credit in ("q", "advantage")


def check_experience(experience: AgentExperience) -> None:
    """TrainingError where a reward, or a log-probability, is not finite."""
    bad = (~experience.rewards.isfinite()).nonzero()
    if len(bad):
        row, turn = bad[0].tolist()
        raise TrainingError(f"the reward of turn {turn + 1} of episode {row} is {experience.rewards[row, turn]:g}")
    check_finite("log-probability of a batch's samples", experience.logps.sum().item())


def summarise_experience(experience: AgentExperience) -> dict[str, float]:
    """What every step logs of its episodes."""
    totals = experience.rewards.sum(1)
    transcripts = experience.transcripts
    tokens = int(transcripts.acts.sum())
    turns = int(transcripts.taken.sum())
    return {
        "return": totals.mean().item(),
        "return_std": totals.std().item() if len(totals) > 1 else 0.0,
        "turns": turns / len(totals),
        "action_tokens": tokens / turns,
        "entropy": -experience.logps.sum().item() / tokens,
        **experience.logged,
    }

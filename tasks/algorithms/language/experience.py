"""What a policy gradient learns from: a batch of sampled responses with their rewards.

`Collect` is the environment as the algorithms see it: a step's number in, sampled and judged responses out. It samples
from the current policy. Its randomness follows from the step's number, so that a resumed training draws the same
samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tasks.algorithms.common import distributed
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import check_finite
from tasks.algorithms.language.completions import Completions


@dataclass(frozen=True)
class StepRewards:
    """What a process reward model says of the steps of N responses, and what the rest of the reward says of the
    responses.
    """

    at_ends: Tensor  # (N, L) a step's reward at its last token, nan at all other tokens
    weight: Tensor  # (N,) how much the process reward counts
    others: Tensor  # (N,) the weighted sum of the other rewards
    others_weight: Tensor  # (N,) the sum of their weights

    def gathered(self, length: int) -> "StepRewards":
        """The rows of all ranks, in their order, of `length` tokens."""
        room = (0, length - self.at_ends.shape[1])
        at_ends = torch.nn.functional.pad(self.at_ends, room, value=torch.nan)
        parts = (at_ends, self.weight, self.others, self.others_weight)
        return StepRewards(*(distributed.gather_rows(part) for part in parts))

    def rows(self, index: Tensor) -> "StepRewards":
        """Those of the responses at `index` (long or bool)."""
        return StepRewards(self.at_ends[index], self.weight[index], self.others[index], self.others_weight[index])


@dataclass(frozen=True)
class Experience:
    """N responses to B prompts, on the CPU.

    A response without a reward is no sample: neither its prompt's other responses nor any mean of a loss knows of it
    (`samples`).
    """

    completions: Completions
    # (N, L) under the distribution sampled from, zero where masked out; the policy's own only where that is its sampler
    logps: Tensor
    rewards: Tensor  # (N,) nan where a response has none
    ended: Tensor  # (N,) bool, False where the length limit cut the response off
    logged: Mapping[str, float] = field(default_factory=dict)  # further means to be logged, such as parts of the reward
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # (N,) each part of the reward, nan where it has none
    paid: Tensor | None = None  # (N, L) the same rewards, divided among the tokens; None: all at the last token
    steps: StepRewards | None = None  # where a process reward model judged them

    @property
    def judged(self) -> Tensor:
        """Which responses have a reward: (N,) bool."""
        return ~self.rewards.isnan()

    def samples(self) -> "Experience":
        """The n responses that have a reward, perhaps none, with the prompts that they answer; all of them as wide as
        here.
        """
        rows = self.judged
        if rows.all():
            return self
        return replace(
            self,
            completions=self.completions.rows(rows, padded=True),
            logps=self.logps[rows],
            rewards=self.rewards[rows],
            ended=self.ended[rows],
            parts={name: values[rows] for name, values in self.parts.items()},
            paid=None if self.paid is None else self.paid[rows],
            steps=None if self.steps is None else self.steps.rows(rows),
        )

    def whole(self, values: Tensor) -> Tensor:
        """Values (n, L) of `samples`, such as advantages, for all responses (N, L): 0 for those without a reward."""
        full = values.new_zeros(len(self.rewards), values.shape[1])
        full[self.judged] = values
        return full


Collect = Callable[[int], Experience]
Look = Callable[[int, Experience, Tensor], None]  # sees a step, its samples, and their advantages: (N, L), or (N, 1)
METRICS = {
    "reward": "The mean reward of the step's samples, of those that have one; it should rise.",
    "reward_std": "The standard deviation of the reward over all of the step's samples that have one.",
    "reward/none": "The share of the step's responses that have no reward, from 0 to 1: a reward that counts is "
    "missing, since its function returned None, took too long or ended its process, or the "
    "reference cannot be read. They are not learned from.",
    "entropy": "The entropy at a token of the distribution sampled from, estimated by the mean of its -log over "
    "the samples' tokens, in nats; near 0 the policy no longer explores.",
    "completions/mean_length": "The mean length of the samples in tokens, the end token included.",
    "completions/clipped_ratio": "The share of the samples that the length limit cut off, from 0 "
    "to 1; lower is better.",
}

SAMPLER = "sampling/logp_difference"
WEIGHT = "sampling/importance_sampling_ratio/mean"
SAMPLER_METRICS = {
    SAMPLER: "The mean absolute difference between a token's log-probability when it was sampled and in the first "
    "pass of training, before any update, in nats; 0 up to rounding where the sampler is the trainer.",
    WEIGHT: "The mean over tokens of the capped importance weight, the ratio of a token's probability in training "
    "to that in sampling; only with an importance_cap. Far below 1 the samples teach little.",
}


def check_rewards_and_logps(experience: Experience) -> None:
    """TrainingError where a reward is infinite or a log-probability is not finite; the latter means that the policy has
    diverged.
    """
    bad = experience.rewards.isinf().nonzero().flatten().tolist()
    if bad:
        raise TrainingError(
            f"the reward of response {bad[0]} is {experience.rewards[bad[0]]:g} "
            f"({len(bad)} of {len(experience.rewards)} are no finite numbers)"
        )
    check_finite("log-probability of a batch's samples", experience.logps.sum().item())


def summarise_samples(experience: Experience) -> dict[str, float]:
    """What every policy-gradient method logs of its samples: METRICS, and the experience's `logged`.

    The entropy is estimated from the samples, so that it costs no further pass.
    """
    rewards = experience.rewards[experience.judged]
    mask = experience.completions.mask
    return {
        "reward": rewards.mean().item() if len(rewards) else 0.0,
        "reward_std": rewards.std().item() if len(rewards) > 1 else 0.0,
        "reward/none": 1 - len(rewards) / len(mask),
        "entropy": (-experience.logps.sum() / mask.sum()).item(),
        "completions/mean_length": mask.sum(1).float().mean().item(),
        "completions/clipped_ratio": (~experience.ended).float().mean().item(),
        **experience.logged,
    }


def select_best_per_prompt(rewards: Tensor, owner: Tensor, minimum: float) -> Tensor:
    """The rows (long, ascending) of each prompt's best response, the first of equals, if its reward is at least
    `minimum`.

    That is rejection sampling for fine-tuning (arXiv:2307.09288, section 3.2.2). `rewards` and `owner` are (N,). A
    prompt whose best response earns less is left out, and so is one whose responses have no reward (nan).
    """
    best: dict[int, int] = {}
    for row, (reward, prompt) in enumerate(zip(rewards.tolist(), owner.tolist(), strict=True)):
        if reward >= minimum and (prompt not in best or reward > rewards[best[prompt]]):
            best[prompt] = row
    return torch.tensor(sorted(best.values()), dtype=torch.long)


def sum_logp_differences(logps: Tensor, sampled: Tensor, mask: Tensor) -> float:
    """The sum over tokens of how far log-probabilities are from what they were when sampled: all (n, L)."""
    return float(((logps.detach() - sampled).abs() * mask).sum())

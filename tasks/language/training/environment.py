"""Prompts, a policy that answers them and a judge (judge.py) of the answers: what the policy-gradient stages learn
from.

Every draw follows from the seed and the step's number alone, so that a training that was killed goes on with the same
ones.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import torch

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.precision import copy_weights_to_rounded_model
from tasks.algorithms.language import rollouts
from tasks.algorithms.language.advantages import compute_reward_increments
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.algorithms.language.completions import Completions, make_completions
from tasks.algorithms.language.experience import Experience, StepRewards
from tasks.algorithms.language.rollouts import Rollouts
from tasks.common import tables
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.parts.policies import SamplingConfig
from tasks.language.data import chat, prompts
from tasks.language.rewards import weighted_rewards
from tasks.language.training.judge import Judge

SEEDS = 2**43  # with what sampling adds, a larger number might be no seed for torch
SHOWN = 24  # responses of a step in its table of samples


class SamplingEnvironment:
    """Samples from the current policy, and has the samples judged."""

    def __init__(
        self,
        policy: PretrainedCausalLM,
        tokenizer: Tokenizer,
        table: pd.DataFrame,
        judge: Judge,
        config: SamplingConfig,
        rounded: PretrainedCausalLM | None = None,
    ) -> None:
        """Answers are sampled from `rounded`, the policy in bfloat16, where it is given: before each draw it gets the
        policy's weights.
        """
        self.policy = policy
        self.tokenizer = tokenizer
        self.judge = judge
        self.config = config
        self.rounded = rounded
        self.rows = tables.list_records(table)
        judge.check(self.rows)
        self.encoded = prompts.encode_prompt_rows(tokenizer, self.rows)
        lengths = [*map(len, self.encoded)]
        for model in (policy, judge.scorer):
            if model is not None:
                chat.check_positions(model, lengths, "the prompts", config.max_new_tokens, "max_new_tokens")

    def sample(self, indices: Sequence[int], samples: int, draw: int, by_line: bool = False) -> Experience:
        """`samples` judged responses to each of the prompts at `indices`; `draw` numbers the random draw.

        Each rank samples and judges the answers to its share of the prompts, and has all of them in the end. With
        `by_line` rewards are paid at the end of each line.
        """
        encoded_prompts = [self.encoded[index] for index in indices]
        with sharding.hold_unsharded_model(self.policy):
            if self.rounded is not None:
                copy_weights_to_rounded_model(self.policy, self.rounded)
            [drawn] = rollouts.sample_rollouts(
                self.policy if self.rounded is None else self.rounded,
                encoded_prompts,
                samples=samples,
                max_new_tokens=self.config.max_new_tokens,
                temperature=self.config.temperature,
                top_p=self.config.top_p,
                end_tokens=chat.end_tokens(self.policy, self.tokenizer),
                seed=(self.config.seed * 1_000_003 + draw) % SEEDS,
                batch_size=len(encoded_prompts),
                shared=True,
            )
        experience, judged = self._judged(indices[distributed.get_local_slice(len(indices))], drawn, by_line)
        if distributed.get_world_size() == 1:
            return experience
        whole = drawn.gathered()
        names = distributed.gather_names(judged.parts)
        unknown = torch.full_like(judged.total, torch.nan)
        columns = {"": judged.total, **{name: judged.parts.get(name, unknown) for name in names}}
        total, *parts = distributed.gather_columns(columns).values()
        paid = None
        if experience.paid is not None:
            room = (0, whole.tokens.shape[1] - experience.paid.shape[1])
            paid = distributed.gather_rows(torch.nn.functional.pad(experience.paid, room))
        steps = None if experience.steps is None else experience.steps.gathered(whole.tokens.shape[1])
        responses = whole.completions(encoded_prompts, self.tokenizer.pad_token_id)
        logged = dict(zip(names, parts, strict=True))
        return Experience(
            responses,
            whole.logps,
            total,
            whole.ended,
            weighted_rewards.average_reward_parts(logged),
            logged,
            paid,
            steps,
        )

    def check_unjudged_share(self, indices: Sequence[int], experience: Experience) -> None:
        """TrainingError where more of the responses to the prompts at `indices` have no reward than the section's limit
        allows.

        It names the reward that most of them lack. The step is judged as a whole, whatever each rank judged of it.
        """
        rows = (~experience.judged).nonzero().flatten().tolist()
        if len(rows) <= self.config.reward_none_limit * len(experience.rewards):
            return
        lacking: Counter[str] = Counter()
        for row in rows:
            parts = {name: values[row].item() for name, values in experience.parts.items()}
            lacking.update(
                self.judge.list_missing_rewards(
                    self.rows[indices[int(experience.completions.owner[row])]]["reward"], parts
                )
            )
        [(name, count)] = lacking.most_common(1) or [("reward", len(rows))]
        failed = (
            int(experience.parts[name + weighted_rewards.FAILED][rows].sum())
            if name + weighted_rewards.FAILED in experience.parts
            else 0
        )
        raise TrainingError(
            f"{len(rows)} of {len(experience.rewards)} responses ({len(rows) / len(experience.rewards):.0%}) have "
            f"no reward, {count} of them none "
            f"by {name}{f' ({failed} calls took too long or ended its process)' if failed else ''}; expected a "
            "share of at most "
            f"reward_none_limit = {self.config.reward_none_limit:g}. Let {name} return a number where it can, or raise "
            "reward_none_limit (1 never stops)"
        )

    def _judged(
        self, indices: Sequence[int], drawn: Rollouts, by_line: bool
    ) -> tuple[Experience, weighted_rewards.Rewards]:
        """The responses to the prompts at `indices`, perhaps none, with their rewards."""
        if not indices:
            nothing = Completions(*(torch.zeros(0, 1, dtype=torch.bool),) * 2, torch.zeros(0), drawn.tokens, drawn.mask)
            paid = drawn.logps if by_line else None
            none = torch.zeros(0)
            steps = StepRewards(drawn.logps, none, none, none) if self.judge.has_step_rewards else None
            return Experience(nothing, drawn.logps, none, drawn.ended, {}, {}, paid, steps), weighted_rewards.Rewards(
                none, none, {}
            )
        responses = drawn.completions([self.encoded[index] for index in indices], self.tokenizer.pad_token_id)
        judged = self.judge(
            [self.rows[indices[prompt]] for prompt in responses.owner.tolist()], responses, drawn.ended.tolist()
        )
        experience = Experience(
            responses,
            drawn.logps,
            judged.total,
            drawn.ended,
            weighted_rewards.average_reward_parts(judged.parts),
            judged.parts,
            steps=judged.steps,
        )
        return self.add_line_rewards(indices, experience) if by_line else experience, judged

    def add_line_rewards(self, indices: Sequence[int], experience: Experience) -> Experience:
        """The same responses with rewards paid as they are earned: at each line's end, by how much the line raised the
        worth.

        The worth of a response up to a line's end is the reward that it would earn if it were cut off there; at its
        start it is
        0. So the payments add up to the reward (shaping by a potential: Ng, Harada and Russell 1999). Where the
           beginning has no reward
        the next one pays for it; where the response has none, nothing is paid.
        """
        batch = experience.completions
        breaks = [token for token in batch.tokens.unique().tolist() if "\n" in self.tokenizer.decode([token])]
        last = torch.arange(batch.mask.shape[1]) == batch.mask.sum(1, keepdim=True) - 1
        at_break = torch.isin(batch.tokens, torch.tensor(breaks)) & batch.mask & ~last
        rows, ends = (part.tolist() for part in at_break.nonzero(as_tuple=True))
        worth = torch.zeros(batch.mask.shape)
        if rows:
            owner = batch.owner[rows].tolist()
            cut = [batch.tokens[row, : end + 1].tolist() for row, end in zip(rows, ends, strict=True)]
            encoded_prompts = [self.encoded[index] for index in indices]
            responses = make_completions(encoded_prompts, owner, cut, self.tokenizer.pad_token_id)
            worth[at_break] = self.judge(
                [self.rows[indices[prompt]] for prompt in owner], responses, [False] * len(cut)
            ).total
        worth[last] = experience.rewards
        paid = compute_reward_increments(worth, (at_break | last) & ~worth.isnan())
        return replace(experience, paid=paid.masked_fill(~experience.judged.unsqueeze(1), 0.0))

    def shown(self, indices: Sequence[int], experience: Experience) -> pd.DataFrame:
        """The first responses with their prompts and rewards, for people to read."""
        batch = experience.completions
        return pd.DataFrame(
            {
                "prompt": self.rows[indices[int(batch.owner[row])]]["question"],
                "response": chat.decode_response(
                    self.tokenizer, batch.tokens[row][batch.mask[row]].tolist(), bool(experience.ended[row])
                ),
                "reward": experience.rewards[row].item(),
                "ended": bool(experience.ended[row]),
            }
            for row in range(min(SHOWN, len(batch)))
        )

    def get_step_indices(self, step: int, count: int) -> list[int]:
        """The places of step `step`'s `count` prompts: each prompt comes once an epoch, in that epoch's own order."""
        indices = []
        orders: dict[int, list[int]] = {}
        for number in range((step - 1) * count, step * count):
            epoch, at = divmod(number, len(self.rows))
            if epoch not in orders:
                generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + epoch)
                orders[epoch] = torch.randperm(len(self.rows), generator=generator).tolist()
            indices.append(orders[epoch][at])
        return indices

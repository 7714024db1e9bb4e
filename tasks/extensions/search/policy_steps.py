"""Beam search with a policy on disk: next steps are sampled up to a line's end, and a process reward model values
beginnings.
"""

from collections.abc import Sequence

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.common.tokenizers import Tokenizer
from tasks.extensions.search import beam, scoring
from tasks.extensions.search.beam import Begun, Expanded
from tasks.extensions.search.configs.search import SearchConfig
from tasks.extensions.search.sampling import TestPrompts
from tasks.language.data import chat
from tasks.language.rewards.reward_model_files import list_line_break_tokens


class Steps:
    """What beam search asks of the models: next steps by the policy, and the process reward model's value of
    beginnings.

    A value is the least probability that a step is not bad, over the steps so far.
    """

    def __init__(
        self,
        config: SearchConfig,
        policy: PretrainedCausalLM,
        scorer: PretrainedModel,
        tokenizer: Tokenizer,
        problem_set: TestPrompts,
    ) -> None:
        """`problem_set` are the problems that are searched."""
        self.config = config
        self.policy = policy
        self.scorer = scorer
        self.problem_set = problem_set
        self.ends = chat.end_tokens(policy, tokenizer)
        self.stops = self.ends | set(list_line_break_tokens(tokenizer))
        self.pad = tokenizer.pad_token_id
        self.round = 0

    def search(self, width: int) -> list[beam.Search]:
        """One search for each problem."""
        return beam.run_beam_search(
            self.expand, self.value, len(self.problem_set.prompts), width, self.config.beam_expansions
        )

    def expand(self, begun: Sequence[Begun], count: int) -> list[list[Expanded]]:
        """So many steps behind each beginning; each round draws from a seed of its own, none of which sampling uses."""
        self.round += 1
        limit = self.config.max_new_tokens
        drawn = rollouts.sample_rollouts(
            self.policy,
            [[*self.problem_set.prompts[number], *tokens] for number, tokens in begun],
            samples=count,
            max_new_tokens=limit - min(len(tokens) for _, tokens in begun),
            temperature=self.config.temperature,
            end_tokens=self.stops,
            seed=self.config.seed + self.round,
            batch_size=max(1, self.config.batch_size * self.config.samples // count),  # as many rows as in sampling
        )
        flat = [tuple(tokens) for batch in drawn for tokens in batch.responses()]
        return [
            [self._truncate_step(flat[position * count + row], limit - len(tokens)) for row in range(count)]
            for position, (_, tokens) in enumerate(begun)
        ]

    def _truncate_step(self, step: tuple[int, ...], room: int) -> Expanded:
        """The step within the room that its answer has left, and whether the answer ends with it."""
        kept = step[:room]
        return kept, kept[-1] in self.ends or len(kept) == room

    def value(self, begun: Sequence[Begun]) -> list[float]:
        """What beginnings are worth."""
        scores = scoring.score_answers(self.scorer, "process", begun, self.problem_set, self.pad)
        values: list[float] = scores["process_minimum"].tolist()
        return values

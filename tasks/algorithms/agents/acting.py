"""Playing episodes of several turns side by side on one key-value cache.

Before each turn the cache is closed up: every row's tokens stand next to each other at its right end, and rows whose
episode has ended are gone. Then the new observations are read and the actions are sampled token by token. Each token is
passed through the model once. The log-probabilities are those of a plain pass over the whole transcript, but for
rounding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tasks.algorithms.agents.transcripts import Transcript
from tasks.algorithms.language.cache import compact_cache, select_rows_and_reserve_cache_room
from tasks.algorithms.language.causal_lm import CausalLM, KeyValueCache
from tasks.algorithms.language.completions import pad_left
from tasks.algorithms.language.rollouts import sample_next_tokens


@dataclass(frozen=True)
class Action:
    """What the policy has said in a turn of the episode `row`."""

    row: int
    tokens: list[int]  # with the end token, where it `ended`
    ended: bool  # False where the length limit cut it off


# From the actions of a turn to each one's next observation, as tokens; None where the episode has ended.
React = Callable[[Sequence[Action]], Sequence[Sequence[int] | None]]


@dataclass(frozen=True)
class ActionSampling:
    """How actions are drawn."""

    max_action_tokens: int
    temperature: float  # 0 is greedy
    end_tokens: frozenset[int]
    context: int | None  # tokens that a transcript may have; None for no limit


@dataclass
class EpisodeBatch:
    """Episodes, in the order of their openings."""

    transcripts: list[Transcript]
    cut: list[bool]  # whether the next observation and action would not have fitted into the context


@torch.no_grad()
def play_episodes(
    model: CausalLM,
    openings: Sequence[Sequence[int]],
    react: React,
    sampling: ActionSampling,
    generator: torch.Generator,
) -> EpisodeBatch:
    """Play one episode from each opening until `react` ends it, or the context does.

    The random numbers of a row depend on the generator, the turn and the row alone, not on which other rows still run.
    """
    device = next(model.parameters()).device
    played = EpisodeBatch([Transcript() for _ in openings], [False] * len(openings))
    rows = _mark_cut_and_select_fitting_rows(
        played, {row: list(opening) for row, opening in enumerate(openings)}, sampling
    )
    cache = None
    turn = 0
    mask = torch.zeros(len(rows), 0, dtype=torch.bool, device=device)
    unread = {row: list[int]() for row in rows}
    while rows:
        for row, tokens in rows.items():
            played.transcripts[row].observe(tokens, turn)
        prompts = [[*unread[row], *tokens] for row, tokens in rows.items()]
        uniform = torch.rand(len(openings), sampling.max_action_tokens, generator=generator, device=device)
        state = _State(cache, mask)
        actions, logps = _sample_actions(model, state, prompts, uniform[list(rows)], sampling)
        turn_actions = [
            Action(row, tokens, tokens[-1] in sampling.end_tokens) for row, tokens in zip(rows, actions, strict=True)
        ]
        for action, values in zip(turn_actions, logps, strict=True):
            played.transcripts[action.row].act(action.tokens, turn, values)
        observed = {
            action.row: [*tokens]
            for action, tokens in zip(turn_actions, react(turn_actions), strict=True)
            if tokens is not None
        }
        cache_rows = {row: index for index, row in enumerate(rows)}
        unread = {action.row: action.tokens[-1:] for action in turn_actions}
        rows = _mark_cut_and_select_fitting_rows(played, observed, sampling)
        cache, mask = state.kept([cache_rows[row] for row in rows])
        turn += 1
    return played


def _mark_cut_and_select_fitting_rows(
    played: EpisodeBatch, observed: dict[int, list[int]], sampling: ActionSampling
) -> dict[int, list[int]]:
    """The rows that have room for their observation and an action; the others are cut."""
    limit = sampling.context
    fitting = {}
    for row, tokens in observed.items():
        length = len(played.transcripts[row].tokens) + len(tokens) + sampling.max_action_tokens
        if limit is not None and length > limit:
            played.cut[row] = True
        else:
            fitting[row] = tokens
    return fitting


class _State:
    """A cache, and which of its columns are real in which row."""

    def __init__(self, cache: KeyValueCache | None, mask: Tensor) -> None:
        self.cache = cache
        self.mask = mask

    def read(self, model: CausalLM, tokens: Tensor, real: Tensor) -> Tensor:
        """Pass tokens (n, t) through the model behind what it has read; the logits behind the last: (n, V)."""
        seen = self.mask.sum(1, keepdim=True)
        self.mask = torch.cat([self.mask, real], dim=1)
        inputs = {"past_key_values": self.cache} if self.cache is not None else {}
        output = model(
            input_ids=tokens,
            attention_mask=self.mask.long(),
            position_ids=(seen + real.cumsum(1) - 1).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
            **inputs,
        )
        self.cache = output.past_key_values
        return output.logits[:, -1]

    def make_room(self, tokens: int) -> None:
        """Have the next tokens written in place; each would copy the cache."""
        if self.cache is not None:
            select_rows_and_reserve_cache_room(
                self.cache, torch.arange(len(self.mask), device=self.mask.device), tokens
            )

    def kept(self, indices: list[int]) -> tuple[KeyValueCache | None, Tensor]:
        """Cache and mask of these rows alone, without columns that none of them needs."""
        if not indices or self.cache is None:
            return None, self.mask[:0]
        rows = torch.tensor(indices, device=self.mask.device)
        return self.cache, compact_cache(self.cache, rows, self.mask[rows])


def _sample_actions(
    model: CausalLM, state: _State, prompts: list[list[int]], uniform: Tensor, sampling: ActionSampling
) -> tuple[list[list[int]], list[list[float]]]:
    """One action a row, and its tokens' log-probabilities. The last token of each is not yet read."""
    padded, real = (part.to(uniform.device) for part in pad_left(prompts, 0))
    logits = state.read(model, padded, real)
    state.make_room(sampling.max_action_tokens)
    going = torch.ones(len(prompts), dtype=torch.bool, device=uniform.device)
    ends = torch.tensor(sorted(sampling.end_tokens), device=uniform.device)
    tokens = list[Tensor]()
    logps = list[Tensor]()
    spoken = list[Tensor]()
    for step in range(sampling.max_action_tokens):
        chosen, values = sample_next_tokens(logits, sampling.temperature, partial(_get_uniform_column, uniform, step))
        tokens.append(chosen)
        logps.append(values)
        spoken.append(going)
        going = going & ~torch.isin(chosen, ends)
        if step + 1 == sampling.max_action_tokens or not going.any():
            break
        logits = state.read(model, chosen.unsqueeze(1), going.unsqueeze(1))
    columns = [torch.stack(part, dim=1).cpu() for part in (tokens, logps, spoken)]
    mask = columns[2]
    return (
        [row[real].tolist() for row, real in zip(columns[0], mask, strict=True)],
        [row[real].tolist() for row, real in zip(columns[1], mask, strict=True)],
    )


def _get_uniform_column(uniform: Tensor, column: int) -> Tensor:
    return uniform[:, column : column + 1].double()

"""A table of comparisons as batches of tokens: the one way in which stages that learn from pairs read it."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import pandas as pd
import torch

from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.completions import Completions, make_completions
from tasks.algorithms.language.pairs import Pairs
from tasks.algorithms.language.sequences import count_batches, iterate_shuffled_batches
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat, conversations, forms, prompts
from tasks.language.tables.preferences import get_strength_level

Tokens = tuple[int, ...]


class Limit(NamedTuple):
    """How long a prompt with a response may be, and what becomes of longer ones."""

    tokens: int | None
    truncation: Literal["right", "left", "drop"]


UNLIMITED = Limit(None, "drop")


class ResponsePair(NamedTuple):
    """Two responses, by their places among a set's."""

    chosen: int
    rejected: int
    level: int  # as Pairs has it
    ranking: str  # to which it belongs; "" for a comparison


class ComparisonSet:
    """Comparisons (schema Comparisons) with their prompts and distinct responses as tokens: the sampled ones where they
    are known.

    Pairs of rankings (rankings.pairs) have columns `level` and `ranking_id` in place of a strength. `truncated` and
    `dropped` count the pairs that are above the limit, and were cut or left out.
    """

    def __init__(self, table: pd.DataFrame, tokenizer: Tokenizer, limit: Limit = UNLIMITED) -> None:
        self.pad: int = tokenizer.pad_token_id
        self.asked: list[list[int]] = []  # of each prompt
        self.answers: list[list[int]] = []
        self.owner: list[int] = []  # of each answer: the prompt
        self.groups: list[list[ResponsePair]] = []  # of each prompt
        self.truncated = self.dropped = 0
        self.kept: list[bool] = []  # whether each row of the table, sorted by prompt, is a pair of the set
        if "history" in table:
            prompts.print_unread_tools_warning(tokenizer, table["history"])
        for _, group in table.groupby("prompt_id", sort=True):
            rows = tables.list_records(group)
            try:
                prompt = prompts.encode_prompt_with_history(tokenizer, rows[0]["prompt"], rows[0].get("history", ""))
                sides = [
                    (_encode_side(row, "chosen", tokenizer), _encode_side(row, "rejected", tokenizer)) for row in rows
                ]
            except DataError as error:
                raise DataError(f"comparisons: {rows[0]['prompt_id']}: {error}") from None
            prompt, fitting = self._apply_length_limit(prompt, sides, limit)
            self._add_prompt(prompt, fitting, [_get_preference(row) for row in rows])
        if not self.groups:
            raise DataError(f"no pair is left: all {len(table)} have more tokens than max_length = {limit.tokens}")

    def _apply_length_limit(
        self, prompt: list[int], sides: list[tuple[Tokens, Tokens]], limit: Limit
    ) -> tuple[list[int], list[tuple[Tokens, Tokens] | None]]:
        """The prompt and the pairs of its responses within the limit; None for a pair that is left out."""
        if limit.tokens is None:
            return prompt, [*sides]
        long = [len(prompt) + max(map(len, pair)) > limit.tokens for pair in sides]
        fitting: list[tuple[Tokens, Tokens] | None] = [*sides]
        if limit.truncation == "right":
            room = limit.tokens - len(prompt)
            fitting = (
                [(chosen[:room], rejected[:room]) for chosen, rejected in sides] if room > 0 else [None] * len(sides)
            )
            fitting = [pair if pair and pair[0] != pair[1] else None for pair in fitting]
        elif limit.truncation == "left":
            fitting = [pair if max(map(len, pair)) < limit.tokens else None for pair in sides]
            longest = max((len(side) for pair in fitting if pair for side in pair), default=0)
            prompt = prompt[-(limit.tokens - longest) :]
        else:
            fitting = [None if over else pair for over, pair in zip(long, sides, strict=True)]
        self.dropped += fitting.count(None)
        self.truncated += sum(over and pair is not None for over, pair in zip(long, fitting, strict=True))
        return prompt, fitting

    def _add_prompt(
        self, prompt: list[int], rows: Sequence[tuple[Tokens, Tokens] | None], preferences: Sequence[tuple[int, str]]
    ) -> None:
        self.kept += [row is not None for row in rows]
        if not any(self.kept[len(self.kept) - len(rows) :]):
            return
        self.asked.append(prompt)
        answer_index: dict[Tokens, int] = {}
        pairs = []
        for sides, more in zip(rows, preferences, strict=True):
            if sides is None:
                continue
            for response in sides:
                if response not in answer_index:
                    answer_index[response] = len(self.answers)
                    self.owner.append(len(self.asked) - 1)
                    self.answers.append(list(response))
            pairs.append(ResponsePair(answer_index[sides[0]], answer_index[sides[1]], *more))
        self.groups.append(pairs)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each distinct response with its prompt."""
        return [len(self.asked[owner]) + len(answer) for owner, answer in zip(self.owner, self.answers, strict=True)]

    def check_positions(self, model: PretrainedModel, limited_by: str = "") -> None:
        """DataError with one line where a prompt with one of its responses is longer than the model can read."""
        chat.check_positions(model, self.lengths, "the prompts with their responses", limited_by=limited_by)

    def print_cut_counts(self, stage: str, limit: Limit) -> None:
        """One line on standard error where pairs were above the limit."""
        if self.truncated or self.dropped:
            print(
                f"{stage}: of {len(self.kept)} pairs {self.truncated} were cut off at {stage}.max_length = "
                f"{limit.tokens}, and "
                f"{self.dropped} left out",
                file=sys.stderr,
                flush=True,
            )

    def steps(self, prompts_per_batch: int, epochs: int) -> int:
        """How many batches `batches` gives."""
        return count_batches(len(self.groups), prompts_per_batch, epochs)

    def batches(self, prompts_per_batch: int, epochs: int, seed: int, start: int = 0) -> Iterator[Pairs]:
        """All pairs of a few prompts at a time, prompts shuffled each epoch; from batch `start` on."""
        order = iterate_shuffled_batches(
            len(self.groups), prompts_per_batch, epochs, torch.Generator().manual_seed(seed)
        )
        for picked in islice(order, start, None):
            pairs = [pair for group in picked for pair in self.groups[group]]
            of_ranking = Counter((self.owner[pair.chosen], pair.ranking) for pair in pairs)
            weight = [1 / of_ranking[self.owner[pair.chosen], pair.ranking] for pair in pairs]
            chosen, rejected, level, _ = zip(*pairs, strict=True)
            used = sorted({*chosen, *rejected})
            row = {answer: position for position, answer in enumerate(used)}
            yield Pairs(
                self._make_batch(used),
                torch.tensor(used),
                torch.tensor([row[answer] for answer in chosen]),
                torch.tensor([row[answer] for answer in rejected]),
                torch.tensor(weight),
                torch.tensor(level),
            )

    def responses(self, size: int) -> Iterator[Completions]:
        """Every distinct response once, in order."""
        count = len(self.answers)
        return (self._make_batch(range(start, min(start + size, count))) for start in range(0, count, size))

    def margins(self, scores: torch.Tensor) -> torch.Tensor:
        """The chosen response's score minus the rejected one's, for every comparison in order (P,); `scores` (N,) are
        those of `responses`.
        """
        chosen, rejected = self.get_pair_indices()
        return scores[chosen] - scores[rejected]

    def get_pair_indices(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The places of the chosen and of the rejected response of every comparison, in order: two (P,)."""
        chosen, rejected = torch.tensor([pair[:2] for group in self.groups for pair in group]).unbind(1)
        return chosen, rejected

    def _make_batch(self, rows: Sequence[int]) -> Completions:
        prompt_indices = sorted({self.owner[row] for row in rows})
        row_of_prompt = {prompt: at for at, prompt in enumerate(prompt_indices)}
        owner = [row_of_prompt[self.owner[row]] for row in rows]
        return make_completions(
            [self.asked[prompt] for prompt in prompt_indices], owner, [self.answers[row] for row in rows], self.pad
        )


def _get_preference(row: Record) -> tuple[int, str]:
    """By how much the chosen response is better, and in which ranking."""
    return (row["level"], row["ranking_id"]) if "ranking_id" in row else (get_strength_level(row["strength"]), "")


def _encode_side(row: Record, side: str, tokenizer: Tokenizer) -> Tokens:
    sampled = row.get(f"{side}_tokens")
    if sampled is not None:
        return tuple(sampled)
    if message := row.get(f"{side}_message"):
        prompt = forms.join_prompt(row["prompt"], row.get("history", ""))
        return tuple(conversations.encode_answer(tokenizer, prompt, json.loads(message)))
    return tuple(chat.encode_response(tokenizer, row[side], row[f"{side}_ended"]))

"""A table of comparisons as batches of tokens: the one way in which stages that learn from pairs read it."""

from collections.abc import Iterator, Sequence
from itertools import islice

import pandas as pd
import torch

from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.completions import Completions, make_completions
from tasks.algorithms.language.pairs import Pairs
from tasks.algorithms.language.sequences import batches_per_run, shuffled
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat, prompts
from tasks.language.tables.preferences import STRENGTHS

STRONG = (STRENGTHS[0], STRENGTHS[-1])


class ComparisonSet:
    """Comparisons (schema Comparisons) with their prompts and distinct responses as tokens: the sampled ones where they are known."""

    def __init__(self, table: pd.DataFrame, tokenizer: Tokenizer) -> None:
        self.pad: int = tokenizer.pad_token_id
        self.asked: list[list[int]] = []  # of each prompt
        self.answers: list[list[int]] = []
        self.owner: list[int] = []  # of each answer: the prompt
        self.groups: list[list[tuple[int, int, bool]]] = []  # of each prompt: chosen, rejected, strong
        for _, group in table.groupby("prompt_id", sort=True):
            first = group.iloc[0]
            try:
                self.asked.append(prompts.encode(tokenizer, first["prompt"], first.get("history", "")))
            except DataError as error:
                raise DataError(f"comparisons: {first['prompt_id']}: {error}") from None
            known: dict[tuple[int, ...], int] = {}
            pairs = []
            for row in tables.records(group):
                sides = []
                for side in ("chosen", "rejected"):
                    response = _tokens(row, side, tokenizer)
                    if response not in known:
                        known[response] = len(self.answers)
                        self.owner.append(len(self.asked) - 1)
                        self.answers.append(list(response))
                    sides.append(known[response])
                pairs.append((sides[0], sides[1], row["strength"] in STRONG))
            self.groups.append(pairs)

    def check_positions(self, model: PretrainedModel) -> None:
        """DataError with one line where a prompt with one of its responses is longer than the model can read."""
        lengths = [len(self.asked[owner]) + len(answer) for owner, answer in zip(self.owner, self.answers, strict=True)]
        chat.check_positions(model, lengths, "the prompts with their responses")

    def steps(self, prompts_per_batch: int, epochs: int) -> int:
        """How many batches `batches` gives."""
        return batches_per_run(len(self.groups), prompts_per_batch, epochs)

    def batches(self, prompts_per_batch: int, epochs: int, seed: int, start: int = 0) -> Iterator[Pairs]:
        """All pairs of a few prompts at a time, prompts shuffled each epoch; from batch `start` on."""
        order = shuffled(len(self.groups), prompts_per_batch, epochs, torch.Generator().manual_seed(seed))
        for picked in islice(order, start, None):
            pairs = [(*pair, 1 / len(self.groups[group])) for group in picked for pair in self.groups[group]]
            chosen, rejected, strong, weight = zip(*pairs, strict=True)
            used = sorted({*chosen, *rejected})
            row = {answer: place for place, answer in enumerate(used)}
            yield Pairs(
                self._batch(used),
                torch.tensor(used),
                torch.tensor([row[answer] for answer in chosen]),
                torch.tensor([row[answer] for answer in rejected]),
                torch.tensor(weight),
                torch.tensor(strong),
            )

    def responses(self, size: int) -> Iterator[Completions]:
        """Every distinct response once, in order."""
        count = len(self.answers)
        return (self._batch(range(start, min(start + size, count))) for start in range(0, count, size))

    def margins(self, scores: torch.Tensor) -> torch.Tensor:
        """The chosen response's score minus the rejected one's, for every comparison in order (P,); `scores` (N,) are those of `responses`."""
        chosen, rejected = torch.tensor([pair[:2] for group in self.groups for pair in group]).unbind(1)
        return scores[chosen] - scores[rejected]

    def _batch(self, rows: Sequence[int]) -> Completions:
        asked = sorted({self.owner[row] for row in rows})
        place = {prompt: at for at, prompt in enumerate(asked)}
        owner = [place[self.owner[row]] for row in rows]
        return make_completions(
            [self.asked[prompt] for prompt in asked], owner, [self.answers[row] for row in rows], self.pad
        )


def _tokens(row: Record, side: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    sampled = row.get(f"{side}_tokens")
    return tuple(chat.encode_response(tokenizer, row[side], row[f"{side}_ended"]) if sampled is None else sampled)

"""A table of solutions as batches of labelled tokens: the one way in which reward models of answers and steps read
it.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

import pandas as pd
import torch

from tasks.algorithms.language import labelled_reward_model
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.labelled_reward_model import Labelled
from tasks.algorithms.language.sequences import count_batches, iterate_shuffled_batches
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat, prompts
from tasks.language.data.comparisons import Limit

CLASS_OF = {-1: (1.0, 0.0, 0.0), 0: (0.0, 1.0, 0.0), 1: (0.0, 0.0, 1.0)}  # probabilities of bad, neutral and good


class SolutionSet:
    """Solutions (schema Solutions) as tokens, with a label of each answer (outcome) or of each of its steps (process).

    `kept` says of each row of the table, sorted by prompt, whether it is a solution of the set; `truncated` and
    `dropped` count those that are above the limit, and were cut or left out. A step is labelled with the probabilities
    of its `classes`, or else with that of not being bad.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        tokenizer: Tokenizer,
        limit: Limit,
        objective: Literal["outcome", "process"],
        classes: bool = True,
    ) -> None:
        self.pad: int = tokenizer.pad_token_id
        self.objective = objective
        self.classes = classes
        self.asked: list[list[int]] = []  # of each prompt
        self.rows: list[Record] = []  # of each solution, as it was read
        self.owner: list[int] = []  # of each solution: the prompt
        self.answers: list[list[int]] = []
        self.ends: list[list[int]] = []
        self.groups: list[list[int]] = []  # of each prompt: its solutions
        self.truncated = self.dropped = 0
        self.kept: list[bool] = []
        for _, group in table.groupby("prompt_id", sort=True):
            rows = tables.list_records(group)
            try:
                prompt = prompts.encode_prompt_with_history(tokenizer, rows[0]["prompt"], rows[0].get("history", ""))
            except DataError as error:
                raise DataError(f"solutions: {rows[0]['prompt_id']}: {error}") from None
            self._add_prompt(prompt, rows, limit)
        if not self.groups:
            raise DataError(f"no solution is left: all {len(table)} have more tokens than max_length = {limit.tokens}")

    def _add_prompt(self, prompt: list[int], rows: list[Record], limit: Limit) -> None:
        longest = limit.tokens or sys.maxsize
        if limit.truncation == "left":
            fitting = [len(row["tokens"]) for row in rows if len(row["tokens"]) < longest]
            whole = prompt
            prompt = prompt[-(longest - max(fitting)) :] if fitting else prompt
            self.truncated += len(fitting) * (len(prompt) < len(whole))
        room = longest - len(prompt)
        group = []
        for row in rows:
            answer = [int(token) for token in row["tokens"]]
            ends = [int(end) for end in row["ends"]]
            if len(answer) > room and limit.truncation == "right":
                answer = answer[: max(0, room)]
                ends = [end for end in ends if end < room]
                self.truncated += bool(ends)
            fits = len(answer) <= room and bool(ends)
            self.kept.append(fits)
            self.dropped += not fits
            if fits:
                group.append(len(self.answers))
                self.answers.append(answer)
                self.ends.append(ends)
                self.rows.append(row)
                self.owner.append(len(self.asked))
        if group:
            self.asked.append(prompt)
            self.groups.append(group)

    def check_positions(self, model: PretrainedModel, limited_by: str) -> None:
        """DataError with one line where a prompt with one of its solutions is longer than the model can read."""
        lengths = [len(self.asked[owner]) + len(answer) for owner, answer in zip(self.owner, self.answers, strict=True)]
        chat.check_positions(model, lengths, "the prompts with their solutions", limited_by=limited_by)

    def print_cut_counts(self, stage: str, limit: Limit) -> None:
        """One line on standard error where solutions were above the limit."""
        if self.truncated or self.dropped:
            print(
                f"{stage}: of {len(self.kept)} solutions {self.truncated} were cut off at {stage}.max_length = "
                f"{limit.tokens}, "
                f"and {self.dropped} left out",
                file=sys.stderr,
                flush=True,
            )

    def steps(self, prompts_per_batch: int, epochs: int) -> int:
        """How many batches `batches` gives."""
        return count_batches(len(self.groups), prompts_per_batch, epochs)

    def batches(
        self, prompts_per_batch: int, epochs: int, seed: int, tokens: Literal["all", "last"], start: int = 0
    ) -> Iterator[Labelled]:
        """All solutions to a few prompts at a time, prompts shuffled each epoch; from batch `start` on."""
        order = iterate_shuffled_batches(
            len(self.groups), prompts_per_batch, epochs, torch.Generator().manual_seed(seed)
        )
        for picked in islice(order, start, None):
            yield self._make_batch([row for group in picked for row in self.groups[group]], tokens)

    def iterate_in_order(self, size: int) -> Iterator[Labelled]:
        """Every solution once, in order; of answers the last token alone is labelled."""
        count = len(self.answers)
        return (self._make_batch(range(start, min(start + size, count)), "last") for start in range(0, count, size))

    def targets(self, row: int) -> list[tuple[float, ...]]:
        """The label of each step of a solution: one class, or the share of good roll-outs."""
        solution = self.rows[row]
        count = len(self.ends[row])
        if solution.get("good") is not None:
            probabilities = [(1.0 - share, 0.0, float(share)) for share in solution["good"]][:count]
        else:
            probabilities = [CLASS_OF[int(label)] for label in solution["labels"]][:count]
        return [*probabilities] if self.classes else [(1.0 - bad,) for bad, _, _ in probabilities]

    def _make_batch(self, rows: Sequence[int], tokens: Literal["all", "last"]) -> Labelled:
        prompt_indices = sorted({self.owner[row] for row in rows})
        row_of_prompt = {prompt: at for at, prompt in enumerate(prompt_indices)}
        owner = [row_of_prompt[self.owner[row]] for row in rows]
        answers = [self.answers[row] for row in rows]
        responses = make_completions([self.asked[prompt] for prompt in prompt_indices], owner, answers, self.pad)
        if self.objective == "outcome":
            return labelled_reward_model.label_outcomes(
                responses, [bool(self.rows[row]["right"]) for row in rows], tokens
            )
        return labelled_reward_model.label_steps(
            responses, [self.ends[row] for row in rows], [self.targets(row) for row in rows]
        )

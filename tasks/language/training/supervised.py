"""Supervised fine-tuning on demonstrations: the loss is on what the assistant says, or on all of a plain text.

What the stages `sft` and `sft_control` share.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from pathlib import Path

import pandas as pd
import torch

from tasks.algorithms.common import sharding
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import sft
from tasks.algorithms.language.sequences import (
    SequenceBatch,
    assign_documents_to_rows,
    iterate_length_grouped_batches,
    iterate_shuffled_batches,
    pack_documents,
)
from tasks.common import models, tables
from tasks.common.checkpoints import open_resumable_training
from tasks.common.config import build_settings
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.sft import SupervisedConfig
from tasks.language.data import chat, conversations, forms, prompts
from tasks.language.tables.problems import Demonstrations
from tasks.language.training import architectures, trained_model
from tasks.stage import Metrics

CURVES = {**sft.METRICS, **sft.HELD_OUT_METRICS}
METRICS = {
    **sft.HELD_OUT_METRICS,
    "truncated": "The number of demonstrations that were cut off at max_length.",
    "dropped": "The number of demonstrations that were left out: too long, or with nothing left to learn.",
}


@dataclass(frozen=True)
class Data:
    """Demonstrations to learn from, and held-out ones, by which the loss at the end is measured (schema
    Demonstrations).
    """

    train: pd.DataFrame
    validation: pd.DataFrame


def read_fine_tuning_data(demonstrations: Path, skip: int, count: int) -> Data:
    """`count` demonstrations of the folder behind the first `skip`, and all held-out ones."""
    train = tables.read_table(Demonstrations, demonstrations / "train.parquet").iloc[skip:].head(count)
    return Data(train, tables.read_table(Demonstrations, demonstrations / "validation.parquet"))


def train_supervised(
    stage: str, config: SupervisedConfig, epochs: int, data: Data, inputs: Sequence[Path], out: Path, curves: Path
) -> Metrics:
    """Fine-tune the model in the first of `inputs`, which are all that the stage reads; write it to `out`, its curve to
    `curves`.
    """
    policy = inputs[0]
    torch.manual_seed(config.seed)
    trained = trained_model.load_trainable_model(policy, config.training, config.lora)
    tokenizer = models.load_tokenizer(policy)
    model = trained.model
    learned, held_out = (Encoded(part, tokenizer, config, stage) for part in (data.train, data.validation))
    for name, part in (("demonstrations", learned), ("held-out demonstrations", held_out)):
        chat.check_positions(model, part.lengths, f"the {name}", limited_by=f"{stage}.max_length")
    if config.packing:
        with sharding.hold_unsharded_model(model):
            architectures.check_packing_support(str(policy), model, config.max_length)
    batches = learned.batches(config.batch_size, epochs, config.seed)
    settings = build_settings(config.training, OptimizerSettings)
    optimizer = Optimizer(model, config.learning_rate, len(batches), config.clip, settings)

    def measured() -> dict[str, float]:
        """The held-out loss now; a row of the curve without one repeats the last, of which the first is of before the
        training.
        """
        parts = (held_out.batch(rows) for rows in held_out.batches(config.batch_size, 1, config.seed))
        return sft.measure_held_out_loss_and_accuracy(trained.model, parts)

    def fit(start: int) -> Iterator[Row]:
        every = config.evaluate_every
        before = measured() if every and not start else {}
        rows = (learned.batch(rows) for rows in islice(batches, start, None))
        for step, row in enumerate(sft.fit(model, rows, optimizer, config.training.accumulate), start + 1):
            if every and step % every == 0 and step < len(batches):
                before = measured()
                model.train()
            yield {**row, **before}
            before = {}

    with open_resumable_training(stage, config, *inputs) as training:
        rows = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, len(batches))
        final = measured()
        if config.evaluate_every:
            rows[-1] = {**rows[-1], **final}
        tables.write_curves([*accumulate(map(dict, rows), dict.__or__)], curves)
        trained.save(tokenizer, out)
    return {**final, "truncated": learned.truncated, "dropped": learned.dropped}


MARKER = re.compile(
    r"<([|\uff5c])[^|\uff5c<>\s]+\1>|\[/?INST\]|\[gMASK\]|</?s>|<(?:bos|eos|sop)>|<(?:start|end)_of_turn>"
)  # as templates write control tokens


class Encoded:
    """Demonstrations as tokens, each with a mask of those that are learned, no longer than `max_length`."""

    def __init__(self, table: pd.DataFrame, tokenizer: Tokenizer, config: SupervisedConfig, stage: str = "sft") -> None:
        self.pad: int = tokenizer.pad_token_id
        self.room = config.max_length if config.packing else None
        self.grouped = config.group_by_length
        self.truncated = self.dropped = 0
        self.rows: list[tuple[list[int], list[bool]]] = []
        prompts.print_unread_tools_warning(tokenizer, table["messages"])
        _warn_of_foreign_control_tokens(stage, tokenizer, table["text"])
        for number, row in enumerate(tables.list_records(table)):
            try:
                tokens, learned = encode_demonstration(tokenizer, row["messages"], row["text"], config.learn_end)
            except DataError as error:
                raise DataError(f"demonstrations: row {number} ({row['demonstration_id']}): {error}") from None
            self._add_demonstration(tokens, learned, config)
        if self.dropped or self.truncated:
            print(
                f"{stage}: of {len(table)} demonstrations {self.truncated} were cut off at {stage}.max_length = "
                f"{config.max_length}, "
                f"and {self.dropped} left out",
                file=sys.stderr,
                flush=True,
            )
        if not self.rows:
            raise DataError(
                f"demonstrations: none of {len(table)} is left; all are longer than {stage}.max_length = "
                f"{config.max_length}, "
                "or have nothing to learn"
            )

    def _add_demonstration(self, tokens: list[int], learned: list[bool], config: SupervisedConfig) -> None:
        long = config.max_length is not None and len(tokens) > config.max_length
        if long:
            kept = slice(config.max_length) if config.truncation == "right" else slice(-(config.max_length or 0), None)
            tokens = tokens[kept]
            learned = learned[kept]
        if (long and config.truncation == "drop") or not any(learned[1:]):
            self.dropped += 1
        else:
            self.truncated += long
            self.rows.append((tokens, learned))

    @property
    def lengths(self) -> list[int]:
        """Tokens of each demonstration."""
        return [len(tokens) for tokens, _ in self.rows]

    def batches(self, size: int, epochs: int, seed: int) -> list[list[list[int]]]:
        """All demonstrations, shuffled each epoch, as batches of `size` rows; with packing a row holds several of
        them.
        """
        generator = torch.Generator().manual_seed(seed)
        count = len(self.rows)
        if self.room is None:
            by_length = iterate_length_grouped_batches(self.lengths, size, epochs, generator)
            batches = by_length if self.grouped else iterate_shuffled_batches(count, size, epochs, generator)
            return [[[row] for row in batch] for batch in batches]
        packed_batches: list[list[list[int]]] = []
        for _ in range(epochs):
            order = list(chain.from_iterable(iterate_shuffled_batches(count, size, 1, generator)))
            rows = assign_documents_to_rows(self.lengths, order, self.room)
            packed_batches += [rows[start : start + size] for start in range(0, len(rows), size)]
        return packed_batches

    def batch(self, rows: Sequence[Sequence[int]]) -> SequenceBatch:
        """Rows of demonstrations, by their numbers."""
        return pack_documents([[self.rows[number] for number in row] for row in rows], self.pad)


def _warn_of_foreign_control_tokens(stage: str, tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """A line on standard error where texts have control tokens of another model's template, which are plain characters
    here.
    """
    vocabulary = tokenizer.get_vocab()
    markers = [{match[0] for match in MARKER.finditer(text) if match[0] not in vocabulary} for text in texts]
    if any(markers):
        names = ", ".join(sorted(set().union(*markers))[:5])
        count = sum(map(bool, markers))
        print(
            f"{stage}: in {count:,} texts {names} is plain text: the tokenizer has no such token",
            file=sys.stderr,
            flush=True,
        )


def encode_demonstration(
    tokenizer: Tokenizer, messages: str, text: str, learn_end: bool
) -> tuple[list[int], list[bool]]:
    """A row of Demonstrations as tokens, and which of them are learned: the assistant's, or all of a plain text.

    Without `learn_end` they are learned but for the token that ends them.
    """
    tokens, learned = _encode_with_loss_mask(tokenizer, messages, text)
    if learn_end:
        return tokens, learned
    end = tokenizer.eos_token_id if text else chat.end_token(tokenizer)
    return tokens, [is_learned and token != end for token, is_learned in zip(tokens, learned, strict=True)]


def _encode_with_loss_mask(tokenizer: Tokenizer, messages: str, text: str) -> tuple[list[int], list[bool]]:
    if not text:
        return conversations.encode_conversation(tokenizer, forms.parse_messages_json(messages))
    if tokenizer.eos_token_id is None:
        raise DataError("the tokenizer has no end token; expected an eos_token in tokenizer_config.json")
    tokens = tokenizer(text, add_special_tokens=False)[
        "input_ids"
    ]  # control tokens are what they say: the text may be in the template
    if tokenizer.bos_token_id is not None and tokens[:1] != [tokenizer.bos_token_id]:
        tokens = [tokenizer.bos_token_id, *tokens]
    if tokens[-1] not in (tokenizer.eos_token_id, chat.end_token(tokenizer)):
        tokens = [*tokens, tokenizer.eos_token_id]
    return tokens, [True] * len(tokens)

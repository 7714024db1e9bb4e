"""What the model would read and learn: the chat template, the mask of trained tokens, and lengths against the model's limits."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat
from tasks.language.data.comparisons import ComparisonSet, Limit
from tasks.language.sft import encode
from tasks.preflight.data import POLICIES

Configs = Mapping[str, Any]
TRAINED, PLAIN = "\033[32m", "\033[0m"  # green
LOOKED_AT = 500  # rows, at most
LONGEST = 50  # rows with the most characters, among which is the one with the most tokens


class Spans(NamedTuple):
    """An example as runs of text, each trained or not."""

    parts: list[tuple[str, bool]]

    def coloured(self, colours: bool) -> str:
        """Trained text green, or in brackets where there are no colours."""
        start, end = (TRAINED, PLAIN) if colours else ("[[", "]]")
        return "".join(f"{start}{text}{end}" if trained else text for text, trained in self.parts)


def spans(tokenizer: Tokenizer, tokens: Sequence[int], learned: Sequence[bool]) -> Spans:
    """A row of tokens as runs of text."""
    parts: list[tuple[list[int], bool]] = []
    for token, trained in zip(tokens, learned, strict=True):
        if not parts or parts[-1][1] != trained:
            parts.append(([], trained))
        parts[-1][0].append(token)
    return Spans([(tokenizer.decode(run, skip_special_tokens=False), trained) for run, trained in parts])


def demonstrations(
    tokenizer: Tokenizer, rows: Sequence[Mapping[str, str]], max_length: int | None, context: int | None
) -> Iterator[str]:
    """Lines on the mask and the lengths of demonstrations; DataError where a row has nothing to learn, does not end, or does not fit."""
    ends, lengths = {chat.end_token(tokenizer), tokenizer.eos_token_id}, []
    for row in rows[:LOOKED_AT]:
        try:
            tokens, learned = encode(tokenizer, row["messages"], row["text"])
        except DataError as error:
            raise DataError(f"demonstrations: {row['demonstration_id']}: {error}") from None
        if not any(learned[1:]):
            raise DataError(f"demonstrations: {row['demonstration_id']} has no token that is trained")
        if not any(trained and token in ends for token, trained in zip(tokens, learned, strict=True)):
            raise DataError(
                f"demonstrations: {row['demonstration_id']}: no end token is trained: the model would not learn to stop"
            )
        lengths.append(len(tokens))
    yield f"template and mask: the end token is trained in each of {len(lengths)} demonstrations"
    longest = sorted(rows, key=lambda row: len(row["messages"]) + len(row["text"]))[-LONGEST:]
    most = max(len(encode(tokenizer, row["messages"], row["text"])[0]) for row in longest)
    if context is not None and max_length is None and most > context:
        raise DataError(
            f"demonstrations: the longest has {most} tokens, more than the model's {context} positions; set sft.max_length"
        )
    limit = max_length or context
    yield f"demonstrations: {_spread(lengths)} tokens{_above(lengths, limit, 'sft.max_length or the context')}"


def answers(
    tokenizer: Tokenizer, asked: Sequence[Mapping[str, str]], configs: Configs, sections: Sequence[str]
) -> Iterator[str]:
    """For each of the sections, which answer what is asked, how many of the reference responses it would cut off."""
    references = [row["solution"] for row in asked if row["solution"]][:LOOKED_AT]
    lengths = [len(chat.encode_response(tokenizer, text)) for text in references]
    if not lengths or not sections:
        return
    yield f"references: {_spread(lengths)} tokens"
    for section in sections:
        cut = sum(length > configs[section].max_new_tokens for length in lengths)
        share = 100 * cut / len(lengths)
        note = f" ({share:.0f} %)" if cut else ""
        yield f"{section}.max_new_tokens = {configs[section].max_new_tokens} would cut off {cut} of {len(lengths)} references{note}"


def mixed(lengths: Sequence[int], context: int | None, configs: Configs, stages: Sequence[str]) -> Iterator[str]:
    """The lengths of the mixture's prompts; DataError where a stage could not answer the longest of them."""
    if not lengths:
        return
    yield f"mixture: prompts of {_spread(lengths)} tokens"
    for section in POLICIES:
        if section in stages and context is not None and max(lengths) + configs[section].max_new_tokens > context:
            raise DataError(
                f"mixture: the longest prompt has {max(lengths)} tokens, with {section}.max_new_tokens = "
                f"{configs[section].max_new_tokens} more than the model's {context} positions"
            )


def tested(lengths: Sequence[int], context: int | None, config: Any) -> Iterator[str]:
    """The lengths of the test prompts, and how many would be left out; DataError where all would."""
    if not lengths:
        return
    yield f"evaluate: test prompts of {_spread(lengths)} tokens"
    above = 0 if context is None else sum(length + config.max_new_tokens > context for length in lengths)
    what = f"with evaluate.max_new_tokens = {config.max_new_tokens} more than the model's {context} positions"
    if above == len(lengths):
        raise DataError(f"evaluate: the shortest test prompt has {min(lengths)} tokens, {what}")
    if above:
        yield f"evaluate: {above} of {len(lengths)} test prompts would be left out: {what}"


def paired(
    tokenizer: Tokenizer, pairs: Sequence[Record], context: int | None, configs: Configs, stages: Sequence[str]
) -> Iterator[str]:
    """How long the longest pairs are; DataError where a stage that learns from pairs could not read them."""
    wanted = [section for section in ("reward_model", "dpo") if section in stages]
    if not pairs or not wanted:
        return
    length = {
        id(row): sum(len(row.get(name, "")) for name in ("history", "prompt", "chosen", "rejected")) for row in pairs
    }
    longest = pd.DataFrame(sorted(pairs, key=lambda row: -length[id(row)])[:LONGEST])
    for section in wanted:
        limit = Limit(configs[section].max_length, configs[section].truncation)
        found = ComparisonSet(longest, tokenizer, limit).lengths
        yield f"{section}: the longest prompt with a response has {max(found)} tokens"
        if context is not None and max(found) > context:
            raise DataError(
                f"{section}: the longest prompt with a response has {max(found)} tokens, more than the model's {context} "
                f"positions; expected at most {context}: set {section}.max_length"
            )


def _spread(lengths: Sequence[int]) -> str:
    return f"{min(lengths)} to {max(lengths)}, in the middle {statistics.median(lengths):.0f}"


def _above(lengths: Sequence[int], limit: int | None, what: str) -> str:
    if limit is None:
        return ""
    above = sum(length > limit for length in lengths)
    return (
        f"; {above} of {len(lengths)} are longer than {what} = {limit}" if above else f"; none is longer than {limit}"
    )

"""What the model would read and learn: the chat template, the mask of trained tokens, and lengths against the model's limits."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat
from tasks.language.sft import encode

Configs = Mapping[str, Any]
TRAINED, PLAIN = "\033[32m", "\033[0m"  # green
LOOKED_AT = 500  # rows, at most
POLICIES = ("rejection_sft", "reinforce", "ppo", "grpo")


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


def demonstrations(tokenizer: Tokenizer, rows: Sequence[Mapping[str, str]], limit: int | None) -> Iterator[str]:
    """Lines on the mask and the lengths of demonstrations; DataError where a row has nothing to learn or does not end."""
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
    yield f"demonstrations: {_spread(lengths)} tokens{_above(lengths, limit, 'sft.max_length or the context')}"


def answers(tokenizer: Tokenizer, references: Sequence[str], configs: Configs, stages: Sequence[str]) -> Iterator[str]:
    """For each stage that samples, how many reference responses its max_new_tokens would cut off."""
    lengths = [len(chat.encode_response(tokenizer, text)) for text in references[:LOOKED_AT]]
    if not lengths:
        return
    yield f"references: {_spread(lengths)} tokens"
    for section in (*POLICIES, "responses", "evaluate"):
        if any(name.split("@")[0] == section for name in stages):
            cut = sum(length > configs[section].max_new_tokens for length in lengths)
            share = 100 * cut / len(lengths)
            note = f" ({share:.0f} %)" if cut else ""
            yield f"{section}.max_new_tokens = {configs[section].max_new_tokens} would cut off {cut} of {len(lengths)} references{note}"


def prompts(
    encoded: Sequence[Sequence[int]], context: int | None, configs: Configs, stages: Sequence[str]
) -> Iterator[str]:
    """Lengths of the prompts; DataError where a stage could not answer the longest of them."""
    lengths = [len(one) for one in encoded]
    if not lengths:
        return
    yield f"prompts: {_spread(lengths)} tokens"
    for section in POLICIES:
        if section in stages and context is not None and max(lengths) + configs[section].max_new_tokens > context:
            raise DataError(
                f"mixture: the longest prompt has {max(lengths)} tokens, with {section}.max_new_tokens = "
                f"{configs[section].max_new_tokens} more than the model's {context} positions"
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

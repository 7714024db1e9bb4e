"""What the model would read and learn: the chat template, the mask of trained tokens, and lengths against the model's
limits.
"""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd

from tasks.common.errors import DataError
from tasks.common.terminal import escape_control_characters
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat
from tasks.language.data.comparisons import ComparisonSet, Limit
from tasks.language.data.prompts import encode_prompt_rows
from tasks.language.training.supervised import encode_demonstration

# green
TRAINED = "\033[32m"
PLAIN = "\033[0m"
LOOKED_AT = 500  # rows, at most
FATES = {"right": "cut off at the end", "left": "cut off at the beginning", "drop": "left out"}  # by truncation


class Spans(NamedTuple):
    """An example as runs of text, each trained or not."""

    parts: list[tuple[str, bool]]

    def mark_trained_text(self, colours: bool) -> str:
        """Trained text green, or in brackets where there are no colours."""
        start, end = (TRAINED, PLAIN) if colours else ("[[", "]]")
        return "".join(
            f"{start}{escape_control_characters(text)}{end}" if trained else escape_control_characters(text)
            for text, trained in self.parts
        )


def split_into_spans(tokenizer: Tokenizer, tokens: Sequence[int], learned: Sequence[bool]) -> Spans:
    """A row of tokens as runs of text."""
    parts: list[tuple[list[int], bool]] = []
    for token, trained in zip(tokens, learned, strict=True):
        if not parts or parts[-1][1] != trained:
            parts.append(([], trained))
        parts[-1][0].append(token)
    return Spans([(tokenizer.decode(run, skip_special_tokens=False), trained) for run, trained in parts])


def measure_demonstration_lengths(
    tokenizer: Tokenizer, rows: Sequence[Mapping[str, str]], config: Any, context: int | None
) -> tuple[list[int], list[str]]:
    """Lengths of demonstrations, and lines on them and their mask; DataError where a row has nothing to learn, does not
    end or does not fit.
    """
    ends = {chat.end_token(tokenizer), tokenizer.eos_token_id}
    lengths = []
    for row in select_rows_to_check(rows, "messages", "text"):
        try:
            tokens, learned = encode_demonstration(tokenizer, row["messages"], row["text"], config.learn_end)
        except DataError as error:
            raise DataError(f"demonstrations: {row['demonstration_id']}: {error}") from None
        if not any(learned[1:]):
            raise DataError(f"demonstrations: {row['demonstration_id']} has no token that is trained")
        ended = any(trained and token in ends for token, trained in zip(tokens, learned, strict=True))
        if config.learn_end and not ended:
            raise DataError(
                f"demonstrations: {row['demonstration_id']}: no end token is trained: the model would not learn to stop"
            )
        lengths.append(len(tokens))
    lines = [
        f"template and mask: the end token is trained in each of {len(lengths)} demonstrations"
        if config.learn_end
        else (
            "template and mask: the end token is not trained, since sft.learn_end is false: the model does not "
            "learn to stop"
        ),
        f"demonstrations: {_format_length_range(lengths)} "
        f"tokens{_describe_lengths_above_limit(lengths, 'sft', config, context)}",
    ]
    return _cap_lengths(lengths, config), lines


def measure_pair_lengths(
    tokenizer: Tokenizer, rows: Sequence[Mapping[str, Any]], section: str, config: Any, context: int | None
) -> tuple[list[int], str]:
    """Lengths of pairs, each the prompt with its longer response, and a line on them; DataError where one does not
    fit.
    """
    comparisons = ComparisonSet(pd.DataFrame(select_rows_to_check(rows, "prompt", "chosen", "rejected")), tokenizer)
    lengths = [
        len(prompt) + max(len(comparisons.answers[side]) for side in pair[:2])
        for prompt, group in zip(comparisons.asked, comparisons.groups, strict=True)
        for pair in group
    ]
    return (
        _cap_lengths(lengths, config),
        f"{section}: pairs of {_format_length_range(lengths)} "
        f"tokens{_describe_lengths_above_limit(lengths, section, config, context)}",
    )


def encode_first_fitting_pair(tokenizer: Tokenizer, rows: Sequence[Mapping[str, Any]], config: Any) -> list[Spans]:
    """The first pair that is short enough, as the stage of `config` learns it: the prompt with its chosen response,
    then with its rejected one.

    The log-probabilities of the trained tokens are what the pair is told apart by. Empty where the stage would leave
    all of them out.
    """
    limit = Limit(config.max_length, config.truncation)
    with suppress(DataError):
        shown = ComparisonSet(
            pd.DataFrame(select_rows_to_check(rows, "prompt", "chosen", "rejected")), tokenizer, limit
        )
        prompt = shown.asked[0]
        first = shown.groups[0][0]
        answers = (shown.answers[side] for side in (first.chosen, first.rejected))
        return [
            split_into_spans(tokenizer, [*prompt, *answer], [False] * len(prompt) + [True] * len(answer))
            for answer in answers
        ]
    return []


def measure_prompt_lengths(
    tokenizer: Tokenizer, what: str, rows: Sequence[Mapping[str, Any]], sections: Mapping[str, Any], context: int | None
) -> tuple[list[int], list[str]]:
    """Lengths of prompts, and lines on them and their references, for the sections that answer them.

    DataError where a policy could not answer the longest prompt; `evaluate` leaves such problems out, unless all are.
    """
    seen = select_rows_to_check(rows, "question", "history")
    lengths = [len(tokens) for tokens in encode_prompt_rows(tokenizer, seen)]
    references = [len(chat.encode_response(tokenizer, row["solution"])) for row in seen if row["solution"]]
    lines = [f"{what}: {_format_length_range(lengths)} tokens"]
    if references:
        lines[0] += f"; their references: {_format_length_range(references)}"
    for section, config in sections.items():
        most = config.max_new_tokens
        if long := sum(context is not None and length + most > context for length in lengths):
            limits = f"with {section}.max_new_tokens = {most} more than the model's {context} positions"
            if section != "evaluate":
                raise DataError(f"{what}: the longest has {max(lengths)} tokens, {limits}")
            if long == len(lengths):
                raise DataError(f"{what}: the shortest has {min(lengths)} tokens, {limits}")
            lines.append(f"{long} of {len(lengths)} {what} have {limits}, and would be left out")
        if cut := sum(length > most for length in references):
            lines.append(
                f"{section}.max_new_tokens = {most} would cut off {cut} of {len(references)} references "
                f"({100 * cut / len(references):.0f} %)"
            )
    return lengths, lines


def select_rows_to_check(rows: Sequence[Mapping[str, Any]], *texts: str) -> list[Mapping[str, Any]]:
    """The first rows, and the one with most characters in the columns `texts`: it decides whether all fit."""
    longest = max(rows, key=lambda row: sum(len(row.get(text) or "") for text in texts))
    first = [*rows[:LOOKED_AT]]
    return first if any(row is longest for row in first) else [*first[:-1], longest]


def _format_length_range(lengths: Sequence[int]) -> str:
    return f"{min(lengths)} to {max(lengths)}, in the middle {statistics.median(lengths):.0f}"


def _cap_lengths(lengths: Sequence[int], config: Any) -> list[int]:
    return [min(length, config.max_length or length) for length in lengths]


def _describe_lengths_above_limit(lengths: Sequence[int], section: str, config: Any, context: int | None) -> str:
    """What becomes of those above the section's max_length; DataError where there are more tokens than the model has
    positions.
    """
    if context is not None and (longest := max(_cap_lengths(lengths, config))) > context:
        raise DataError(
            f"{section}: the longest example has {longest} tokens, and the model {context} positions; expected "
            f"{section}.max_length = {context} or less"
        )
    if above := sum(config.max_length is not None and length > config.max_length for length in lengths):
        return (
            f"; {above} of {len(lengths)} are longer than {section}.max_length = {config.max_length} and would "
            f"be {FATES[config.truncation]}"
        )
    return ""

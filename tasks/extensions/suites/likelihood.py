"""The log-likelihood of each choice behind the question, as lm-evaluation-harness computes it (its task type
multiple_choice).

A choice is tokenized together with its context, behind a space, and what comes behind the context's own tokens is the
choice. What a model cannot read is cut off from the left.
"""

from collections.abc import Iterator, Sequence

import torch

from tasks.algorithms.language import completions
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.common import tracking
from tasks.common.tokenizers import Tokenizer
from tasks.extensions.suites import prompting
from tasks.extensions.suites.suite import Suite, SuiteProblem
from tasks.language.data import chat

Tokens = list[int]
Pairs = list[tuple[Tokens, list[Tokens]]]  # a context and its choices


def encode_contexts_and_choices(
    suite: Suite, tokenizer: Tokenizer, problems: Sequence[SuiteProblem], examples: Sequence[SuiteProblem]
) -> Pairs:
    """Context and choices of each problem as tokens."""
    encoded_problems = []
    for problem in problems:
        context = prompting.build_prompt_text(suite, problem, examples)
        before = prompting.tokenize_plain_text(tokenizer, context)
        wholes = [prompting.tokenize_plain_text(tokenizer, f"{context} {text}") for _, text in problem.choices]
        encoded_problems.append((before, [whole[len(before) :] for whole in wholes]))
    return encoded_problems


def count_truncated_contexts(encoded_problems: Pairs, room: int | None) -> int:
    """Of how many contexts the beginning is not read, since a choice behind them would be beyond the model's `room`
    positions.
    """
    lengths = [len(context) + max(map(len, choices)) - 1 for context, choices in encoded_problems]
    return 0 if room is None else sum(length > room for length in lengths)


@torch.no_grad()
def iterate_choice_log_likelihoods(
    model: PretrainedCausalLM, encoded_problems: Pairs, pad: int, batch_size: int
) -> Iterator[list[float]]:
    """For each context the log-likelihoods of its choices, in order; `batch_size` contexts at a time."""
    room = chat.get_max_positions(model)
    starts = range(0, len(encoded_problems), batch_size)
    for start in tracking.iterate_with_progress(iter(starts), len(starts)):
        batch = encoded_problems[start : start + batch_size]
        longest = (
            max(len(context) for context, _ in batch)
            + max(len(choice) for _, choices in batch for choice in choices)
            - 1
        )
        if room is None or longest <= room:
            values = _compute_batch_log_likelihoods(model, batch, pad)
            for _, choices in batch:
                yield values[: len(choices)]
                del values[: len(choices)]
        else:
            for context, choices in batch:
                yield [
                    _compute_batch_log_likelihoods(
                        model, [(_truncate_context(context, choice, room), [choice[-room:]])], pad
                    )[0]
                    for choice in choices
                ]


def _truncate_context(context: Tokens, choice: Tokens, room: int) -> Tokens:
    """The end of the context that fits before the choice, whose last token is not read; one token at least."""
    return context[-max(1, room + 1 - len(choice)) :]


def _compute_batch_log_likelihoods(model: PretrainedCausalLM, batch: Pairs, pad: int) -> list[float]:
    owner = [row for row, (_, choices) in enumerate(batch) for _ in choices]
    answers = [choice for _, choices in batch for choice in choices]
    made = completions.make_completions([context for context, _ in batch], owner, answers, pad)
    return [float(value) for value in completions.compute_response_logps(model, made).double().cpu()]

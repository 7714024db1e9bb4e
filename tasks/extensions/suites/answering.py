"""A policy's answers to a suite's problems, each scored: rows of the table Answers."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.common import tracking
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.extensions.suites import likelihood, prompting, scoring
from tasks.extensions.suites.suite import Suite, SuiteProblem
from tasks.language.data import chat
from tasks.language.rewards import answers
from tasks.language.rewards.verifier import Verifier


@dataclass(frozen=True)
class AnswerSampling:
    """How a policy answers."""

    seed: int
    samples: int  # at `temperature`, besides the greedy answer; 0: none
    temperature: float
    max_new_tokens: int
    batch_size: int
    strip_thinking: bool


def filter_fitting_problems(
    suite: Suite,
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    problems: Sequence[SuiteProblem],
    examples: Sequence[SuiteProblem],
    max_new_tokens: int,
) -> list[SuiteProblem]:
    """The problems after which the model has positions left for an answer; a line on standard error tells of the
    others.
    """
    room = chat.get_max_positions(model)
    if room is None or suite.scoring == "likelihood":
        return [*problems]
    lengths = [len(tokens) for tokens in prompting.encode_suite_prompts(suite, tokenizer, problems, examples)]
    kept = [problem for problem, length in zip(problems, lengths, strict=True) if length + max_new_tokens <= room]
    if not kept:
        raise DataError(
            f"{suite.title}: the shortest prompt has {min(lengths)} tokens, and max_new_tokens = {max_new_tokens}: "
            "together more than "
            f"the {room} positions of the model"
        )
    if len(kept) < len(problems):
        print(
            f"{suite.title}: {len(problems) - len(kept)} of {len(problems)} problems are left out: with "
            "max_new_tokens = "
            f"{max_new_tokens} their prompts do not fit into the {room} positions of the model",
            file=sys.stderr,
            flush=True,
        )
    return kept


def answer_and_score_problems(
    suite: Suite,
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    problems: Sequence[SuiteProblem],
    examples: Sequence[SuiteProblem],
    sampling: AnswerSampling,
    verifier: Verifier,
) -> pd.DataFrame:
    """All answers: the greedy ones, or those that are likeliest, then the samples."""
    if suite.scoring == "likelihood":
        return pd.DataFrame(
            list(_iterate_likelihood_rows(suite, model, tokenizer, problems, examples, sampling.batch_size))
        )
    prompts = prompting.encode_suite_prompts(suite, tokenizer, problems, examples)
    counts = {0.0: 1, **({sampling.temperature: sampling.samples} if sampling.samples else {})}
    rows: list[Record] = []
    for part, (temperature, samples) in enumerate(counts.items()):
        with tracking.show_progress_as_part(part, len(counts)):
            rows += _iterate_generated_rows(
                suite, model, tokenizer, problems, prompts, sampling, verifier, temperature, samples
            )
    return pd.DataFrame(rows)


def _iterate_likelihood_rows(
    suite: Suite,
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    problems: Sequence[SuiteProblem],
    examples: Sequence[SuiteProblem],
    batch_size: int,
) -> Iterator[Record]:
    encoded_problems = likelihood.encode_contexts_and_choices(suite, tokenizer, problems, examples)
    if cut := likelihood.count_truncated_contexts(encoded_problems, room := chat.get_max_positions(model)):
        print(
            f"{suite.title}: {cut} of {len(encoded_problems)} prompts do not fit into the {room} positions of the "
            "model with their choices, and "
            "are read without their beginning",
            file=sys.stderr,
            flush=True,
        )
    values = likelihood.iterate_choice_log_likelihoods(model, encoded_problems, tokenizer.pad_token_id, batch_size)
    for problem, log_likelihoods, (_, choices) in zip(problems, values, encoded_problems, strict=True):
        chosen = scoring.select_most_likely_choice(problem, log_likelihoods)
        chosen_index = [label for label, _ in problem.choices].index(chosen.chosen)
        yield {
            "problem_id": problem.problem_id,
            "temperature": 0.0,
            "sample": 0,
            "response": "\n".join(
                f"{value:.2f}  {label}. {text}"
                for value, (label, text) in zip(log_likelihoods, problem.choices, strict=True)
            ),
            "extracted": chosen.chosen,
            "right": chosen.right,
            "by_method": json.dumps({scoring.LENGTH_NORMALISED: chosen.right_normalised}),
            "length": len(choices[chosen_index]),
            "ended": True,
        }


def _iterate_generated_rows(
    suite: Suite,
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    problems: Sequence[SuiteProblem],
    prompts: list[list[int]],
    sampling: AnswerSampling,
    verifier: Verifier,
    temperature: float,
    samples: int,
) -> Iterator[Record]:
    drawn = rollouts.sample_rollouts(
        model,
        prompts,
        samples=samples,
        max_new_tokens=sampling.max_new_tokens,
        temperature=temperature,
        end_tokens=chat.end_tokens(model, tokenizer),
        seed=sampling.seed,
        batch_size=sampling.batch_size,
    )
    starts = range(0, len(problems), sampling.batch_size)
    for start, batch in zip(starts, tracking.iterate_with_progress(drawn, len(starts)), strict=True):
        ended = batch.ended.tolist()
        whole = [
            chat.decode_response(tokenizer, *completion) for completion in zip(batch.responses(), ended, strict=True)
        ]
        texts = [answers.remove_thinking_blocks(text) if sampling.strip_thinking else text for text in whole]
        texts = [prompting.truncate_at_stop(suite.prompt, text) for text in texts]
        row_problems = [problems[start + row // samples] for row in range(len(texts))]
        judged = scoring.judge_responses(suite, row_problems, texts, verifier, compared=temperature == 0)
        lengths = batch.mask.sum(dim=1).tolist()
        for row, (problem, text, verdict) in enumerate(zip(row_problems, texts, judged, strict=True)):
            yield {
                "problem_id": problem.problem_id,
                "temperature": temperature,
                "sample": row % samples,
                "response": text,
                "extracted": verdict.extracted,
                "right": verdict.right,
                "timed_out": verdict.timed_out,
                "by_method": json.dumps(verdict.by_method) if temperature == 0 else "",
                "length": lengths[row],
                "ended": ended[row],
            }

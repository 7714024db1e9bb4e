"""The answers that all budgets are drawn from: a model's greedy answer to each problem, and its samples, each sampled
once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from transformers import AutoModelForCausalLM

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.common import model_files, models, tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import iterate_with_progress
from tasks.extensions.search.configs.search import SearchConfig
from tasks.language.data import chat, prompts
from tasks.language.reporting import judging, measures
from tasks.language.rewards import answers
from tasks.language.rewards.verifier import Verifier
from tasks.language.tables.problems import Problems
from tasks.language.training import architectures


@dataclass(frozen=True)
class TestPrompts:
    """The test problems, with their prompts as tokens."""

    problems: list[Record]
    prompts: list[list[int]]


def load_test_prompts(config: SearchConfig, problems: Path, tokenizer: Tokenizer) -> TestPrompts:
    """The first test problems; DataError with one line where one has no answer to compare with."""
    rows = tables.list_records(tables.read_table(Problems, problems / "test.parquet").head(config.problems))
    if without := [row["problem_id"] for row in rows if not row["answer"]]:
        raise DataError(
            f"{problems / 'test.parquet'}: {without[0]} has no answer; search expects one to each test problem"
        )
    return TestPrompts(rows, prompts.encode_prompt_rows(tokenizer, rows))


def load_sampling_policy(policy: Path, tokenizer: Tokenizer) -> PretrainedCausalLM:
    """A policy that shares the tokenizer; DataError with one line where it does not, or is no model that can be sampled
    from.
    """
    if model_files.load_tokenizer(policy).get_vocab() != tokenizer.get_vocab():
        raise DataError(
            f"{policy}: the tokenizer differs from that of the policy that searches; expected one for all models"
        )
    architectures.check_architecture_config({"pretrained_model_name_or_path": policy, "local_files_only": True})
    model: PretrainedCausalLM = model_files.load_checked_model(AutoModelForCausalLM, policy)
    architectures.check_shared_prompt_sampling(str(policy), model)
    return models.prepare_model_on_device(model, tokenizer)


def check_prompt_positions(config: SearchConfig, model: PretrainedModel, problem_set: TestPrompts) -> None:
    """DataError with one line where the longest prompt with its answer goes beyond the positions of a policy, or of a
    reward model.
    """
    lengths = [*map(len, problem_set.prompts)]
    chat.check_positions(model, lengths, "the prompts", config.max_new_tokens, "search.max_new_tokens")


def sample_answers(
    config: SearchConfig,
    name: str,
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    problem_set: TestPrompts,
    verifier: Verifier,
) -> pd.DataFrame:
    """The greedy answers and the samples of one model, without the reward models' scores (schema SampledAnswers)."""
    check_prompt_positions(config, model, problem_set)
    rows = [
        {"model": name, **row}
        for temperature, samples in ((0.0, 1), (config.temperature, config.samples))
        for row in _iterate_sampled_answers(config, model, tokenizer, problem_set, temperature, samples)
    ]
    table = pd.DataFrame(rows)
    golds = {problem["problem_id"]: problem["answer"] for problem in problem_set.problems}
    texts = table.pop("text")
    verdicts = judging.judge_answers(table["problem_id"].map(golds).tolist(), texts.tolist(), verifier)
    table["right"] = verdicts["strict"]
    table["vote"] = -1
    for problem_id, problem_rows in table.groupby("problem_id"):
        given_votes, _ = measures.collect_answer_votes(
            texts[problem_rows.index].tolist(),
            problem_rows["right"].tolist(),
            golds[str(problem_id)],
            answers.find_strict_answer_number,
        )
        numbers = {vote: number for number, vote in enumerate(dict.fromkeys(v for v in given_votes if v is not None))}
        table.loc[problem_rows.index, "vote"] = [-1 if vote is None else numbers[vote] for vote in given_votes]
    return table


def _iterate_sampled_answers(
    config: SearchConfig,
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    problem_set: TestPrompts,
    temperature: float,
    samples: int,
) -> Iterator[Record]:
    drawn = rollouts.sample_rollouts(
        model,
        problem_set.prompts,
        samples=samples,
        max_new_tokens=config.max_new_tokens,
        temperature=temperature,
        end_tokens=chat.end_tokens(model, tokenizer),
        seed=config.seed,
        batch_size=config.batch_size,
    )
    number = 0
    for batch in iterate_with_progress(drawn, -(-len(problem_set.prompts) // config.batch_size)):
        logps = batch.logps.masked_fill(~batch.mask, 0.0).double().sum(dim=1).tolist()
        for tokens, ended, logp in zip(batch.responses(), batch.ended.tolist(), logps, strict=True):
            yield {
                "problem_id": problem_set.problems[number // samples]["problem_id"],
                "greedy": temperature == 0,
                "sample": number % samples,
                "tokens": tokens,
                "logp": min(logp, 0.0),
                "likelihood": min(logp, 0.0) / len(tokens),
                "ended": ended,
                "text": chat.decode_response(tokenizer, tokens, ended),
            }
            number += 1

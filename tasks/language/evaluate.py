"""Evaluation of one policy on test problems: greedy and sampled answers, each scored in every way, with 95 % intervals.

Rows of the table of generations are one answer each; the metrics are means over problems. Strict accuracy asks for the
`#### N` line at the end, lenient accuracy only for the right last number: a policy may gain the first by form alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import Field

from tasks import artifacts, prompts, schemas, tracking
from tasks.algorithms import completions, estimates, reward_model, rollouts, rubric
from tasks.algorithms.equations import parse_number
from tasks.algorithms.estimates import Estimate
from tasks.stage import Config, Metrics, main

GREEDY = -1  # the number of the greedy answer among a problem's samples
ANSWERS: dict[str, Callable[[str], str | None]] = {"strict": rubric.strict_answer, "lenient": rubric.lenient_answer}


class EvaluateConfig(Config):
    """How much is sampled, and how."""

    seed: int
    problems: int = Field(ge=1)  # the first so many of the test table
    samples: int = Field(ge=1)  # a problem, besides the greedy answer
    temperature: float = Field(gt=0)
    pass_at: list[int]  # k of pass@k, each at most `samples`
    max_new_tokens: int = Field(ge=1)
    batch_size: int = Field(ge=1)  # problems in one batch
    bootstrap: int = Field(ge=1)  # resamples behind an interval


@dataclass(frozen=True)
class Models:
    """The policy with its tokenizer, and what it is held against."""

    policy: Any
    reference: Any
    scorer: Any
    tokenizer: Any


def run(
    config: EvaluateConfig, policy: Path, reference: Path, reward_model: Path, problems: Path, out: Path
) -> Metrics:
    """Generate, score and summarise; writes `out`/generations.parquet."""
    if bad := [k for k in config.pass_at if not 1 <= k <= config.samples]:
        raise SystemExit(
            f"params.yaml: evaluate.pass_at: {bad[0]} is not within 1 and evaluate.samples, {config.samples}"
        )
    models = Models(
        artifacts.load_model(policy),
        artifacts.load_model(reference),
        artifacts.load_reward_model(reward_model),
        _shared_tokenizer(policy, reference, reward_model),
    )
    asked = artifacts.read(schemas.Problems, problems / "test.parquet").head(config.problems)
    generations = pd.DataFrame(list(_generations(config, models, asked)))
    artifacts.write(schemas.Generations, generations, out / "generations.parquet")
    tracking.log_table(generations[generations["sample"] == GREEDY].head(50), "greedy.json")
    references = dict(zip(asked["problem_id"], asked["answer"], strict=True))
    return {name: asdict(estimate) for name, estimate in summary(generations, references, config).items()}


def _shared_tokenizer(policy: Path, *others: Path) -> Any:
    """The policy's tokenizer; log-ratios and rewards of its tokens mean nothing to a model with another vocabulary."""
    tokenizer = artifacts.load_tokenizer(policy)
    for other in others:
        if artifacts.load_tokenizer(other).get_vocab() != tokenizer.get_vocab():
            raise SystemExit(f"{policy} and {other}: the tokenizers differ, so their models cannot be compared")
    return tokenizer


def _generations(config: EvaluateConfig, models: Models, asked: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One row for each answer: all greedy ones, then all sampled ones."""
    encoded = [prompts.encode_prompt(models.tokenizer, question) for question in asked["question"]]
    problems = asked.to_dict("records")
    batches = -(-len(asked) // config.batch_size)
    drawn = chain(
        _answers(config, models, encoded, samples=1, temperature=0.0),
        _answers(config, models, encoded, samples=config.samples, temperature=config.temperature),
    )
    for index, batch in enumerate(tracking.progress(drawn, 2 * batches)):
        samples = 1 if index < batches else config.samples
        first = index % batches * config.batch_size
        kl, reward = _held_against(models, encoded[first : first + config.batch_size], batch, samples)
        for row, tokens in enumerate(batch.responses()):
            owner = first + row // samples
            text, ended = prompts.decode(models.tokenizer, tokens), bool(batch.ended[row])
            yield {
                "problem_id": problems[owner]["problem_id"],
                "sample": GREEDY if index < batches else row % samples,
                "response": text,
                "length": len(tokens),
                "ended": ended,
                **_judged(problems[owner], text, ended),
                "reward": float(reward[row]),
                "kl": float(kl[row]),
            }


def _answers(
    config: EvaluateConfig, models: Models, encoded: list[list[int]], samples: int, temperature: float
) -> Iterator[rollouts.Rollouts]:
    return rollouts.sample(
        models.policy,
        encoded,
        samples=samples,
        max_new_tokens=config.max_new_tokens,
        temperature=temperature,
        end_tokens=prompts.end_tokens(models.policy, models.tokenizer),
        seed=config.seed,
        batch_size=config.batch_size,
    )


@torch.no_grad()
def _held_against(
    models: Models, asked: list[list[int]], batch: rollouts.Rollouts, samples: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-ratio to the reference and reward of each response: (N,), (N,).

    The log-ratio is summed over the response's tokens. Over responses sampled from the policy its mean is an unbiased
    estimate of the sequence's KL divergence (k1; single ones may be negative); over greedy ones it is no KL.
    Responses of like length go through the models together: padding was 40 % of the work.
    """
    whole = batch.completions(asked, models.tokenizer.pad_token_id)
    ratio, reward = batch.logps.sum(dim=1), torch.zeros(len(whole))
    for rows in whole.mask.sum(dim=1).argsort(stable=True).chunk(samples):
        part = whole.rows(rows)
        ratio[rows] -= completions.response_logps(models.reference, part).cpu()
        reward[rows] = reward_model.score(models.scorer, part).cpu()
    return ratio, reward


def _judged(problem: Mapping[Any, Any], text: str, ended: bool) -> dict[str, Any]:
    score = rubric.score(problem["question"], problem["solution"], problem["answer"], text, ended)
    right = {
        name: (given := find(text)) is not None and rubric.same_number(given, problem["answer"])
        for name, find in ANSWERS.items()
    }
    points = {"correctness": score.correctness, "reasoning": score.reasoning, "clarity": score.clarity}
    return {**right, **points, "rubric": score.total}


def summary(generations: pd.DataFrame, references: Mapping[str, str], config: EvaluateConfig) -> dict[str, Estimate]:
    """Every metric over problems: shares with Wilson's interval, other means with a bootstrap one."""
    greedy = generations[generations["sample"] == GREEDY].set_index("problem_id")
    sampled = generations[generations["sample"] != GREEDY]
    k = config.samples
    result: dict[str, Estimate] = {}
    for name, find in ANSWERS.items():
        correct = sampled.groupby("problem_id")[name].sum().to_numpy()
        result[f"{name}_greedy"] = estimates.share(greedy[name].to_numpy(dtype=float))
        result[f"{name}_mean_at_{k}"] = estimates.share(correct / k)
        for at in config.pass_at:
            result[f"{name}_pass_at_{at}"] = estimates.share(estimates.pass_at_k(correct, k, at))
        result[f"{name}_majority_at_{k}"] = estimates.share(_majorities(sampled, references, find))
    result["ended_greedy"] = estimates.share(greedy["ended"].to_numpy(dtype=float))
    result["ended_sampled"] = estimates.share(_means(sampled, "ended"))
    for column in ("rubric", "correctness", "reasoning", "clarity", "reward", "length"):
        result[f"{column}_greedy"] = estimates.bootstrap(greedy[column], config.seed, config.bootstrap)
        result[f"{column}_sampled"] = estimates.bootstrap(_means(sampled, column), config.seed, config.bootstrap)
    result["kl_sampled"] = estimates.bootstrap(_means(sampled, "kl"), config.seed, config.bootstrap)
    return result


def _means(sampled: pd.DataFrame, column: str) -> NDArray[np.float64]:
    return sampled.groupby("problem_id")[column].mean().to_numpy(dtype=np.float64)


def _majorities(sampled: pd.DataFrame, references: Mapping[str, str], find: Callable[[str], str | None]) -> list[float]:
    def value(answer: str | None) -> Fraction | None:
        return None if answer is None else parse_number(answer.rstrip("%"))

    return [
        estimates.majority([value(find(text)) for text in texts], value(references[str(problem_id)]))
        for problem_id, texts in sampled.groupby("problem_id")["response"]
    ]


if __name__ == "__main__":
    main(run)

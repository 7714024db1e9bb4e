"""Evaluation of one policy on test problems: greedy answers, and samples at several temperatures, each scored in every way.

How often a sampled answer is right depends on the temperature as much as on the policy: one that is merely more certain
wins at temperature 1. So every policy also answers at its own best temperature, chosen on validation problems; 0 stands
for greedy answers, which need no samples.
Strict accuracy asks for the `#### N` line at the end, lenient accuracy only for the right final answer, whatever its form
(verifier.py, as the verifiable reward does): a policy may gain the first by form alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tasks.algorithms.language import completions, reward_model, rollouts
from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.common import estimates, models, tables, tracking
from tasks.common.errors import DataError
from tasks.common.estimates import Estimate
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.evaluate import EvaluateConfig
from tasks.language.data import chat
from tasks.language.reporting import measures
from tasks.language.rewards import answers, reward_model_files, rubric
from tasks.language.rewards.verifier import Verifier
from tasks.language.tables.evaluation import Generations, Measures
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

ESTIMATES = {
    **measures.METRICS,
    "strict_validation_T": f"The share of the answers at T to validation problems that {measures.RIGHT['strict']}; the T with the highest is best_temperature.",
}
METRICS = {
    "best_temperature": "The policy's best temperature, chosen on validation problems; 0 stands for greedy answers.",
    **{f"{name}/ESTIMATE": text for name, text in ESTIMATES.items()},
}


@dataclass(frozen=True)
class Models:
    """The policy with its tokenizer, the reference that it is compared with, and the reward model, if there is one."""

    policy: PretrainedCausalLM
    reference: PretrainedModel
    scorer: PretrainedModel | None
    tokenizer: Tokenizer


def run(
    config: EvaluateConfig, policy: Path, reference: Path, reward_model: Path, problems: Path, out: Path
) -> Metrics:
    """Generate, score and summarise; writes `out`/generations.parquet and measures.parquet, one value a problem and metric."""
    scored = (reward_model / "config.json").is_file()
    loaded = Models(
        models.load_model(policy),
        models.load_model(reference),
        reward_model_files.load(reward_model) if scored else None,
        _shared_tokenizer(policy, reference, *([reward_model] if scored else [])),
    )
    validation = tables.read(Problems, problems / "validation.parquet").head(config.validation_problems)
    asked = tables.read(Problems, problems / "test.parquet").head(config.problems)
    lengths = [len(tokens) for table in (validation, asked) for tokens in _encode(loaded, table)]
    for model in (loaded.policy, loaded.reference, loaded.scorer):
        if model is not None:
            chat.check_positions(model, lengths, "the prompts", config.max_new_tokens, "evaluate.max_new_tokens")
    chosen = choice(config, loaded, validation)
    best = best_temperature(chosen)
    with Verifier() as verifier:
        generations = pd.DataFrame(list(_generations(config, loaded, verifier, asked, best)))
    tables.write(Generations, generations, out / "generations.parquet")
    tracking.log_table(generations[generations["temperature"] == 0].head(50), "greedy.json")

    named = {**{measures.label(t): t for t in config.temperatures}, measures.BEST: best}
    references = dict(zip(asked["problem_id"], asked["answer"], strict=True))
    values = measures.per_problem(generations, references, named, config.pass_at)
    long = values.rename_axis("problem_id").reset_index().melt("problem_id", var_name="metric")
    tables.write(Measures, long, out / "measures.parquet")
    found = {
        **measures.summary(values, config.seed, config.bootstrap),
        **measures.accuracy_by_stratum(generations, {"greedy": 0.0, **named}, config.seed, config.bootstrap),
        **measures.ranking(generations, named, config.seed, config.bootstrap),
        **{f"strict_validation_{measures.label(t)}": estimate for t, estimate in chosen.items()},
    }
    return {"best_temperature": best, **{name: asdict(estimate) for name, estimate in found.items()}}


def _shared_tokenizer(policy: Path, *others: Path) -> Tokenizer:
    """The policy's tokenizer; log-ratios and rewards of its tokens mean nothing to a model with another vocabulary."""
    tokenizer = models.load_tokenizer(policy)
    for other in others:
        if models.load_tokenizer(other).get_vocab() != tokenizer.get_vocab():
            raise DataError(f"{policy} and {other}: the tokenizers differ, so their models cannot be compared")
    return tokenizer


def choice(config: EvaluateConfig, loaded: Models, asked: pd.DataFrame) -> dict[float, Estimate]:
    """Strict accuracy of one answer to the validation problems `asked`, by candidate temperature."""
    encoded = _encode(loaded, asked)
    counts = {t: config.validation_samples if t else 1 for t in config.candidates}
    drawn = chain.from_iterable(_answers(config, loaded, encoded, k, t) for t, k in counts.items())
    with tracking.part(0, 2):
        batches = list(tracking.progress(drawn, len(counts) * -(-len(asked) // config.batch_size)))
    answered = (one for batch in batches for one in zip(batch.responses(), batch.ended.tolist(), strict=True))
    found = {}
    for temperature, k in counts.items():
        references = asked["answer"].repeat(k)
        own = islice(answered, len(references))
        texts = (_text(config, loaded, *one) for one in own)
        right = [_strict(text, reference) for text, reference in zip(texts, references, strict=True)]
        found[temperature] = estimates.share(np.reshape(right, (-1, k)).mean(axis=1))
    return found


def best_temperature(accuracies: Mapping[float, Estimate]) -> float:
    """The temperature with the highest mean accuracy; of equals the lowest."""
    return min(accuracies, key=lambda temperature: (-accuracies[temperature].mean, temperature))


def _encode(loaded: Models, asked: pd.DataFrame) -> list[list[int]]:
    return [chat.encode_prompt(loaded.tokenizer, question) for question in asked["question"]]


def _generations(
    config: EvaluateConfig, loaded: Models, verifier: Verifier, asked: pd.DataFrame, best: float
) -> Iterator[Record]:
    """One row for each answer: all greedy ones, then all samples of each temperature, each temperature drawn once."""
    encoded = _encode(loaded, asked)
    problems = tables.records(asked)
    temperatures = sorted({0.0, *config.temperatures, best})
    starts = range(0, len(asked), config.batch_size)
    drawn = chain.from_iterable(
        _answers(config, loaded, encoded, config.samples if temperature else 1, temperature)
        for temperature in temperatures
    )
    places = ((temperature, first) for temperature in temperatures for first in starts)
    with tracking.part(1, 2):
        for batch in tracking.progress(drawn, len(temperatures) * len(starts)):
            temperature, first = next(places)
            samples = config.samples if temperature else 1
            scores = _scores(loaded, encoded[first : first + config.batch_size], batch, samples, temperature)
            answered = [*zip(batch.responses(), batch.ended.tolist(), strict=True)]
            texts = [_text(config, loaded, *one) for one in answered]
            golds = [problems[first + row // samples]["answer"] for row in range(len(texts))]
            verdicts = verifier(golds, texts)
            for row, ((tokens, ended), text) in enumerate(zip(answered, texts, strict=True)):
                problem = problems[first + row // samples]
                yield {
                    "problem_id": problem["problem_id"],
                    "temperature": temperature,
                    "sample": row % samples,
                    "response": text,
                    "length": len(tokens),
                    "ended": ended,
                    **{name: belongs(text) for name, belongs in measures.STRATA.items()},
                    **_judged(problem, text, ended, verdicts[row]),
                    **{name: float(values[row]) for name, values in scores.items()},
                }


def _answers(
    config: EvaluateConfig, loaded: Models, encoded: list[list[int]], samples: int, temperature: float
) -> Iterator[rollouts.Rollouts]:
    return rollouts.sample(
        loaded.policy,
        encoded,
        samples=samples,
        max_new_tokens=config.max_new_tokens,
        temperature=temperature,
        end_tokens=chat.end_tokens(loaded.policy, loaded.tokenizer),
        seed=config.seed,
        batch_size=config.batch_size,
    )


@torch.no_grad()
def _scores(
    loaded: Models, asked: list[list[int]], batch: rollouts.Rollouts, samples: int, temperature: float
) -> dict[str, torch.Tensor]:
    """For each response `kl`, the log-ratio to the reference, and `reward`, where there is a reward model: (N,) each.

    The log-ratio is summed over the response's tokens, with both models at the temperature that was sampled from. Over
    responses sampled from the policy its mean is an unbiased estimate of the sequence's KL divergence (k1; single ones may
    be negative); over greedy ones, where both are at temperature 1, it is no KL.
    Responses of similar length go through the models together: padding was 40 % of the work.
    """
    whole = batch.completions(asked, loaded.tokenizer.pad_token_id)
    scores = {"kl": batch.logps.sum(dim=1)}
    if loaded.scorer is not None:
        scores["reward"] = torch.zeros(len(whole))
    for rows in whole.mask.sum(dim=1).argsort(stable=True).chunk(samples):
        part = whole.rows(rows)
        scores["kl"][rows] -= completions.token_logps(loaded.reference, part, temperature or 1.0).sum(dim=1).cpu()
        if loaded.scorer is not None:
            scores["reward"][rows] = reward_model.score(loaded.scorer, part).cpu()
    return scores


def _text(config: EvaluateConfig, loaded: Models, tokens: list[int], ended: bool) -> str:
    text = chat.decode(loaded.tokenizer, tokens, ended)
    return answers.without_thinking(text) if config.strip_thinking else text


def _strict(text: str, answer: str) -> bool:
    given = answers.strict_answer(text)
    return given is not None and answers.same_number(given, answer)


def _judged(problem: Record, text: str, ended: bool, verdict: float) -> Record:
    score = rubric.score(problem["question"], problem["solution"], problem["answer"], text, ended)
    points = {"correctness": score.correctness, "reasoning": score.reasoning, "clarity": score.clarity}
    right = {"strict": _strict(text, problem["answer"]), "lenient": verdict == 1.0}
    return {**right, **points, "rubric": score.total}


if __name__ == "__main__":
    main(run)

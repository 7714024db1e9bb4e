"""Evaluation of one policy on test problems: greedy answers, and samples at several temperatures, each scored in every
way.

How often a sampled answer is right depends on the temperature as much as on the policy: one that is merely more certain
wins at temperature 1. So every policy also answers at its own best temperature, chosen on validation problems; 0 stands
for greedy answers, which need no samples. Strict accuracy asks for the `#### N` line at the end, lenient accuracy only
for the right final answer, whatever its form (verifier.py, as the verifiable reward does): a policy may gain the first
by form alone.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

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
from tasks.language.data import chat, prompts
from tasks.language.data.comparisons import ComparisonSet, Limit
from tasks.language.data.test_sets import read_held_out_pairs, read_or_fetch_test_problems, read_validation_problems
from tasks.language.reporting import judging, measures, rescored_rollouts
from tasks.language.reporting.held_out import compute_pair_preferences, compute_reference_losses
from tasks.language.rewards import answers, reward_model_files
from tasks.language.rewards.verifier import Verifier
from tasks.language.tables.evaluation import Generations, Measures
from tasks.language.tables.problems import OTHER_KINDS, Problems
from tasks.stage import Metrics, main

ESTIMATES = {
    **measures.METRICS,
    **{
        f"{measure}_greedy_{name}": f"The share of the greedy answers to {text} that {meaning}."
        for measure, meaning in (("strict", measures.RIGHT["strict"]), ("gold", "are what a reader wants (gold)"))
        for name, text in OTHER_KINDS.items()
    },
    "strict_validation_T": f"The share of the answers at T to validation problems that {measures.RIGHT['strict']}; "
    "the T with the highest is best_temperature.",
    "pair_likelihood": "The share of the held-out pairs whose chosen response has the higher log-probability a "
    "token; a tie counts half.",
    "pair_accuracy": "The share of the held-out pairs whose chosen response gained more log-probability over the "
    "reference; a tie counts half, so the reference itself has 0.5.",
}
METRICS = {
    "best_temperature": "The policy's best temperature, chosen on validation problems; 0 stands for greedy "
    "answers. Without answers to compare with there is none.",
    "asked": "The number of test problems.",
    "too_long": "The number of test problems that were left out, since the prompt, max_new_tokens and the model's "
    "positions do not fit; there where there are any.",
    **{f"{name}/ESTIMATE": text for name, text in ESTIMATES.items()},
}


@dataclass(frozen=True)
class Models:
    """The policy with its tokenizer, and where there are any the reference that it is compared with and the reward
    model.
    """

    policy: PretrainedCausalLM
    reference: PretrainedModel | None
    scorer: PretrainedModel | None
    tokenizer: Tokenizer


def run(
    config: EvaluateConfig,
    policy: Path,
    reference: Path,
    reward_model: Path,
    problems: Path,
    asked: Path,
    pairs: Path,
    curve: Path,
    out: Path,
) -> Metrics:
    """Generate, score and summarise what policy `policy` answers.

    Writes to `out` all that the report says of the policy: the test problems (asked.parquet), generations.parquet,
    measures.parquet with one value a problem and metric, evaluation.json, the curve of its training, and of a policy
    trained by reward what it sampled on the way. `asked` are test problems that do not come from `problems`; `pairs`
    has held-out comparisons, or nothing. A `reference` without a model leaves out what is measured against it.
    """
    loaded = load_evaluated_models(policy, reference, reward_model)
    full_table = read_or_fetch_test_problems(config, problems, asked)
    table = select_fitting_problems(config, loaded, full_table)
    tables.write_table(Problems, table, out / "asked.parquet")
    metrics = evaluate_on_test_set(config, loaded, table, problems, out)
    if config.source == "problems":
        metrics |= evaluate_on_other_kinds(config, loaded, problems, out)
    if len(table) < len(full_table):
        metrics["too_long"] = len(full_table) - len(table)
    if (held_out := read_held_out_pairs(pairs)) is not None:
        compared = ComparisonSet(held_out, loaded.tokenizer, Limit(chat.get_max_positions(loaded.policy), "drop"))
        pair_values = compute_pair_preferences(loaded.policy, loaded.reference, compared)
        metrics |= {name: asdict(estimates.estimate_share(values)) for name, values in pair_values.items()}
    (out / "evaluation.json").write_text(json.dumps(metrics, indent=1) + "\n")
    rescored_rollouts.write_rescored_rollouts(policy, loaded.policy, loaded.reference, loaded.tokenizer, out)
    if curve.is_file():
        shutil.copyfile(curve, out / "curve.csv")
    return metrics


def load_evaluated_models(policy: Path, reference: Path, reward_model: Path) -> Models:
    """The models of the folders that hold one."""
    compared, scored = ((path / "config.json").is_file() for path in (reference, reward_model))
    return Models(
        models.load_model(policy),
        models.load_model(reference) if compared else None,
        reward_model_files.load_reward_model(reward_model) if scored else None,
        _load_shared_tokenizer(policy, *([reference] if compared else []), *([reward_model] if scored else [])),
    )


def select_fitting_problems(config: EvaluateConfig, loaded: Models, problems: pd.DataFrame) -> pd.DataFrame:
    """The test problems after which every model has positions left for an answer; a line on standard error tells of
    others.
    """
    limits = [
        chat.get_max_positions(model) for model in (loaded.policy, loaded.reference, loaded.scorer) if model is not None
    ]
    room = min((limit for limit in limits if limit is not None), default=None)
    if room is None:
        return problems
    lengths = [len(tokens) for tokens in _encode_prompts(loaded, problems)]
    fits = [length + config.max_new_tokens <= room for length in lengths]
    if not any(fits):
        raise DataError(
            f"evaluate: the shortest test prompt has {min(lengths)} tokens, and evaluate.max_new_tokens = "
            f"{config.max_new_tokens}: together more than the {room} positions of the models"
        )
    if not all(fits):
        print(
            f"evaluate: {fits.count(False)} of {len(fits)} test problems are left out: with evaluate.max_new_tokens = "
            f"{config.max_new_tokens} their prompts do not fit into the {room} positions of the models",
            file=sys.stderr,
            flush=True,
        )
    return problems[fits]


def evaluate_on_test_set(
    config: EvaluateConfig, loaded: Models, test_set: pd.DataFrame, problems: Path, out: Path
) -> dict[str, Any]:
    """Answers to the problems `test_set`, with every measure that they allow: right answers need a reference to compare
    with.
    """
    unknown = test_set["problem_id"][test_set["answer"] == ""]
    answered = unknown.empty
    if 0 < len(unknown) < len(test_set):
        print(
            f"evaluate: {len(unknown)} of {len(test_set)} test problems have no answer, the first of them "
            f"{unknown.iloc[0]}: without "
            "an answer to each nothing is counted as right or wrong",
            file=sys.stderr,
            flush=True,
        )
    validation = read_validation_problems(config, problems) if answered else None
    with Verifier() as verifier:
        chosen = (
            {}
            if validation is None
            else score_candidate_temperatures(
                config, loaded, select_fitting_problems(config, loaded, validation), verifier
            )
        )
        best = select_best_temperature(chosen) if chosen else None
        drawn = _iterate_scored_answers(config, loaded, verifier if answered else None, test_set, best)
        generations = pd.DataFrame(list(drawn))
    tracking.announce_phase("scoring")
    tables.write_table(Generations, generations, out / "generations.parquet")
    tracking.record_table(generations[generations["temperature"] == 0].head(50), "greedy.json")

    named = {measures.format_temperature_suffix(t): t for t in config.temperatures} | (
        {} if best is None else {measures.BEST: best}
    )
    references = dict(zip(test_set["problem_id"], test_set["answer"], strict=True))
    values = measures.compute_problem_measures(generations, references, named, config.pass_at)
    if not answered and (test_set["solution"] != "").all():
        values["reference_loss"] = pd.Series(
            compute_reference_losses(
                loaded.policy, loaded.tokenizer, _encode_prompts(loaded, test_set), test_set["solution"].tolist()
            ),
            test_set["problem_id"],
        )
    long = values.rename_axis("problem_id").reset_index().melt("problem_id", var_name="metric")
    tables.write_table(Measures, long, out / "measures.parquet")
    metric_estimates = {
        **measures.summarise_measures(values, config.seed, config.bootstrap),
        **measures.compute_ranking_accuracies(generations, named, config.seed, config.bootstrap),
        **{f"strict_validation_{measures.format_temperature_suffix(t)}": estimate for t, estimate in chosen.items()},
    }
    numbers: dict[str, Any] = {name: asdict(estimate) for name, estimate in metric_estimates.items()}
    return {**({} if best is None else {"best_temperature": best}), "asked": len(test_set), **numbers}


def evaluate_on_other_kinds(config: EvaluateConfig, loaded: Models, problems: Path, out: Path) -> dict[str, Any]:
    """Greedy accuracy on the small test sets of another kind, where the folder has them; the answers are in
    other_kinds.parquet.
    """
    files = {name: problems / f"{name}.parquet" for name in OTHER_KINDS}
    sets = {name: tables.read_table(Problems, file) for name, file in files.items() if file.is_file()}
    if not sets:
        return {}
    test_set = select_fitting_problems(config, loaded, pd.concat(sets.values(), ignore_index=True))
    greedy = config.model_copy(update={"temperatures": []})
    alone = replace(loaded, reference=None, scorer=None)
    with Verifier() as verifier:
        generations = pd.DataFrame(list(_iterate_scored_answers(greedy, alone, verifier, test_set, None)))
    tables.write_table(Generations, generations, out / "other_kinds.parquet")
    kinds = generations["problem_id"].str.rpartition("-")[0]
    return {
        f"{metric}_greedy_{name}": asdict(estimates.estimate_share(generations[metric][kinds == name].astype(float)))
        for name in OTHER_KINDS
        for metric in ("strict", "gold")
        if metric in generations and (kinds == name).any()
    }


def _load_shared_tokenizer(policy: Path, *others: Path) -> Tokenizer:
    """The policy's tokenizer; log-ratios and rewards of its tokens mean nothing to a model with another vocabulary."""
    tokenizer = models.load_tokenizer(policy)
    for other in others:
        if models.load_tokenizer(other).get_vocab() != tokenizer.get_vocab():
            raise DataError(f"{policy} and {other}: the tokenizers differ, so their models cannot be compared")
    return tokenizer


def score_candidate_temperatures(
    config: EvaluateConfig, loaded: Models, validation_set: pd.DataFrame, verifier: Verifier
) -> dict[float, Estimate]:
    """Strict accuracy of one answer to the validation problems `validation_set`, by candidate temperature."""
    encoded = _encode_prompts(loaded, validation_set)
    counts = {t: config.validation_samples if t else 1 for t in config.candidates}
    tracking.announce_phase("choosing the temperature")
    drawn = chain.from_iterable(_sample_answers(config, loaded, encoded, k, t) for t, k in counts.items())
    with tracking.show_progress_as_part(0, 2):
        batches = list(
            tracking.iterate_with_progress(drawn, len(counts) * -(-len(validation_set) // config.batch_size))
        )
    answered = (answer for batch in batches for answer in zip(batch.responses(), batch.ended.tolist(), strict=True))
    accuracies = {}
    for temperature, k in counts.items():
        references = validation_set["answer"].repeat(k)
        sampled = islice(answered, len(references))
        texts = (_decode_answer(config, loaded, *answer) for answer in sampled)
        right = judging.judge_answers(list(references), list(texts), verifier)["strict"]
        accuracies[temperature] = estimates.estimate_share(np.reshape(right, (-1, k)).mean(axis=1))
    return accuracies


def select_best_temperature(accuracies: Mapping[float, Estimate]) -> float:
    """The temperature with the highest mean accuracy; of equals the lowest."""
    return min(accuracies, key=lambda temperature: (-accuracies[temperature].mean, temperature))


def _encode_prompts(loaded: Models, problems: pd.DataFrame) -> list[list[int]]:
    return prompts.encode_prompt_rows(loaded.tokenizer, tables.list_records(problems))


def _iterate_scored_answers(
    config: EvaluateConfig, loaded: Models, verifier: Verifier | None, test_set: pd.DataFrame, best: float | None
) -> Iterator[Record]:
    """One row for each answer: all greedy ones, then all samples of each temperature, each temperature drawn once.

    Without a verifier no answer is right or wrong. The rubric is for problems in GSM8K's form only.
    """
    encoded = _encode_prompts(loaded, test_set)
    problems = tables.list_records(test_set)
    temperatures = sorted({0.0, *config.temperatures, *([] if best is None else [best])})
    graded = judging.can_apply_rubric(test_set)
    read = judging.can_judge_manner(test_set)
    starts = range(0, len(test_set), config.batch_size)
    drawn = chain.from_iterable(_answer_at_temperature(config, loaded, encoded, t) for t in temperatures)
    batch_positions = ((temperature, first) for temperature in temperatures for first in starts)
    with tracking.show_progress_as_part(
        *((0, 1) if best is None else (1, 2))
    ):  # the other half was the choice of `best`
        for batch in tracking.iterate_with_progress(drawn, len(temperatures) * len(starts)):
            temperature, first = next(batch_positions)
            samples = config.samples if temperature else 1
            scores = _compute_kl_and_reward(
                loaded, encoded[first : first + config.batch_size], batch, samples, temperature
            )
            answered = [*zip(batch.responses(), batch.ended.tolist(), strict=True)]
            texts = [_decode_answer(config, loaded, *answer) for answer in answered]
            golds = [problems[first + row // samples]["answer"] for row in range(len(texts))]
            right = judging.judge_answers(golds, texts, verifier) if verifier else {}
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
                    **{name: bool(verdicts[row]) for name, verdicts in right.items()},
                    **(judging.compute_rubric_points(problem, text, ended) if graded else {}),
                    **(judging.score_manner_and_gold(problem, text, ended) if read else {}),
                    **{name: float(values[row]) for name, values in scores.items()},
                }


def _answer_at_temperature(
    config: EvaluateConfig, loaded: Models, encoded: list[list[int]], temperature: float
) -> Iterator[rollouts.Rollouts]:
    tracking.announce_phase(f"sampled answers at temperature {temperature:g}" if temperature else "greedy answers")
    return _sample_answers(config, loaded, encoded, config.samples if temperature else 1, temperature)


def _sample_answers(
    config: EvaluateConfig, loaded: Models, encoded: list[list[int]], samples: int, temperature: float
) -> Iterator[rollouts.Rollouts]:
    return rollouts.sample_rollouts(
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
def _compute_kl_and_reward(
    loaded: Models, encoded: list[list[int]], batch: rollouts.Rollouts, samples: int, temperature: float
) -> dict[str, torch.Tensor]:
    """For each response `kl`, the log-ratio to the reference, and `reward`: (N,) each, where there are such models.

    The log-ratio is summed over the response's tokens, with both models at the temperature that was sampled from. Over
    responses sampled from the policy its mean is an unbiased estimate of the sequence's KL divergence (k1; single ones
    may be negative); over greedy ones, where both are at temperature 1, it is no KL. Responses of similar length go
    through the models together: padding was 40 % of the work.
    """
    whole = batch.completions(encoded, loaded.tokenizer.pad_token_id)
    scores = {"kl": batch.logps.sum(dim=1)} if loaded.reference is not None else {}
    if loaded.scorer is not None:
        scores["reward"] = torch.zeros(len(whole))
    for rows in whole.mask.sum(dim=1).argsort(stable=True).chunk(samples):
        part = whole.rows(rows)
        if loaded.reference is not None:
            scores["kl"][rows] -= (
                completions.compute_token_logps(loaded.reference, part, temperature or 1.0).sum(dim=1).cpu()
            )
        if loaded.scorer is not None:
            scores["reward"][rows] = reward_model.score_responses(loaded.scorer, part).cpu()
    return scores


def _decode_answer(config: EvaluateConfig, loaded: Models, tokens: list[int], ended: bool) -> str:
    text = chat.decode_response(loaded.tokenizer, tokens, ended)
    return answers.remove_thinking_blocks(text) if config.strip_thinking else text


if __name__ == "__main__":
    main(run)

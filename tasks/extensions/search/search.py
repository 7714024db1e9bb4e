"""Test-time scaling: what a policy reaches with more answers to each problem, by votes, by choice among samples, and by
beam search.

Each model samples once. All budgets and methods take subsets of the same samples (tasks/extensions/search). Where
there is a small model too, the page says where search with it beats the larger one's greedy answer.
"""

from pathlib import Path

import pandas as pd

from tasks.common import models, pages, tables, tracking
from tasks.common.tokenizers import Tokenizer
from tasks.extensions.search import methods, sampling, scoring, search_page
from tasks.extensions.search.beam import Search
from tasks.extensions.search.configs.search import SearchConfig
from tasks.extensions.search.methods import MethodCurve
from tasks.extensions.search.policy_steps import Steps
from tasks.extensions.search.sampling import TestPrompts
from tasks.extensions.search.tables import Accuracies, SampledAnswers
from tasks.language.data import chat
from tasks.language.reporting import judging
from tasks.language.rewards.verifier import Verifier
from tasks.stage import Metrics, main

SMALL = "small"
METRICS = {
    "MODEL/weights": "The number of the model's weights.",
    "MODEL/distinct": "The share of the sampled answers that equal no earlier one to the same problem, from 0 to "
    "1: what reward models have to read.",
    "MODEL/greedy/ESTIMATE": "The share of the problems whose greedy answer is right.",
    "MODEL/pass_at_K/ESTIMATE": "The probability that at least one of K samples is right (unbiased): what a "
    "perfect choice would reach.",
    "MODEL/majority_at_K/ESTIMATE": "The share of the problems where the commonest of K answers is right; ties by "
    "chance, a mean over all subsets.",
    "MODEL/weighted_SCORE_at_K/ESTIMATE": "The same share where votes weigh what the score says; a mean over "
    "random subsets.",
    "MODEL/best_SCORE_at_K/ESTIMATE": "The share of the problems where the sample with the highest score of K is "
    "right; a mean over all subsets.",
    "MODEL/beam_at_K/ESTIMATE": "The share of the problems where beam search that starts from K first steps ends "
    "in a right answer.",
    "MODEL/beam_at_K/tokens": "The number of tokens that such a beam search generates for a problem, "
    "dropped ones included.",
    "MODEL/tokens": "The mean length of a sampled answer in tokens.",
}
ESTIMATE = ("accuracy", "low", "high")


def run(
    config: SearchConfig, policy: Path, problems: Path, reward_model: Path, models_folder: Path, out: Path
) -> Metrics:
    """Write answers.parquet, accuracies.parquet and the page search.html; `policy` is compared with the model `small`
    of `models_folder`.
    """
    tokenizer = models.load_tokenizer(policy)
    problem_set = sampling.load_test_prompts(config, problems, tokenizer)
    scorers = scoring.load_reward_models(reward_model, models_folder, tokenizer)
    for scorer in scorers.values():
        sampling.check_prompt_positions(config, scorer, problem_set)
    searched = {policy.name: policy}
    if (models_folder / SMALL / "config.json").is_file():
        searched[SMALL] = models_folder / SMALL
    answers = []
    lines = dict[str, list[MethodCurve]]()
    numbers = dict[str, Metrics]()
    with Verifier() as verifier:
        for part, (name, folder) in enumerate(searched.items()):
            with tracking.show_progress_as_part(part, len(searched)):
                model = sampling.load_sampling_policy(folder, tokenizer)
                samples = sampling.sample_answers(config, name, model, tokenizer, problem_set, verifier)
                samples = scoring.add_score_columns(samples, scorers, problem_set, tokenizer.pad_token_id)
                lines[name] = [
                    methods.build_greedy_curve(samples),
                    *methods.iterate_sampling_curves(methods.Samples.of(samples), config.subsets, config.seed),
                ]
                if "process" in scorers and config.beam_widths:
                    steps = Steps(config, model, scorers["process"], tokenizer, problem_set)
                    beams = {width * config.beam_expansions: steps.search(width) for width in config.beam_widths}
                    lines[name].append(build_judged_beam_curve(beams, problem_set, steps, tokenizer, verifier))
            answers.append(samples)
            numbers[name] = {"weights": model.num_parameters(), **summarize_samples(samples)}
    accuracies = pd.concat([methods.build_accuracy_table(name, model_lines) for name, model_lines in lines.items()])
    tables.write_table(SampledAnswers, pd.concat(answers), out / "answers.parquet")
    tables.write_table(Accuracies, accuracies, out / "accuracies.parquet")
    log_accuracy_curves(accuracies)
    figures, shown = search_page.build_search_page(config, accuracies, lines, numbers, problem_set)
    pages.write_report_pages(Path(__file__).parent / "templates", "search", shown, figures, out)
    return {
        name: {**model_numbers, **summarize_accuracies(accuracies[accuracies["model"] == name])}
        for name, model_numbers in numbers.items()
    }


def build_judged_beam_curve(
    beams: dict[int, list[Search]], problem_set: TestPrompts, steps: Steps, tokenizer: Tokenizer, verifier: Verifier
) -> MethodCurve:
    """The beam searches' answers, right or wrong."""
    golds = [problem["answer"] for problem in problem_set.problems]
    right = {}
    for budget, searches in beams.items():
        tokens = [search.kept[0].tokens for search in searches]
        texts = [
            chat.decode_response(tokenizer, answer_tokens, answer_tokens[-1] in steps.ends) for answer_tokens in tokens
        ]
        right[budget] = judging.judge_answers(golds, texts, verifier)["strict"]
    return methods.build_beam_curve(beams, right)


def summarize_samples(answers: pd.DataFrame) -> dict[str, float]:
    """What is said of a model's samples as a whole."""
    samples = answers[~answers["greedy"]]
    keys = pd.DataFrame({"problem_id": samples["problem_id"], "tokens": samples["tokens"].map(tuple)})
    return {"tokens": float(samples["tokens"].map(len).mean()), "distinct": float((~keys.duplicated()).mean())}


def summarize_accuracies(accuracies: pd.DataFrame) -> dict[str, Metrics]:
    """METRICS of one model; ties by chance, but for beam search, where the earlier candidate is kept."""
    metrics: dict[str, Metrics] = {}
    for row in tables.list_records(accuracies):
        if row["ties"] == methods.FIRST and row["method"] != "beam":
            continue
        name = row["method"] if row["method"] == "greedy" else f"{row['method']}_at_{row['budget']}"
        estimate = {"mean" if key == "accuracy" else key: row[key] for key in ESTIMATE}
        metrics[name] = {**estimate, **({"tokens": row["tokens"]} if row["method"] == "beam" else {})}
    return metrics


def log_accuracy_curves(accuracies: pd.DataFrame) -> None:
    """One curve of accuracy by budget for each model and method, for MLflow's pages."""
    shown = accuracies[(accuracies["ties"] == methods.CHANCE) | (accuracies["method"] == "beam")]
    rows = tables.list_records(shown)
    for budget in sorted({row["budget"] for row in rows}):
        budget_rows = [row for row in rows if row["budget"] == budget]
        tracking.record_metrics(
            {f"{row['model']}/{row['method']}": row["accuracy"] for row in budget_rows}, step=budget
        )
    tracking.record_table(accuracies, "accuracies.json")


if __name__ == "__main__":
    main(run, flow="language")

"""The report: what each stage contributed, as one self-contained HTML page and the same as Markdown.

Nothing in it varies with time or run: how the pages were made (graph, runs, params) is put at a marker after the run.
"""

from dataclasses import asdict
from pathlib import Path

from tasks.common import pages, tables
from tasks.language.configs.report import ReportConfig
from tasks.language.reporting import (
    comparing,
    fault_warnings,
    figures,
    headline,
    measures,
    metric_wording,
    reward_section,
    scoreboard,
    side_by_side,
    token_view,
)
from tasks.language.reporting.differences import filter_finite_values
from tasks.language.reporting.metric_wording import BEST
from tasks.language.reporting.scoreboard import Results
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

TESTED = {  # of a difference between one and another
    "p": "How probable so large a difference between {} and {} is if they are equally good, from 0 to 1, by the "
    "test of the interval and corrected by Holm; of fewer than 30 problems there is none.",
    "gained": "The number of problems where {} is right and {} is not.",
    "lost": "The number of problems where {1} is right and {0} is not.",
}
COMPARED = {
    "untrained/METRIC": ("the baseline by METRIC", "its greedy answer"),
    "POLICY/change/METRIC": ("the policy", "the baseline"),
    "POLICY/over_rival": ("the policy", "its rival"),
}
METRICS = {
    "untrained/METRIC/ESTIMATE": "What the baseline gains over its greedy accuracy without training: by a "
    "temperature, a vote or a choice among samples.",
    "POLICY/change/METRIC/ESTIMATE": "The policy's METRIC minus the baseline's, on the same problems; of "
    "gold_greedy also the parts gold_by_manner and gold_by_correctness, which add "
    "up to it. The interval is corrected by Holm, as p is.",
    "POLICY/over_rival/ESTIMATE": "The policy's right greedy answers minus those of its rival, the better control, "
    "or the baseline where that is better or alone; of the loss, where no right "
    "answers are known.",
    **{f"{key}/{name}": text.format(*sides) for key, sides in COMPARED.items() for name, text in TESTED.items()},
    "POLICY/win_rate_greedy/ESTIMATE": "The share of the problems where the policy's greedy answer has more rubric "
    "points than the baseline's; a tie is half a win.",
    "POLICY/tie_rate_greedy/ESTIMATE": "The share of the problems where both greedy answers have equal points.",
    "POLICY/win_rate_sampled_T/ESTIMATE": "The same share over all pairs of a policy's answer and a baseline's "
    "answer, both sampled at T.",
    "POLICY/tie_rate_sampled_T/ESTIMATE": "The share of these pairs that have equal points.",
}
HEADLINE = {
    "strict_greedy": f"The share of the problems whose greedy answer {measures.RIGHT['strict']}.",
    "strict_mean_at_K_tbest": "The share of K answers at the policy's best temperature that "
    f"{measures.RIGHT['strict']}, a mean over problems.",
    "gold_greedy": "The share of the problems whose greedy answer is gold: right, and as a reader wants it.",
    "rubric_greedy": "The mean rubric points of the greedy answers, of 10.",
    "reference_loss": "The mean negative log-likelihood a token of the reference responses, in nats, where no "
    "right answers are known.",
    "pair_accuracy": "The share of the held-out preference pairs that the policy tells apart.",
    "win_rate_greedy": "The share of the problems where the greedy answer has the higher reward than the "
    "baseline's; a tie is half a win.",
    "reward_greedy": "The mean reward of the greedy answers.",
    "length_greedy": "The mean length of the greedy answers, in tokens.",
    "change": "The difference of strict_greedy, or where no right answers are known of reference_loss, to the "
    "baseline's.",
    "change_low": "The lower bound of that difference's interval, corrected for the number of policies; none of "
    "fewer than 30 problems.",
    "change_high": "The upper bound of that interval.",
}

UNANSWERED = ("pair_accuracy", "win_rate_greedy", "reward_greedy", "length_greedy")


def run(config: ReportConfig, evaluations: Path, reward_model: Path, out: Path) -> Metrics:
    """Write report.html, report.md and the plots; the metrics are the policies' differences from the baseline, computed
    here.

    `evaluations` has a folder for each policy with what the stage `evaluate` wrote; `reward_model` is the reward
    model's folder, or one without a model. Where the test problems have no answers, the report is about what can be
    measured without.
    """
    folders: dict[str, Path] = {name: evaluations / name for name in config.policies}
    answers = {name: tables.read_table(Generations, folder / "generations.parquet") for name, folder in folders.items()}
    evaluation_metrics = {name: comparing.read_evaluation_metrics(folder) for name, folder in folders.items()}
    results = comparing.compare_policies(config, evaluations, answers, evaluation_metrics)
    drawn = comparing.load_training_curves(config, folders, reward_model)
    judged = reward_section.build_reward_section(reward_model, config.seed, config.bootstrap)
    pictures = figures.render_report_figures(results, drawn, reward_model / "calibration.csv") | (
        judged.figures if judged else {}
    )
    problems = tables.read_table(Problems, folders[config.policies[0]] / "asked.parquet")
    draw = headline.Draw(config.seed, answers[config.policies[0]]["problem_id"].nunique())
    power = headline.format_power_sentences(results, draw.problems)
    view = {
        "sentence": headline.format_first_sentence(results, config.best_by, draw, config.margin),
        "more": [
            *headline.format_headline_sentences(results),
            *power,
            *headline.format_missing_metric_notes(results, config.best_by),
        ],
        "watch_outs": fault_warnings.collect_fault_warnings(
            results, drawn, answers, evaluation_metrics[config.baseline], judged
        ),
        "answered": results.answered,
        "problems": draw.problems,
        "prompts": comparing.count_distinct_prompts(folders[config.baseline]),
        "policies": config.policies,
        "baseline": config.baseline,
        "notes": scoreboard.format_table_notes(results),
        "edges": headline.format_edge_temperatures(results) if results.answered else [],
        "hottest": metric_wording.format_temperature(results.highest_temperature),
        "tables": scoreboard.build_score_tables(results, config.margin),
        "meaning": scoreboard.collect_metric_meanings(results),
        "reward_model": judged,
        "learning": [name for name in pictures if name.startswith("learning-")],
        "captions": figures.format_learning_captions(drawn, token_view.read_rollout_temperatures(folders)),
        "curves": [name for name in drawn if f"curves-{name}" in pictures],
        "samples": side_by_side.draw_sample_problems(answers, problems, config),
        "answers": side_by_side.build_side_by_side_data(answers, problems, config),
        "microscope": token_view.build_token_view_entries(folders, drawn),
        "seed": config.seed,
    }
    pages.write_report_pages(Path(__file__).parent / "reporting/templates", "report", view, pictures, out)
    pages.write_metrics({policy: _build_headline_row(results, policy) for policy in config.policies}, out)
    return _collect_report_metrics(results)


def _build_headline_row(results: Results, policy: str) -> dict[str, float]:
    """What a person compares first: greedy accuracy, or else the loss; its difference to the baseline's with its
    interval, and more.
    """
    judged = results.judged[policy]
    change = results.changes.get(policy, {}).get(results.first)
    best = [name for name in results.metrics if name.startswith("strict_mean_at_") and name.endswith(f"_{BEST}")]
    wanted = (results.first, "gold_greedy", *best, "rubric_greedy", *([] if results.answered else UNANSWERED))
    row = {metric: judged[metric].mean for metric in wanted if metric in judged}
    names = {"mean": "change", "low": "change_low", "high": "change_high"}
    numbers = change.numbers() if change else {}
    return row | {names[name]: value for name, value in numbers.items() if name in names}


def _collect_report_metrics(results: Results) -> Metrics:
    """For each policy its win rates and its differences to the baseline and to the better control; what the baseline
    gains untrained.
    """
    metrics: dict[str, Metrics] = {"untrained": {metric: gain.numbers() for metric, gain in results.untrained.items()}}
    wanted = (
        ("strict_", "rubric_", "gold_", "manner_")
        if results.answered
        else ("reference_", "reward_", "length_", "ended_")
    )
    for policy, changes in results.changes.items():
        rates = {
            name: estimate
            for name, estimate in results.judged[policy].items()
            if name.startswith(("win_rate_", "tie_rate_"))
        }
        metrics[policy] = {
            **{name: filter_finite_values(asdict(rate)) for name, rate in rates.items()},
            "change": {metric: change.numbers() for metric, change in changes.items() if metric.startswith(wanted)},
            **({"over_rival": results.over_rival[policy].numbers()} if policy in results.over_rival else {}),
        }
    return metrics


if __name__ == "__main__":
    main(run)

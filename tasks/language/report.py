"""The report: what each stage contributed, as one self-contained HTML page and the same as Markdown.

Nothing in it varies with time or run: how the pages were made (graph, runs, params) is put at a marker after the run.
"""

from dataclasses import asdict
from pathlib import Path

from tasks.common import pages, tables
from tasks.language.configs.report import ReportConfig
from tasks.language.reporting import (
    comparing,
    figures,
    headline,
    measures,
    microscope,
    reward_section,
    scoreboard,
    side_by_side,
    watch_outs,
)
from tasks.language.reporting.scoreboard import BEST, Results
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

CHANGES = {  # of problems that are either right or wrong
    "gained": "The number of problems where {} is right and {} wrong.",
    "lost": "The number of problems where {} is wrong and {} right.",
    "p": "How probable so uneven a split is if {} and {} are equally good, from 0 to 1 (McNemar's exact test).",
}
COMPARED = {
    "controls/METRIC": ("the baseline by METRIC", "the baseline's greedy answer"),
    "POLICY/change/METRIC": ("the policy", "the baseline"),
}
METRICS = {
    "controls/METRIC/ESTIMATE": "What the baseline gains over its greedy accuracy without training: by a temperature, a vote or a choice among samples.",
    "POLICY/change/METRIC/ESTIMATE": "The policy's METRIC minus the baseline's, on the same problems.",
    **{f"{place}/{name}": text.format(*of) for place, of in COMPARED.items() for name, text in CHANGES.items()},
    "POLICY/win_rate_greedy/ESTIMATE": "The share of the problems where the policy's greedy answer has more rubric points than the baseline's; a tie is half a win.",
    "POLICY/win_rate_sampled_T/ESTIMATE": "The same share over all pairs of a policy's answer and a baseline's answer, both sampled at T.",
    "POLICY/owed_steps_T/total/ESTIMATE": "The change of strict accuracy at T; the next three metrics add up to it.",
    "POLICY/owed_steps_T/share/ESTIMATE": "The part of that change owed to giving more answers with worked steps, or fewer.",
    "POLICY/owed_steps_T/inside/ESTIMATE": "The part of that change owed to being right more often with worked steps.",
    "POLICY/owed_steps_T/outside/ESTIMATE": "The part of that change owed to being right more often without worked steps.",
}
HEADLINE = {
    "strict_greedy": f"The share of the problems whose greedy answer {measures.RIGHT['strict']}.",
    "strict_mean_at_K_tbest": f"The share of K answers at the policy's best temperature that {measures.RIGHT['strict']}, a mean over problems.",
    "rubric_greedy": "The mean rubric points of the greedy answers, of 10.",
    "reference_loss": "The mean negative log-likelihood a token of the reference responses, in nats, where no right answers are known.",
    "pair_accuracy": "The share of the held-out preference pairs that the policy tells apart.",
    "win_rate_greedy": "The share of the problems where the greedy answer has the higher reward than the baseline's; a tie is half a win.",
    "reward_greedy": "The mean reward of the greedy answers.",
    "length_greedy": "The mean length of the greedy answers, in tokens.",
    "change": "The difference of strict_greedy, or where no right answers are known of reference_loss, to the baseline's.",
    "change_low": "The lower bound of that difference's 95 % interval.",
    "change_high": "The upper bound of that difference's 95 % interval.",
}

UNANSWERED = ("pair_accuracy", "win_rate_greedy", "reward_greedy", "length_greedy")


def run(config: ReportConfig, evaluations: Path, reward_model: Path, out: Path) -> Metrics:
    """Write report.html, report.md and the plots; the metrics are the policies' differences from the baseline, computed here.

    `evaluations` has a folder for each policy with what the stage `evaluate` wrote; `reward_model` is the reward model's
    folder, or one without a model. Where the test problems have no answers, the report is about what can be measured without.
    """
    folders: dict[str, Path] = {name: evaluations / name for name in config.policies}
    answers = {name: tables.read(Generations, folder / "generations.parquet") for name, folder in folders.items()}
    found = {name: comparing.evaluation(folder) for name, folder in folders.items()}
    results = comparing.compared(config, evaluations, answers, found)
    drawn = comparing.curves(config, folders, reward_model)
    judged = reward_section.section(reward_model, config.seed, config.bootstrap)
    pictures = figures.figures(results, drawn, reward_model / "calibration.csv") | (judged.figures if judged else {})
    asked = tables.read(Problems, folders[config.policies[0]] / "asked.parquet")
    problems = answers[config.policies[0]]["problem_id"].nunique()
    view = {
        "sentence": headline.sentence(results, config.best_by, problems),
        "more": [*headline.headline(results), *headline.best(results, config.best_by)],
        "watch_outs": watch_outs.watch_outs(results, drawn, answers, found[config.baseline]),
        "answered": results.answered,
        "problems": problems,
        "policies": config.policies,
        "baseline": config.baseline,
        "edges": headline.edges(results) if results.answered else [],
        "hottest": scoreboard.spoken(results.hottest),
        "tables": scoreboard.tables(results),
        "meaning": scoreboard.meaning(results),
        "reward_model": judged,
        "learning": [name for name in pictures if name.startswith("learning-")],
        "curves": [name for name in drawn if f"curves-{name}" in pictures],
        "overview": [name for name in pictures if name.startswith("overview-")],
        "samples": side_by_side.samples(answers, asked, config),
        "answers": side_by_side.side_by_side(answers, asked, config),
        "microscope": microscope.microscope(folders, drawn),
        "seed": config.seed,
    }
    pages.write(Path(__file__).parent / "reporting/templates", "report", view, pictures, out)
    pages.write_metrics({policy: _row(results, policy) for policy in config.policies}, out)
    return _metrics(results)


def _row(results: Results, policy: str) -> dict[str, float]:
    """What a person compares first: greedy accuracy, or else the loss; its difference to the baseline's with its interval, and more."""
    judged, changes = results.judged[policy], results.changes.get(policy, {})
    first = "strict_greedy" if results.answered else "reference_loss"
    best = [results.mean_at(BEST)] if results.answered else []
    wanted = (first, *best, "rubric_greedy", *([] if results.answered else UNANSWERED))
    row = {metric: judged[metric].mean for metric in wanted if metric in judged}
    if first in changes:
        estimate = changes[first].estimate
        row |= {"change": estimate.mean, "change_low": estimate.low, "change_high": estimate.high}
    return row


def _metrics(results: Results) -> Metrics:
    """For each policy its win rates, its differences to the baseline, and what its changes are owed to; the controls' gains."""
    found: dict[str, Metrics] = {"controls": {metric: gain.numbers() for metric, gain in results.controls.items()}}
    for policy, changes in results.changes.items():
        judged = results.judged[policy]
        told = ("strict_", "rubric_") if results.answered else ("reference_", "reward_", "length_", "ended_")
        shown = {metric: change for metric, change in changes.items() if metric.startswith(told)}
        found[policy] = {
            **{metric: asdict(value) for metric, value in judged.items() if metric.startswith("win_rate_")},
            "change": {metric: change.numbers() for metric, change in shown.items()},
            **{
                f"owed_{name}_{how}": asdict(by_policy[policy])
                for name, temperatures in results.components.items()
                for how, by_policy in temperatures.items()
            },
        }
    return found


if __name__ == "__main__":
    main(run)

"""The report: what each stage contributed, as one self-contained HTML page and the same as Markdown.

Nothing in it varies with time or run: how the pages were made (graph, runs, params) is put at a marker after the run.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tasks.common import estimates, pages, plots, tables
from tasks.common.estimates import Estimate
from tasks.common.tables import Record
from tasks.language.configs.report import ReportConfig
from tasks.language.reporting import headline, measures, reward_section, scoreboard, strata
from tasks.language.reporting.differences import differences, over_greedy, read_measures
from tasks.language.reporting.scoreboard import BEST, Results
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

Answers = Mapping[str, pd.DataFrame]  # policy -> its generations
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
CUT_OFF = 0.5  # the share of greedy answers above which a policy that does not end them is told of


def run(config: ReportConfig, evaluations: Path, reward_model: Path, out: Path) -> Metrics:
    """Write report.html, report.md and the plots; the metrics are the policies' differences from the baseline, computed here.

    `evaluations` has a folder for each policy with what the stage `evaluate` wrote; `reward_model` is the reward model's
    folder, or one without a model. Where the test problems have no answers, the report is about what can be measured without.
    """
    folders: dict[str, Path] = {name: evaluations / name for name in config.policies}
    answers = {name: tables.read(Generations, folder / "generations.parquet") for name, folder in folders.items()}
    found = {name: _evaluation(folder) for name, folder in folders.items()}
    results = compared(config, evaluations, answers, found)
    drawn = curves(config, folders, reward_model)
    judged = reward_section.section(reward_model, config.seed, config.bootstrap)
    figures = _figures(results, drawn, reward_model / "calibration.csv") | (judged.figures if judged else {})
    asked = tables.read(Problems, folders[config.policies[0]] / "asked.parquet")
    view = {
        "headline": [*headline.headline(results), *headline.best(results, config.best_by)],
        "warnings": [
            *_left_out(found[config.baseline]),
            *_untrained(results, drawn),
            *_cut_off(results),
            *warnings(drawn),
        ],
        "answered": results.answered,
        "problems": answers[config.policies[0]]["problem_id"].nunique(),
        "policies": config.policies,
        "baseline": config.baseline,
        "edges": headline.edges(results) if results.answered else [],
        "hottest": scoreboard.spoken(results.hottest),
        "tables": scoreboard.tables(results),
        "meaning": scoreboard.meaning(results),
        "reward_model": judged,
        "learning": [name for name in drawn if f"curves-{name}" in figures],
        "samples": _samples(answers, asked, config),
        "seed": config.seed,
    }
    pages.write(Path(__file__).parent / "reporting/templates", "report", view, figures, out)
    pages.write_metrics({policy: _row(results, policy) for policy in config.policies}, out)
    return _metrics(results)


def curves(config: ReportConfig, folders: Mapping[str, Path], reward_model: Path) -> dict[str, pd.DataFrame]:
    """How each policy learned, and behind the baseline the reward model; a model that existed already has no curve."""
    places = {**folders, "reward_model": reward_model}
    after = config.policies.index(config.baseline) + 1
    order = [*config.policies[:after], "reward_model", *config.policies[after:]]
    return {name: pd.read_csv(places[name] / "curve.csv") for name in order if (places[name] / "curve.csv").is_file()}


def _evaluation(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "evaluation.json").read_text())
    return found


def compared(
    config: ReportConfig, evaluations: Path, answers: Answers, metrics: Mapping[str, Mapping[str, Any]]
) -> Results:
    """Every policy's evaluation beside its differences to the baseline, problem by problem."""
    best = {
        name: float(numbers["best_temperature"]) for name, numbers in metrics.items() if "best_temperature" in numbers
    }
    judged = {
        name: {metric: Estimate(**value) for metric, value in numbers.items() if isinstance(value, dict)}
        for name, numbers in metrics.items()
    }
    values = {name: read_measures(evaluations / name / "measures.parquet") for name in answers}
    base = values[config.baseline]
    hows = [scoreboard.temperature(name) for name in judged[config.baseline] if name.startswith("length_sampled_")]
    for name, numbers in win_rates(answers, best, config.baseline, hows).items():
        judged[name] |= numbers
    changes = {
        name: differences(table, base, config.seed, config.bootstrap)
        for name, table in values.items()
        if name != config.baseline
    }
    if len(best) < len(answers):  # no right answers are known
        return Results(judged, config.baseline, best, changes, {}, {})
    untrained = sorted(
        (name for name in base.columns if _is_control(name, best[config.baseline])),
        key=lambda name: (not name.endswith(BEST), name),
    )
    controls = over_greedy(base, dict(zip(untrained, untrained, strict=True)), config.seed, config.bootstrap)
    parts = owed(config, answers, best, [how for how in hows if how != BEST])
    return Results(judged, config.baseline, best, changes, controls, parts)


def _is_control(metric: str, best: float) -> bool:
    """Whether it is a control: sampled at the best temperature, if that is not 0, or a vote or a choice among samples at a shared one."""
    voted = metric.startswith(("strict_majority_at_", "strict_best_of_")) and scoreboard.temperature(metric) != BEST
    return voted or (best > 0 and metric.startswith("strict_mean_at_") and scoreboard.temperature(metric) == BEST)


def owed(
    config: ReportConfig, answers: Answers, best: Mapping[str, float], hows: list[str]
) -> dict[str, dict[str, dict[str, strata.Components]]]:
    """Stratum -> temperature -> policy -> what its change of accuracy is owed to, where the answers are of two kinds."""
    found: dict[str, dict[str, dict[str, strata.Components]]] = {}
    for name in measures.STRATA:
        for how in hows:
            split = {
                policy: measures.stratum(frame, name, _temperature(how, best, policy))
                for policy, frame in answers.items()
            }
            base = split[config.baseline]
            if 0 < base.inside.mean() < 1:
                found.setdefault(name, {})[how] = {
                    policy: strata.components(parts, base, config.seed, config.bootstrap)
                    for policy, parts in split.items()
                    if policy != config.baseline
                }
    return found


def _temperature(how: str, best: Mapping[str, float], name: str) -> float:
    return best[name] if how == BEST else 0.0 if how == "greedy" else float(how.removeprefix("t"))


def win_rates(
    answers: Answers, best: Mapping[str, float], baseline: str, hows: list[str]
) -> dict[str, dict[str, Estimate]]:
    """Each policy against the baseline by rubric points, or else by reward: greedy against greedy, and all pairs of samples.

    All k x k pairs of a problem's samples are compared, and a problem counts once. Without points and rewards there are none.
    """
    rates: dict[str, dict[str, Estimate]] = {name: {} for name in answers if name != baseline}
    judges = [name for name in ("rubric", "reward") if all(name in frame for frame in answers.values())]
    for how in ("greedy", *hows) if judges else ():
        scores = {name: _scores(frame, judges[0], _temperature(how, best, name)) for name, frame in answers.items()}
        for name, shares in rates.items():
            pairs = estimates.win_values(scores[name][:, :, None], scores[baseline][:, None, :])
            metric = "win_rate_greedy" if how == "greedy" else f"win_rate_sampled_{how}"
            shares[metric] = estimates.share(pairs.mean(axis=(1, 2)))
    return rates


def _scores(frame: pd.DataFrame, judge: str, temperature: float) -> np.ndarray:
    """Rubric points or rewards by problem, in the order of their ids: (P, k)."""
    drawn = frame[frame["temperature"] == temperature]
    return drawn.pivot(index="problem_id", columns="sample", values=judge).sort_index().to_numpy()


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


def warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """One sentence for each preference-tuned policy whose chosen answers became less likely, though its margin may have grown."""
    for name, frame in drawn.items():
        if "logps/chosen_change" not in frame or frame.empty:
            continue
        end = frame[tables.last_tenth(len(frame))].mean()
        if end["logps/chosen_change"] < 0:
            fell = -end["logps/chosen_change"]
            further = end["rewards/rejected"] < end["rewards/chosen"]
            yield (
                f"{name}: the chosen answers became less likely, by {fell:.2f} nats an answer against the reference (mean "
                f"of the last tenth of the steps)."
                + (" The margin grew because the rejected ones fell further." if further else "")
            )


def _left_out(found: Mapping[str, Any]) -> Iterator[str]:
    """One sentence where an evaluation is of a part of the test problems."""
    if long := found.get("too_long"):
        yield (
            f"{long} of the {found['asked'] + long} test problems were left out: the models have no positions for their prompts "
            "and evaluate.max_new_tokens more."
        )


def _untrained(results: Results, drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """One sentence for each later policy that took no step: it is the policy that it started from."""
    for name in results.later:
        if name in drawn and drawn[name].empty:
            yield f"{name}: there was nothing to learn from, so that it is the policy that it started from (its log says why)."


def _cut_off(results: Results) -> Iterator[str]:
    """One sentence for each policy from the baseline on most of whose greedy answers the length limit cut off."""
    for name in (results.baseline, *results.later):
        found = results.judged[name]
        if (ended := found["ended_greedy"].mean) < 1 - CUT_OFF:
            yield f"{name}: the length limit cut off {100 * (1 - ended):.0f} % of its greedy answers (evaluate.max_new_tokens)."


def _figures(results: Results, drawn: Mapping[str, pd.DataFrame], calibration: Path) -> dict[str, str]:
    """The plots by name; what needs a reward model is left out without one."""
    figures = {f"curves-{name}": plots.curves(frame, f"curves-{name}") for name, frame in drawn.items() if len(frame)}
    shown = [results.baseline, *results.later]  # policies before the baseline did not start from it
    if results.answered:
        untrained = {
            f"{results.baseline}, {scoreboard.means(results, name)}": results.judged[results.baseline][name].mean
            for name in results.controls
        }
        lines = {name: _by_temperature(results, name) for name in shown}
        figures["temperatures"] = plots.levels(
            lines, untrained, "temperature (0: greedy)", "strict accuracy", "temperatures"
        )
    kl, reward = (f"{kind}_sampled_{results.hottest}" for kind in ("kl", "reward"))
    if {kl, reward} <= results.judged[results.baseline].keys():
        points = {name: (results.judged[name][kl], results.judged[name][reward]) for name in shown}
        figures["reward-kl"] = plots.scatter(points, "KL to the reference, nats an answer", "reward", "reward-kl")
    if calibration.is_file():
        figures["calibration"] = plots.calibration(pd.read_csv(calibration), "calibration")
    return figures


def _by_temperature(results: Results, policy: str) -> list[tuple[float, Estimate]]:
    """A policy's accuracy at every temperature that it was sampled at, greedy at 0."""
    judged, found = results.judged[policy], {0.0: results.judged[policy]["strict_greedy"]}
    for how in results.temperatures:
        found[_temperature(how, results.best, policy)] = judged[results.mean_at(how)]
    return sorted(found.items())


def _samples(answers: Answers, asked: pd.DataFrame, config: ReportConfig) -> list[Record]:
    """Problems drawn by the seed from all that were evaluated, with each policy's greedy answer."""
    greedy = {name: frame[frame["temperature"] == 0].set_index("problem_id") for name, frame in answers.items()}
    rows = asked.set_index("problem_id").loc[sorted(greedy[config.policies[0]].index)]
    drawn = np.random.default_rng(config.seed).choice(len(rows), min(config.samples, len(rows)), replace=False)
    return [
        {
            "id": rows.index[index],
            "question": rows["question"].iloc[index],
            "solution": rows["solution"].iloc[index],
            "answers": [{"policy": name, **table.loc[rows.index[index]].to_dict()} for name, table in greedy.items()],
        }
        for index in drawn
    ]


if __name__ == "__main__":
    main(run)

"""The report: what each stage contributed, as one self-contained HTML page and the same as Markdown.

Nothing in it varies with time or run: how the pages were made (graph, runs, params) is put at a marker after the run.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from tasks import artifacts, pages, plots, schemas, scoreboard
from tasks.algorithms import estimates
from tasks.algorithms.estimates import Estimate
from tasks.stage import Config, Metrics, main


class ReportConfig(Config):
    """Which policies are shown, in the pipeline's order, and against which one they are judged."""

    seed: int
    policies: list[str] = Field(min_length=1)
    baseline: str
    samples: int = Field(ge=0)  # problems shown with every policy's answer


def run(
    config: ReportConfig,
    evaluations: Path,
    curves: Path,
    calibration: Path,
    stage_metrics: list[Path],
    problems: Path,
    out: Path,
) -> Metrics:
    """Write report.html, report.md and the plots; the metrics are the win rates computed here.

    `evaluations` has a folder with generations.parquet for each policy; `stage_metrics` are the metrics files of the
    stages in the pipeline's order, those of the evaluations (evaluate@POLICY.json) among them.
    """
    stages = {path.stem: json.loads(path.read_text()) for path in stage_metrics}
    answers = {
        name: artifacts.read(schemas.Generations, evaluations / name / "generations.parquet")
        for name in config.policies
    }
    wins = win_rates(answers, config.baseline)
    judged = {name: _estimates(stages.pop(f"evaluate@{name}")) | wins.get(name, {}) for name in config.policies}
    drawn = {
        path.stem: pd.read_csv(path) for path in sorted(curves.glob("*.csv"), key=lambda path: _place(path, stages))
    }
    figures = _figures(judged, drawn, pd.read_csv(calibration), config.baseline)
    asked = artifacts.read(schemas.Problems, problems / "test.parquet")
    view = {
        "headline": scoreboard.headline(judged, config.baseline),
        "warnings": list(warnings(drawn)),
        "problems": answers[config.policies[0]]["problem_id"].nunique(),
        "policies": config.policies,
        "baseline": config.baseline,
        "tables": scoreboard.tables(judged, config.baseline),
        "meaning": scoreboard.MEANING,
        "learning": [name for name in drawn if f"curves-{name}" in figures],
        "samples": _samples(answers, asked, config),
        "seed": config.seed,
        "stages": {name: list(_leaves(metrics)) for name, metrics in stages.items()},
    }
    pages.write(Path(__file__).parent / "templates", "report", view, figures, out)
    return {name: {key: vars(estimate) for key, estimate in of.items()} for name, of in wins.items()}


def win_rates(answers: Mapping[str, pd.DataFrame], baseline: str) -> dict[str, dict[str, Estimate]]:
    """Each policy against the baseline by rubric points: greedy against greedy, and all pairs of sampled answers.

    All k x k pairs of a problem's samples are compared, and a problem counts once.
    """
    rates = {}
    scores = {name: _scores(frame) for name, frame in answers.items()}
    for name, (greedy, sampled) in scores.items():
        if name == baseline:
            continue
        base_greedy, base_sampled = scores[baseline]
        pairs = estimates.win_values(sampled[:, :, None], base_sampled[:, None, :]).mean(axis=(1, 2))
        rates[name] = {
            "win_rate_greedy": estimates.share(estimates.win_values(greedy, base_greedy)),
            "win_rate_sampled": estimates.share(pairs),
        }
    return rates


def _scores(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Rubric points by problem, in the order of their ids: greedy (P,), sampled (P, k)."""
    table = frame.pivot(index="problem_id", columns="sample", values="rubric").sort_index()
    return table[-1].to_numpy(), table.drop(columns=-1).to_numpy()


def warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """A preference-tuned policy may widen its margin while it grows less likely to say what was chosen: tell it."""
    for name, frame in drawn.items():
        if "logps/chosen_change" not in frame or frame.empty:
            continue
        end = frame.tail(-(-len(frame) // 10)).mean()
        if end["logps/chosen_change"] < 0:
            fell = -end["logps/chosen_change"]
            further = end["rewards/rejected"] < end["rewards/chosen"]
            yield (
                f"{name}: the chosen answers became less likely, by {fell:.2f} nats an answer against the reference (mean "
                f"of the last tenth of the steps)."
                + (" The margin grew because the rejected ones fell further." if further else "")
            )


def _estimates(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Estimate]:
    return {name: Estimate(**value) for name, value in metrics.items()}


def _place(path: Path, stages: Mapping[str, Any]) -> tuple[int, str]:
    order = list(stages)
    return (order.index(path.stem) if path.stem in order else len(order), path.stem)


def _figures(
    judged: scoreboard.Evaluations, drawn: Mapping[str, pd.DataFrame], calibrated: pd.DataFrame, baseline: str
) -> dict[str, str]:
    figures = {f"curves-{name}": plots.curves(frame, f"curves-{name}") for name, frame in drawn.items() if len(frame)}
    later = list(judged)[list(judged).index(baseline) :]  # those before it have moved nowhere from it
    points = {name: (judged[name]["kl_sampled"], judged[name]["reward_sampled"]) for name in later}
    figures["reward-kl"] = plots.scatter(points, "KL to the reference, nats an answer", "reward", "reward-kl")
    figures["calibration"] = plots.calibration(calibrated, "calibration")
    return figures


def _samples(answers: Mapping[str, pd.DataFrame], asked: pd.DataFrame, config: ReportConfig) -> list[dict[str, Any]]:
    """Problems drawn by the seed from all that were evaluated, with each policy's greedy answer."""
    greedy = {name: frame[frame["sample"] == -1].set_index("problem_id") for name, frame in answers.items()}
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


def _leaves(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key} ")
        else:
            yield prefix + key, f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


if __name__ == "__main__":
    main(run)

"""The report: what each stage contributed, as one self-contained HTML page and the same as Markdown.

Nothing in it varies with time or run: how the pages were made (graph, runs, params) is put at a marker after the run.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field

from tasks import artifacts, plots, schemas
from tasks.algorithms import estimates
from tasks.algorithms.estimates import Estimate
from tasks.stage import Config, Metrics, main

TEMPLATES = ("report.html", "report.md")
MEANING = {
    "strict": "the answer ends with the line #### N, and N is right",
    "lenient": "the last number of the answer is right, whatever its form",
    "greedy": "the likeliest answer, token by token",
    "mean": "a sampled answer; mean over the k samples of a problem",
    "pass": "at least one of k sampled answers is right (unbiased estimate)",
    "majority": "the commonest answer of k samples is right; a tie counts by chance",
    "rubric": "points of 10: correctness 0-5, reasoning 0-3, clarity 0-2",
    "correctness": "rubric points for the final answer, 0-5",
    "reasoning": "rubric points for steps that hold and lead to the answer, 0-3",
    "clarity": "rubric points for stating the answer plainly and being concise, 0-2",
    "win_rate": "answers to one problem compared by the rubric; a tie is half a win",
    "reward": "the reward model's score; only differences mean something",
    "kl": "nats per answer by which the policy has moved from the reference (k1 estimate)",
    "length": "tokens of an answer, the end token included",
    "ended": "answers closed by the end token within the length limit",
}
SHARES = ("strict", "lenient", "ended", "win_rate")  # shown in percent
QUALITY = ("rubric", "correctness", "reasoning", "clarity", "win_rate", "reward", "kl", "length", "ended")
TOLD_EDGE = 10  # a curve's beginning and end are its first and last tenth

Evaluations = Mapping[str, Mapping[str, Estimate]]


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
    figures = _figures(judged, drawn, pd.read_csv(calibration))
    asked = artifacts.read(schemas.Problems, problems / "test.parquet")
    view = {
        "headline": headline(judged, config),
        "warnings": list(_warnings(drawn)),
        "problems": answers[config.policies[0]]["problem_id"].nunique(),
        "policies": config.policies,
        "baseline": config.baseline,
        "accuracy": _accuracy(judged, config.baseline),
        "quality": _quality(judged, config.baseline),
        "meaning": MEANING,
        "learning": [name for name in drawn if f"curves-{name}" in figures],
        "figures": figures,
        "samples": _samples(answers, asked, config),
        "seed": config.seed,
        "stages": {name: list(_leaves(metrics)) for name, metrics in stages.items()},
        "out": out.as_posix(),
    }
    _write(view, figures, out)
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


def headline(judged: Evaluations, config: ReportConfig) -> list[str]:
    """Two sentences: how the baseline came by its accuracy, and what each later policy added to its rubric score."""
    first, base = config.policies[0], config.baseline
    start = f"{base} is the first policy, with {_text('strict', judged[base]['strict_greedy'])} strict greedy accuracy."
    if first != base:
        before, after = judged[first]["strict_greedy"], judged[base]["strict_greedy"]
        start = f"{base} {_change('strict', before, after, 'strict greedy accuracy')} over {first}."
    later = []
    for name in config.policies[config.policies.index(base) + 1 :]:
        change = _change("rubric", judged[base]["rubric_sampled"], judged[name]["rubric_sampled"], "the rubric score")
        wins = judged[name]["win_rate_sampled"]
        rate = f"{_text('win_rate', wins)} ({_interval('win_rate', wins)})"
        later.append(f"{name} {change}, and wins {rate} of comparisons with it")
    return [start, f"Against {base}, {'; '.join(later)}."] if later else [start]


def _change(kind: str, before: Estimate, after: Estimate, what: str) -> str:
    numbers = f"from {_text(kind, before)} to {_text(kind, after)}"
    if after.low > before.high:
        return f"raised {what} {numbers} (95 % intervals apart)"
    if after.high < before.low:
        return f"lowered {what} {numbers} (95 % intervals apart)"
    return f"did not clearly change {what} ({numbers}; the 95 % intervals overlap)"


def _warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """A preference-tuned policy may widen its margin while it grows less likely to say what was chosen: tell it."""
    for name, frame in drawn.items():
        if "logps/chosen" not in frame or frame.empty:
            continue
        edge = -(-len(frame) // TOLD_EDGE)
        relative = "rewards/chosen" in frame  # against the reference on the same pairs: no noise of the batches
        column = frame["rewards/chosen" if relative else "logps/chosen"]
        end = column.tail(edge).mean()
        if end < (0.0 if relative else column.head(edge).mean()):
            start, now = frame["logps/chosen"].head(edge).mean(), frame["logps/chosen"].tail(edge).mean()
            yield (
                f"{name}: the log-probability of the chosen answers fell (mean over the batches of the first and last "
                f"tenth of steps: {start:.1f} and {now:.1f} nats an answer). The margin grew because the rejected ones "
                "fell more, not because the chosen ones became likelier."
            )


def _estimates(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Estimate]:
    return {name: Estimate(**value) for name, value in metrics.items()}


def _place(path: Path, stages: Mapping[str, Any]) -> tuple[int, str]:
    order = list(stages)
    return (order.index(path.stem) if path.stem in order else len(order), path.stem)


def _figures(judged: Evaluations, drawn: Mapping[str, pd.DataFrame], calibrated: pd.DataFrame) -> dict[str, str]:
    figures = {f"curves-{name}": plots.curves(frame, f"curves-{name}") for name, frame in drawn.items() if len(frame)}
    points = {name: (of["kl_sampled"], of["reward_sampled"]) for name, of in judged.items()}
    figures["reward-kl"] = plots.scatter(points, "KL to the reference, nats an answer", "reward", "reward-kl")
    figures["calibration"] = plots.calibration(calibrated, "calibration")
    return figures


def _accuracy(judged: Evaluations, baseline: str) -> list[dict[str, Any]]:
    """Rows of the accuracy table: for each measure, each policy's strict and lenient cell."""
    measures = [name.removeprefix("strict_") for name in next(iter(judged.values())) if name.startswith("strict_")]
    return [
        {
            "label": measure.replace("_at_", "@"),
            "cells": [
                _cell(f"{form}_{measure}", name, judged, baseline) for name in judged for form in ("strict", "lenient")
            ],
        }
        for measure in measures
    ]


def _quality(judged: Evaluations, baseline: str) -> list[dict[str, Any]]:
    columns = [f"{kind}_{how}" for kind in QUALITY for how in ("greedy", "sampled")]
    return [
        {
            "label": column.replace("_", " "),
            "cells": [_cell(column, name, judged, baseline) for name in judged],
        }
        for column in columns
        if any(column in of for of in judged.values())
    ]


def _cell(column: str, policy: str, judged: Evaluations, baseline: str) -> dict[str, str]:
    """A number with its interval, and an arrow where that interval lies wholly above or below the baseline's."""
    found, base = judged[policy].get(column), judged[baseline].get(column)
    if found is None:
        return {"text": "", "interval": "", "mark": ""}
    mark = ""
    if base is not None:
        mark = "▲" if found.low > base.high else "▼" if found.high < base.low else ""
    return {"text": _text(_kind(column), found), "interval": _interval(_kind(column), found), "mark": mark}


def _kind(column: str) -> str:
    return next(kind for kind in MEANING if column.startswith(kind))


def _text(kind: str, estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.1f} %" if kind in SHARES else f"{estimate.mean:.2f}"


def _interval(kind: str, estimate: Estimate) -> str:
    scale, digits = (100, 1) if kind in SHARES else (1, 2)
    return f"{scale * estimate.low:.{digits}f} to {scale * estimate.high:.{digits}f}"


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


def _write(view: Mapping[str, Any], figures: Mapping[str, str], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    for name in TEMPLATES:
        environment = Environment(
            loader=loader,
            autoescape=name.endswith(".html"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        (out / name).write_text(environment.get_template(name + ".j2").render(view))
    for name, svg in figures.items():
        (out / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main(run)

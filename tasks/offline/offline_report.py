"""The report of the offline flow: what each method earned on each data set, as one self-contained HTML page and as
Markdown.

Nothing in it varies with time or run: how the pages were made (graph, runs, times, params) is put at a marker after the
run.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from tasks.common import pages, plots
from tasks.common.errors import ConfigError
from tasks.common.estimates import estimate_mean_over_seeds
from tasks.common.plots import Line, Panel
from tasks.offline.configs.offline_report import OfflineReportConfig
from tasks.offline.datasets.normalized_score import SCALE, ScoreReference
from tasks.offline.reporting import aggregates, measurements, results, verdicts
from tasks.offline.reporting.aggregates import Together
from tasks.offline.reporting.measurements import Description, ReturnScores
from tasks.offline.reporting.results import ResultsTable, VariantResult
from tasks.offline.reporting.tables import CLAIMED
from tasks.stage import Metrics, main

SELECTED = "†"  # marks a variant with a setting that was chosen by returns in the environment
HEADLINE = {
    "score": f"The mean score over seeds: {SCALE}.",
    "half_width": "Half the width of the score's 95 % interval over seeds; of one seed there is none.",
}
METRICS = {f"DATASET/VARIANT/{name}": text for name, text in HEADLINE.items()}


def run(config: OfflineReportConfig, returns: Path, out: Path) -> Metrics:
    """Write offline_report.html, .md, plots and pictures from the folders in `returns`."""
    missing = [name for name in config.policies if not (returns / name).is_dir()]
    if missing:
        raise ConfigError(f"params.yaml: offline_report.policies: {missing[0]} was not measured ({returns} lacks it)")
    measured = [measurements.read_return_scores(returns / name) for name in config.policies]
    outcomes = results.build_variant_results(measured)
    first = [outcome for outcome in outcomes if outcome.first]
    data = {scores.description["dataset"]: scores.description for scores in measured}
    judged = [
        verdicts.judge_offline_expectation(expectation.higher, expectation.lower, expectation.dataset, first, data)
        for expectation in config.expectations
    ]
    beliefs = [belief for scores in measured for belief in results.build_value_comparisons(scores)]
    together = aggregates.aggregate_over_datasets(first, data)
    sentence, *more = [*verdicts.summarize_verdicts(judged), *format_best_variants(first, data, config.best_by)]
    view = {
        "sentence": sentence,
        "more": more,
        "verdicts": judged,
        "stitched": results.format_stitching_sentences(measured),
        "without_curve": results.format_variants_without_curve(measured),
        "seeds": sorted({len(outcome.returns) for outcome in outcomes}),
        "episodes": sorted({int(scores.episodes["episode"].nunique()) for scores in measured}),
        "tables": _build_results_tables(first, data),
        "together": together,
        "asked": sorted(
            (outcome for outcome in outcomes if outcome.has_target),
            key=lambda outcome: (list(data).index(outcome.dataset), -outcome.target),
        ),
        "beliefs": beliefs,
        "pictures": _write_episode_gifs(measured, out),
        "costs": _list_training_costs(measured),
        "data": data,
        "selected": {
            variant: why
            for variant, why in config.selected.items()
            if any(outcome.variant == variant for outcome in outcomes)
        },
        "marked": lambda variant: variant + SELECTED if variant in config.selected else variant,
        "number": results.format_rounded_number,
        "exactly": results.format_exact_number,
        "interval": results.format_half_width,
        "range": results.format_interval_bounds,
    }
    pages.write_report_pages(
        Path(__file__).parent / "reporting/templates",
        "offline_report",
        view,
        _render_figures(measured, outcomes, data, together),
        out,
    )
    metrics = _compute_metrics(first, data)
    rows = {f"{dataset}/{variant}": row for dataset, variants in metrics.items() for variant, row in variants.items()}
    pages.write_metrics(rows, out)
    return metrics


def format_best_variants(
    first: Sequence[VariantResult], data: Mapping[str, Description], by: Literal["score", "return"]
) -> list[str]:
    """The variant with the highest mean on each data set, in one sentence."""
    tops = dict[str, tuple[float, str]]()
    for outcome in first:
        mean = (
            results.convert_return_to_score(outcome.estimate, data[outcome.dataset]["reference"])
            if by == "score"
            else outcome.estimate
        ).mean
        tops[outcome.dataset] = max(
            tops.get(outcome.dataset, (mean, outcome.variant)), (mean, outcome.variant), key=lambda top: top[0]
        )
    leaders = ", ".join(f"{variant} on {dataset} ({mean:.1f})" for dataset, (mean, variant) in tops.items())
    return [f"By mean {by} in the environment, which no offline method sees, the best is {leaders}."]


def _build_results_tables(first: Sequence[VariantResult], data: Mapping[str, Description]) -> list[ResultsTable]:
    """Own scores, D4RL's where there are any, and returns."""
    score_note = (
        "100 (R - random) / (expert - random) with returns measured here; in environments of this "
        "repository the expert is the optimum; an imported data set or transitions.references may say "
        "both returns."
    )
    theirs = (
        "With D4RL's reference returns, which are of version 2 of these environments: comparable with "
        "published tables in kind only."
    )
    made = [
        results.build_results_table("Score", score_note, first, data, "reference"),
        results.build_results_table("D4RL score", theirs, first, data, "d4rl"),
        results.build_results_table("Return", "Undiscounted, in the environment's own units.", first, data, None),
    ]
    return [table for table in made if table.rows]


def _render_figures(
    measured: Sequence[ReturnScores],
    outcomes: Sequence[VariantResult],
    data: Mapping[str, Description],
    together: Sequence[Together],
) -> dict[str, str]:
    kinds = {
        "profiles": (_build_profile_panels(together), "score", "share of runs above it"),
        "learning": (_build_learning_curve_panels(measured, data), "gradient steps", "score"),
        "asked": (_build_target_return_panels(outcomes, data), "return asked for", "return reached"),
        "beliefs": (
            _build_claimed_value_panels(measured, data),
            "discounted return reached, past the time limit",
            "claimed by Q",
        ),
        "fitted": (_build_fitted_q_panels(measured, data), "steps of fitted-Q evaluation", "estimate"),
    }
    return {
        name: plots.render_small_multiples(panels, x, y, name, diagonal=name in ("asked", "beliefs"))
        for name, (panels, x, y) in kinds.items()
        if panels
    }


def _build_learning_curve_panels(measured: Sequence[ReturnScores], data: Mapping[str, Description]) -> list[Panel]:
    """The evaluations on the way, as scores; a method that was evaluated only once has no curve."""
    panels = []
    for dataset, described in data.items():
        score = ScoreReference(**described["reference"]).score
        lines: dict[str, list[Line]] = {}
        for scores in measured:
            if scores.description["dataset"] == dataset:
                for (variant, _), curve in scores.progress.groupby(["variant", "seed"], sort=False):
                    if len(curve) > 1:
                        lines.setdefault(str(variant), []).append(
                            (curve["step"].tolist(), [score(r) for r in curve["return"]])
                        )
        levels = {name: score(fact.mean) for name, fact in results.get_dataset_returns(described).items()}
        if lines:
            panels.append(Panel(dataset, lines, levels))
    return panels


def _build_profile_panels(together: Sequence[Together]) -> list[Panel]:
    return [
        Panel(
            ", ".join(group.datasets),
            {variant: [(group.levels.tolist(), shares.tolist())] for variant, shares in group.profiles.items()},
            {},
        )
        for group in together
    ]


def _build_target_return_panels(outcomes: Sequence[VariantResult], data: Mapping[str, Description]) -> list[Panel]:
    panels = []
    for dataset, described in data.items():
        points: dict[str, list[Line]] = {}
        for outcome in outcomes:
            if outcome.dataset == dataset and outcome.has_target:
                points.setdefault(outcome.variant, []).append(
                    ([outcome.target] * len(outcome.returns), list(outcome.returns))
                )
        if points:
            levels = {name: fact.mean for name, fact in results.get_dataset_returns(described).items()}
            panels.append(Panel(dataset, points, levels))
    return panels


def _build_claimed_value_panels(measured: Sequence[ReturnScores], data: Mapping[str, Description]) -> list[Panel]:
    panels = []
    for dataset in data:
        points: dict[str, list[Line]] = {}
        for scores in measured:
            if scores.description["dataset"] == dataset:
                claims = scores.values[scores.values["source"] == CLAIMED]
                for variant, beliefs in claims.groupby("variant", sort=False):
                    points.setdefault(str(variant), []).append((beliefs["truth"].tolist(), beliefs["value"].tolist()))
        if points:
            panels.append(Panel(dataset, points, {}))
    return panels


def _build_fitted_q_panels(measured: Sequence[ReturnScores], data: Mapping[str, Description]) -> list[Panel]:
    """The estimates on the way: where the lines end they had settled, or their steps were used up."""
    panels = []
    for dataset in data:
        lines: dict[str, list[Line]] = {}
        for scores in measured:
            if scores.description["dataset"] == dataset:
                for (variant, _), fit in scores.fits.groupby(["variant", "seed"], sort=False):
                    lines.setdefault(str(variant), []).append((fit["step"].tolist(), fit["estimate"].tolist()))
        if lines:
            panels.append(Panel(dataset, lines, {}))
    return panels


def _write_episode_gifs(measured: Sequence[ReturnScores], out: Path) -> list[dict[str, object]]:
    """For each environment the film of its best policy, by score; the files go to `out`."""
    best: dict[str, tuple[float, ReturnScores]] = {}
    for scores in measured:
        score = ScoreReference(**scores.description["reference"]).score
        means = scores.episodes.groupby(["variant", "seed", "target"], dropna=False)["total"].mean()
        reached = score(float(means.max()))
        if reached > best.get(scores.description["environment"], (-float("inf"), scores))[0]:
            best[scores.description["environment"]] = (reached, scores)
    out.mkdir(parents=True, exist_ok=True)
    shown = []
    for environment, (_, scores) in best.items():
        file = f"{re.sub('[^A-Za-z0-9_.-]+', '-', environment)}.gif"  # an id may hold a colon or a slash
        (out / file).write_bytes(scores.picture)
        uri = "data:image/gif;base64," + b64encode(scores.picture).decode()
        shown.append(
            {
                "environment": environment,
                "file": file,
                "uri": uri,
                **scores.description,
                **scores.description["picture"],
            }
        )
    return shown


def _list_training_costs(measured: Sequence[ReturnScores]) -> list[tuple[str, str, int, int]]:
    """Variant, where, gradient steps, parameters: a row for all environments, or data sets, where both are the same."""
    costs: dict[tuple[str, int, int], dict[str, str]] = {}  # data sets and their environments
    for scores in measured:
        for variant, cost in scores.description["cost"].items():
            key = (variant, cost["steps"], cost["parameters"])
            costs.setdefault(key, {})[scores.description["dataset"]] = scores.description["environment"]

    def where(key: tuple[str, int, int]) -> str:
        elsewhere = {
            environment
            for other, environments in costs.items()
            for environment in environments.values()
            if other[0] == key[0] and other != key
        }
        names = [name if environment in elsewhere else environment for name, environment in costs[key].items()]
        return ", ".join(dict.fromkeys(names))

    return [(variant, where((variant, steps, size)), steps, size) for variant, steps, size in costs]


def _compute_metrics(
    first: Sequence[VariantResult], data: Mapping[str, Description]
) -> dict[str, dict[str, dict[str, float]]]:
    """METRICS of all data sets and variants."""
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    for outcome in first:
        score = ScoreReference(**data[outcome.dataset]["reference"]).score
        interval = estimate_mean_over_seeds([score(value) for value in outcome.returns])
        numbers = {"score": interval.mean} | (
            {"half_width": interval.high - interval.mean} if len(outcome.returns) > 1 else {}
        )
        metrics.setdefault(outcome.dataset, {})[outcome.variant] = numbers
    return metrics


if __name__ == "__main__":
    main(run)

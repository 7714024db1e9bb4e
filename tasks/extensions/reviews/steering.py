"""Steered policies beside the SFT model: are their continuations of neutral openings more positive, by whose word, and
at what price?

The second classifier learns from labels that the reward model never saw, and is never a reward. Both are measured on
the same held-out reviews.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from tasks.common import estimates, models, pages, tables, tracking
from tasks.common.errors import DataError
from tasks.common.estimates import Estimate
from tasks.extensions.reviews import continuations, measures, steering_page, word_classifier
from tasks.extensions.reviews.configs.steering import SteeringConfig
from tasks.extensions.reviews.tables.reviews import Reviews
from tasks.extensions.reviews.tables.steering import Continuations, SteeringMeasures
from tasks.extensions.reviews.word_classifier import WordClassifier
from tasks.stage import Metrics, main

SFT = "sft"
PRAISE = 20  # words that count as praise
METRICS = {
    "classifiers/first/ESTIMATE": "The share of the held-out reviews whose sentiment the reward model says rightly.",
    "classifiers/second/ESTIMATE": "The same share of the second classifier.",
    **{f"POLICY/{name}/ESTIMATE": text for name, text in measures.METRICS.items()},
}


def run(
    config: SteeringConfig,
    reviews: Path,
    problems: Path,
    reference: Path,
    reward_model: Path,
    policies: list[Path],
    out: Path,
) -> Metrics:
    """Write continuations.parquet, steering_measures.parquet and the page steering.html; `out` is named after its page
    of params.yaml.
    """
    labelled = tables.read_table(Reviews, reviews / "reviews.parquet")
    second = fit_second_classifier(config, labelled[labelled["part"] == "second"])
    judges = continuations.load_judges(reference, reward_model, second)
    held_out = labelled[labelled["part"] == "held_out"]
    classifiers = estimate_classifier_accuracies(
        held_out, continuations.compute_classifier_probabilities(judges, held_out)
    )
    wanted = config.pages[out.name].policies
    folders: dict[str, Path] = {SFT: reference, **{path.name: path for path in policies if path.name in wanted}}
    openings = continuations.load_test_openings(config, problems)
    samples = dict[str, pd.DataFrame]()
    for number, name in enumerate([SFT, *wanted]):
        with tracking.show_progress_as_part(number, len(wanted) + 1):
            policy = models.load_model(folders[name])
            samples[name] = continuations.sample_and_score_continuations(config, name, policy, openings, judges)
    praise = second.praise(PRAISE)
    values = {name: measures.aggregate_by_opening(continued, praise) for name, continued in samples.items()}
    measured = {
        name: measures.estimate_policy_measures(config, opening_values, values[SFT])
        for name, opening_values in values.items()
    }
    tables.write_table(Continuations, pd.concat(samples.values()), out / "continuations.parquet")
    tables.write_table(SteeringMeasures, measures.build_measures_table(measured), out / "steering_measures.parquet")
    tracking.record_table(measures.build_measures_table(measured), "steering.json")
    figures, shown = steering_page.build_steering_page(config, samples, measured, classifiers, praise)
    pages.write_report_pages(Path(__file__).parent / "templates", "steering", shown, figures, out)
    return {
        "classifiers": nest_estimates_by_name(classifiers),
        **{name: nest_estimates_by_name(estimates) for name, estimates in measured.items()},
    }


def fit_second_classifier(config: SteeringConfig, labelled: pd.DataFrame) -> WordClassifier:
    """The linear classifier, fitted to its own part of the labels."""
    if labelled.empty:
        raise DataError("reviews.parquet: no reviews of the part second; expected those that the stage reviews writes")
    texts = (labelled["opening"] + " " + labelled["continuation"]).tolist()
    return word_classifier.fit_word_classifier(texts, labelled["positive"].tolist(), config.minimum_count, config.l2)


def estimate_classifier_accuracies(held_out: pd.DataFrame, probabilities: pd.DataFrame) -> dict[str, Estimate]:
    """Each classifier's share of right labels."""
    truth = held_out["positive"].to_numpy()
    return {
        name: estimates.estimate_share(np.equal(probabilities[name].to_numpy() > measures.POSITIVE, truth))
        for name in ("first", "second")
    }


def nest_estimates_by_name(measured: dict[str, Estimate]) -> dict[str, Metrics]:
    """Estimates as numbers, nested by the parts of their names."""
    nested: dict[str, dict[str, Metrics]] = {}
    plain: dict[str, Metrics] = {}
    for name, estimate in measured.items():
        values = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
        group, _, rest = name.partition("/")
        if rest:
            nested.setdefault(group, {})[rest] = values
        else:
            plain[group] = values
    return {**plain, **nested}


if __name__ == "__main__":
    main(run, flow="language")

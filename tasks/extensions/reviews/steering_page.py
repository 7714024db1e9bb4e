"""What the page of `steering` shows: sentences made from the numbers, two figures, one table, continuations side by
side.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from tasks.common import plots, tables
from tasks.common.estimates import Estimate
from tasks.common.tables import Record
from tasks.extensions.reviews import measures
from tasks.extensions.reviews.configs.steering import SteeringConfig

Measured = Mapping[str, Mapping[str, Estimate]]  # by policy and measure
SHARES = ("positive/first", "positive/second", "gap", "distinct_1", "distinct_2", "commonest", "praise")  # in per cent
COLUMNS = {
    "positive/first": "positive, by the reward",
    "positive/second": "positive, by the second",
    "gap": "gap",
    "kl": "KL, nats",
    "kl_token": "KL a token",
    "perplexity": "perplexity under sft",
    "distinct_1": "distinct words",
    "distinct_2": "distinct pairs",
    "commonest": "commonest sentence",
    "praise": "words of praise",
    "tokens": "tokens",
}
FEWER = 0.8  # of the SFT model's share of distinct pairs, below which a policy is said to repeat itself


def build_steering_page(
    config: SteeringConfig,
    samples: Mapping[str, pd.DataFrame],
    measured: Measured,
    classifiers: Mapping[str, Estimate],
    praise: Sequence[str],
) -> tuple[dict[str, str], dict[str, object]]:
    """The figures by name, and what the templates ask for."""
    top = {name: measures.find_commonest_sentence(table["continuation"].tolist()) for name, table in samples.items()}
    first, *_ = samples
    shown = {
        "title": "Positive-review steering",
        "headline": [*format_steering_headline(measured, top)],
        "classifiers": {name: format_percent_interval(estimate) for name, estimate in classifiers.items()},
        "columns": COLUMNS,
        "rows": [
            {"name": name, "cells": [format_estimate_cell(estimates, key) for key in COLUMNS]}
            for name, estimates in measured.items()
        ],
        "meaning": {COLUMNS[name]: measures.METRICS[name] for name in COLUMNS},
        "top": top,
        "praise": praise,
        "beside": [*select_example_continuations(config, samples)],
        "openings": samples[first]["opening_id"].nunique(),
        "samples": config.samples,
    }
    figures = {
        "steering-kl": plots.render_scatter_plot(
            {name: (estimates["kl"], estimates["positive/second"]) for name, estimates in measured.items()},
            "KL to sft, nats",
            "positive, by the second classifier",
            "steering-kl",
        ),
        "steering-price": plots.render_scatter_plot(
            {name: (estimates["perplexity"], estimates["distinct_2"]) for name, estimates in measured.items()},
            "perplexity under sft",
            "distinct pairs of words",
            "steering-price",
        ),
    }
    return figures, shown


def format_steering_headline(measured: Measured, top: Mapping[str, str]) -> Iterator[str]:
    """What happened to each policy, in whole sentences."""
    sft, *policies = measured
    base = measured[sft]
    yield (
        f"Of {sft}'s continuations {format_percent_interval(base['positive/second'])} are positive by the classifier "
        "that is never a reward."
    )
    for name in policies:
        estimates = measured[name]
        gain = estimates["over_sft/second"]
        moved = "more" if gain.low > 0 else "fewer" if gain.high < 0 else "no surely different share"
        yield (
            f"{name}: {format_percent_interval(estimates['positive/second'])}, {moved} "
            f"({format_points_interval(gain)}), at a KL of "
            f"{estimates['kl'].mean:.2f} nats and a "
            f"perplexity of {estimates['perplexity'].mean:.2f} under {sft}, whose own continuations have "
            f"{base['perplexity'].mean:.2f}."
        )
        rise = estimates["gap"].low - base["gap"].high
        if rise > 0:
            yield (
                f"{name} pleases its reward more than the second classifier: the gap is "
                f"{format_points_interval(estimates['gap'])}."
            )
        if estimates["distinct_2"].high < FEWER * base["distinct_2"].low:
            yield (
                f"{name} repeats itself: of its pairs of words {format_percent_interval(estimates['distinct_2'])} "
                "are different "
                f"ones, of {sft}'s "
                f"{format_percent_interval(base['distinct_2'])}. Its commonest sentence, {top[name]!r}, is "
                f"{format_percent_interval(estimates['commonest'])} of all."
            )


def format_estimate_cell(estimates: Mapping[str, Estimate], name: str) -> Record:
    """A mean with the bounds of its interval as text."""
    scale, form = (100, "{:.1f}") if name in SHARES else (1, "{:.2f}")
    return {key: form.format(round(scale * getattr(estimates[name], key), 2) + 0.0) for key in ("mean", "low", "high")}


def select_example_continuations(config: SteeringConfig, samples: Mapping[str, pd.DataFrame]) -> Iterator[Record]:
    """The first sample of each policy to the first openings."""
    first = next(iter(samples.values()))
    for opening_id in first["opening_id"].unique()[: config.shown]:
        rows = {
            name: tables.list_records(table[(table["opening_id"] == opening_id) & (table["sample"] == 0)])[0]
            for name, table in samples.items()
        }
        yield {"opening": next(iter(rows.values()))["opening"], "answers": rows}


def format_percent_interval(value: Estimate) -> str:
    """A share with its interval."""
    return f"{100 * value.mean:.1f} % [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def format_points_interval(value: Estimate) -> str:
    """A difference of shares with its interval."""
    return f"{100 * value.mean:+.1f} points [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"

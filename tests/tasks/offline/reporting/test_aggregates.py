"""Aggregates over data sets: by hand, and as rliable computes them."""

import numpy as np
import pytest
from scipy import stats

from tasks.offline.reporting import aggregates
from tasks.offline.reporting.results import VariantResult


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Intervals of fewer resamples than a report has."""
    monkeypatch.setattr(aggregates, "RESAMPLES", 150)


def arrays(*rows):
    return [np.array(row, dtype=float) for row in rows]


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert aggregates.interquartile_mean(arrays([0, 10, 20, 1000], [30, 40, -500, 50])) == (10 + 20 + 30 + 40) / 4
    assert aggregates.interquartile_mean(arrays([1, 2, 6])) == 3, "a quarter of three is none"


def test_the_mean_weighs_data_sets_alike():
    assert aggregates.compute_mean_over_datasets(arrays([0, 0, 0, 0], [10])) == 5


def test_the_chance_of_an_improvement_by_hand():
    ones, others = arrays([1, 3], [5]), arrays([2, 3], [5])
    assert aggregates.probability_of_improvement(ones, others) == ((0 + 0 + 1 + 0.5) / 4 + 0.5) / 2


def test_a_profile_by_hand():
    assert aggregates.compute_performance_profile(arrays([0, 10], [20, 30]), [-1, 0, 15, 30]).tolist() == [
        1,
        0.75,
        0.5,
        0,
    ]


def test_they_are_what_rliable_computes():
    """rliable takes scipy's trimmed mean of all scores, and the U statistic of Mann and Whitney."""
    draw = np.random.default_rng(0)
    x, y = (list(draw.normal(size=(3, 10)).round(1)) for _ in range(2))
    trimmed = stats.trim_mean(np.stack(x, axis=1), proportiontocut=0.25, axis=None)
    assert aggregates.interquartile_mean(x) == pytest.approx(trimmed)
    chances = [
        stats.mannwhitneyu(one, other, alternative="greater").statistic / 100 for one, other in zip(x, y, strict=True)
    ]
    assert aggregates.probability_of_improvement(x, y) == pytest.approx(np.mean(chances))


def test_seeds_are_drawn_from_their_own_data_set():
    scores = arrays([0.0, 1.0], [100.0, 101.0])
    found = aggregates.bootstrap_statistic(aggregates.compute_mean_over_datasets, scores, np.random.default_rng(0))
    assert found.mean == 50.5
    assert (found.low, found.high) == (50, 51), "a mean of 0 or of 100 alone never comes"


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    draw, inside = np.random.default_rng(1), 0
    for _ in range(60):
        scores = [draw.normal(place, 10, size=10) for place in (0, 20, 40)]
        found = aggregates.bootstrap_statistic(aggregates.compute_mean_over_datasets, scores, draw)
        inside += found.low <= 20 <= found.high
    assert 48 <= inside <= 60


def test_each_variant_stands_beside_the_first():
    found = {
        "BC": {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])},
        "CQL": {"b": np.array([13.0, 14.0]), "a": np.array([11.0, 12.0])},
    }
    bc, cql = aggregates.aggregate_variants(found, "BC")
    assert (bc.variant, bc.improvement, bc.mean.mean) == ("BC", None, 2.5)
    assert cql.improvement == aggregates.Estimate(1.0, 1.0, 1.0)
    assert cql.iqm.low <= cql.iqm.mean == 12.5 <= cql.iqm.high


def result(variant, dataset, *returns):
    return VariantResult(variant.lower(), dataset, "env", variant, float("nan"), True, returns)


DATA = {name: {"reference": {"minimum": 0.0, "maximum": 200.0}} for name in ("a", "b", "c", "d")}


def test_data_sets_are_together_where_the_same_variants_were_measured_with_several_seeds():
    found = [
        *(result(variant, dataset, 10.0, 20.0) for dataset in ("a", "b") for variant in ("DQN", "BC")),
        *(result(variant, "c", 1.0, 2.0) for variant in ("BC", "CQL")),
        *(result(variant, "d", 1.0) for variant in ("BC", "DQN")),
    ]
    [group] = aggregates.aggregate_over_datasets(found, DATA)
    assert (group.datasets, group.beside) == (["a", "b"], "BC")
    assert [row.variant for row in group.rows] == ["DQN", "BC"]
    assert group.rows[0].mean.mean == 7.5, "scores, not returns"
    assert group.rows[0].improvement.mean == 0.5
    assert (group.levels[0], group.levels[-1]) == (5, 10)
    assert group.profiles["BC"][[0, -1]].tolist() == [0.5, 0]


def test_one_data_set_or_one_variant_is_not_put_together():
    assert aggregates.aggregate_over_datasets([result("BC", "a", 1.0, 2.0), result("BC", "b", 1.0, 2.0)], DATA) == []
    assert aggregates.aggregate_over_datasets([result("BC", "a", 1.0, 2.0), result("DT", "a", 1.0, 2.0)], DATA) == []

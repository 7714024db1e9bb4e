from math import inf

import numpy as np
import pytest

from tasks.common.estimates import Estimate, estimate_mean_over_seeds


def test_three_seeds_by_hand():
    """Mean 2, deviation 1: 2 -+ 4.3027 / sqrt 3."""
    found = estimate_mean_over_seeds([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.low == pytest.approx(2 - 2.4841377, abs=1e-5)
    assert found.high == pytest.approx(2 + 2.4841377, abs=1e-5)


def test_it_covers_the_mean_in_95_of_100_where_a_normal_interval_does_not():
    draws = np.random.default_rng(0).normal(5, 2, (4000, 3))
    found = [estimate_mean_over_seeds(row) for row in draws]
    assert np.mean([one.low <= 5 <= one.high for one in found]) == pytest.approx(0.95, abs=0.01)
    normal = 1.96 * draws.std(1, ddof=1) / 3**0.5
    assert np.mean(np.abs(draws.mean(1) - 5) <= normal) < 0.85


def test_one_seed_bounds_nothing_and_equal_seeds_leave_no_doubt():
    assert estimate_mean_over_seeds([4.0]) == Estimate(4.0, -inf, inf)
    assert estimate_mean_over_seeds([4.0, 4.0]) == Estimate(4.0, 4.0, 4.0)


@pytest.mark.parametrize("bad", [[], [[1.0, 2.0]]])
def test_one_value_a_seed(bad):
    with pytest.raises(ValueError, match="one value for each seed"):
        estimate_mean_over_seeds(bad)

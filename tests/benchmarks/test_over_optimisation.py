"""Best of n by a proxy, with the gold beside it, by hand."""

from math import log

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("tasks.extensions.search")
from benchmarks import over_optimisation


def test_the_kl_of_the_best_of_n():
    assert over_optimisation.best_of_n_kl(1) == 0
    assert over_optimisation.best_of_n_kl(4) == pytest.approx(log(4) - 0.75)


def test_proxy_and_gold_of_the_best_by_hand():
    """In the first problem the proxy orders as the gold does, in the second the other way round; of two, each pair
    counts as much.
    """
    drawn = pd.DataFrame(
        {
            "problem_id": ["a", "a", "b", "b"],
            "rubric": [0.2, 1.0, 0.9, 0.1],
            "right": [False, True, True, False],
        }
    )
    found = over_optimisation.measure_best_of_n(drawn, np.array([0.0, 2.0, 5.0, 7.0]))
    assert found["n"] == [1, 2]
    assert [row[0] for row in found["proxy"]] == pytest.approx([0.0, 1.0]), (
        "in standard deviations of a problem's samples"
    )
    assert [row[0] for row in found["rubric"]] == pytest.approx([0.55, 0.55])
    assert [row[0] for row in found["right"]] == pytest.approx([0.5, 0.5])
    assert found["rubric_over_one"][1][0] == pytest.approx(0.0)
    only = over_optimisation.measure_best_of_n(drawn[:2], np.array([0.0, 2.0]))
    assert [row[0] for row in only["rubric"]] == pytest.approx([0.6, 1.0])

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.language.reporting.strata import Components, Stratum, components


def of(*answers):
    """Each argument is a problem: its answers as pairs (inside, right)."""
    parts = [
        [np.mean([inside for inside, _ in own]) for own in answers],
        [np.mean([inside and right for inside, right in own]) for own in answers],
        [np.mean([right and not inside for inside, right in own]) for own in answers],
    ]
    return Stratum(*map(np.array, parts))


def means(found: Components):
    return found.total.mean, found.share.mean, found.inside.mean, found.outside.mean


def test_components_by_hand():
    """Ours: 3/4 inside, of which 2/3 are right, and 0 outside. The baseline: 1/2 inside, all right, 1/2 right outside."""
    ours = of([(1, 1), (1, 1)], [(1, 0), (0, 0)])
    base = of([(1, 1), (0, 1)], [(1, 1), (0, 0)])
    share = (3 / 4 - 1 / 2) * ((2 / 3 + 1) / 2 - (0 + 1 / 2) / 2)
    inside, outside = (2 / 3 - 1) * 5 / 8, (0 - 1 / 2) * 3 / 8
    found = components(ours, base, 0, 20)
    assert means(found) == pytest.approx((-1 / 4, share, inside, outside))
    assert share + inside + outside == pytest.approx(-1 / 4)


def test_unlearning_a_kind_of_answer_is_all_share():
    """Accuracy within each kind stays the same; a policy that drops the worse kind gains by its share alone."""
    ours, base = of([(1, 1)] * 4), of([(1, 1)] * 2 + [(0, 0)] * 2)
    assert means(components(ours, base, 0, 20)) == pytest.approx((1 / 2, 1 / 2, 0, 0))
    assert means(components(base, ours, 0, 20)) == pytest.approx((-1 / 2, -1 / 2, 0, 0))
    assert means(components(base, base, 0, 20)) == pytest.approx((0, 0, 0, 0))


def test_the_interval_is_paired():
    """An equal gain on every problem has an interval of width 0, however different the problems are."""
    base = of(*([(1, right)] * 4 for right in (0, 0, 1, 1, 0)))
    better = Stratum(base.inside, base.right_inside + 0.1, base.right_outside)
    found = components(better, base, 0, 200)
    assert (found.inside.low, found.inside.high) == pytest.approx((0.1, 0.1))
    assert (found.share.low, found.share.high) == (0, 0)


answers = st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=2), min_size=3, max_size=3)


@given(answers, answers)
def test_the_three_add_up(ours, base):
    total, *parts = means(components(of(*ours), of(*base), 0, 5))
    assert sum(parts) == pytest.approx(total, abs=1e-9)

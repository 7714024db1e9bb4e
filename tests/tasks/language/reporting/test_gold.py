"""The change of gold answers taken apart, by hand and by its sum."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tasks.language.reporting.gold import GOLD, PARTS, RIGHT, split_gold_change


def table(right, gold):
    return pd.DataFrame({RIGHT: right, GOLD: gold}, dtype=float)


def means(ours, theirs):
    return {name: float((one - other).mean()) for name, (one, other) in split_gold_change(ours, theirs).items()}


def test_by_hand():
    """Five problems: right in both and gold made, gold lost; made right and gold; lost, which was gold; made right, but
    not gold.
    """
    theirs = table([1, 1, 0, 1, 0], [0, 1, 0, 1, 0])
    ours = table([1, 1, 1, 0, 1], [1, 0, 1, 0, 0])
    assert means(ours, theirs) == dict(zip(PARTS, (0.0, 0.0), strict=True))
    ours = table([1, 1, 1, 1, 1], [1, 1, 1, 1, 0])
    assert means(ours, theirs) == {"gold_by_manner": 0.2, "gold_by_correctness": 0.2}


def test_manner_alone_and_correctness_alone():
    right, plain = [1, 1, 0, 0], [0, 0, 0, 0]
    assert means(table(right, [1, 1, 0, 0]), table(right, plain)) == {"gold_by_manner": 0.5, "gold_by_correctness": 0.0}
    more = table([1, 1, 1, 0], [1, 1, 1, 0])
    assert means(more, table(right, right)) == {"gold_by_manner": 0.0, "gold_by_correctness": 0.25}


ANSWER = st.sampled_from([(0, 0), (1, 0), (1, 1)])  # gold answers are right ones


@given(st.lists(st.tuples(ANSWER, ANSWER), min_size=1, max_size=30))
def test_the_parts_add_up_to_the_change(answers):
    ours, theirs = (table(*zip(*side, strict=True)) for side in zip(*answers, strict=True))
    total = float((ours[GOLD] - theirs[GOLD]).mean())
    assert abs(sum(means(ours, theirs).values()) - total) < 1e-12


def test_nothing_where_gold_is_not_measured():
    assert split_gold_change(table([1], [np.nan]), table([1], [1])) == {}
    assert split_gold_change(pd.DataFrame({RIGHT: [1.0]}), table([1], [1])) == {}

"""Krippendorff's alpha: published examples, and the package `krippendorff` as oracle on any matrix."""

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.extensions.labelling.measures.agreement import (
    LEVELS,
    build_agreement_units,
    krippendorff_alpha,
    krippendorff_alpha_by_person,
)

# Krippendorff 2011, "Computing Krippendorff's alpha-reliability", part C: four observers, twelve units, gaps.
FOUR_OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
# Part A: two observers, ten units, two values; part B: five values of two observers.
TWO_OBSERVERS = [[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]
FIVE_VALUES = [[1, 1, 2, 2, 4, 3, 3, 3, 5, 4, 4, 1], [2, 1, 2, 2, 2, 3, 3, 3, 5, 4, 4, 4]]
# Hayes and Krippendorff 2007 and the article on Wikipedia: three observers, fifteen units.
THREE_CODERS = [
    [None, None, None, None, None, 3, 4, 1, 2, 1, 1, 3, 3, None, 3],
    [1, None, 2, 1, 3, 3, 4, 3, None, None, None, None, None, None, None],
    [None, None, 2, 1, 3, 4, 4, None, 2, 1, 1, 3, 3, None, 4],
]


@pytest.mark.parametrize(
    ("rows", "level", "published"),
    [
        (FOUR_OBSERVERS, "nominal", 0.743),
        (FOUR_OBSERVERS, "ordinal", 0.815),
        (FOUR_OBSERVERS, "interval", 0.849),
        (TWO_OBSERVERS, "nominal", 0.095),
        (FIVE_VALUES, "nominal", 0.692),
        (THREE_CODERS, "nominal", 0.691),
        (THREE_CODERS, "interval", 0.811),
    ],
)
def test_published_examples(rows, level, published):
    assert krippendorff_alpha(build_agreement_units(rows), level) == pytest.approx(published, abs=6e-4)


def test_by_hand():
    """Two units with values 1 1 and 1 2: D_o is 2 / 4, D_e is 2 * 3 / (4 * 3), so alpha is 0."""
    units = build_agreement_units([[1, 1], [1, 2]])
    assert [krippendorff_alpha(units, level) for level in LEVELS] == [0.0, 0.0, 0.0]
    assert krippendorff_alpha(build_agreement_units([[1, 2, 3], [1, 2, 3]]), "ordinal") == 1.0


def test_of_people_by_hand():
    """anna and bert agree on both units, carl contradicts both: anna's pairs differ in 2 of 4, carl's in 4 of 4; D_e is
    9 / 15 * ...

    Values 1 1 2 and 2 2 1: three of each, so D_e = 2 * 3 * 3 / (6 * 5) = 0.6.
    """
    units = build_agreement_units([[1, 2], [1, 2], [2, 1]])
    assert krippendorff_alpha_by_person(units, "nominal") == pytest.approx(
        {"0": 1 - 0.5 / 0.6, "1": 1 - 0.5 / 0.6, "2": 1 - 1 / 0.6}
    )


def test_where_alpha_is_not_defined():
    nobody, alone, one_value = (
        {},
        build_agreement_units([[1, 2, None], [None, None, 3]]),
        build_agreement_units([[1, 1], [1, 1]]),
    )
    assert (
        krippendorff_alpha(nobody, "nominal")
        is krippendorff_alpha(alone, "interval")
        is krippendorff_alpha(one_value, "ordinal")
        is None
    )
    assert (
        krippendorff_alpha_by_person(alone, "nominal")
        == krippendorff_alpha_by_person(one_value, "nominal")
        == {"0": None, "1": None}
    )
    assert krippendorff_alpha_by_person(
        build_agreement_units([[1, 2], [1, 3], [None, None], [None, 2]]), "nominal"
    ).keys() == {
        "0",
        "1",
        "3",
    }


GIVEN = st.one_of(st.none(), st.integers(-4, 4), st.sampled_from([0.5, 2.25]))
MATRICES = st.tuples(st.integers(2, 5), st.integers(1, 8)).flatmap(
    lambda shape: st.lists(st.lists(GIVEN, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
)


@given(MATRICES, st.sampled_from(LEVELS))
@settings(max_examples=25)
def test_any_matrix_gives_the_numbers_of_the_package(rows, level):
    ours = krippendorff_alpha(build_agreement_units(rows), level)
    matrix = np.array(rows, dtype=float)
    several = (~np.isnan(matrix)).sum(axis=0) > 1
    pairable = matrix[:, several]
    if len(np.unique(pairable[~np.isnan(pairable)])) < 2:
        assert ours is None
    else:
        assert ours == pytest.approx(krippendorff.alpha(matrix, level_of_measurement=level), abs=1e-12)


@given(MATRICES, st.sampled_from(LEVELS))
@settings(max_examples=25)
def test_the_disagreement_of_all_is_between_those_of_the_people(rows, level):
    """Each pair within a unit is one of two people's, so the whole is a weighted mean of theirs."""
    ours, people = (
        krippendorff_alpha(build_agreement_units(rows), level),
        krippendorff_alpha_by_person(build_agreement_units(rows), level),
    )
    known = [value for value in people.values() if value is not None]
    if ours is not None:
        assert min(known) - 1e-9 <= ours <= max(known) + 1e-9

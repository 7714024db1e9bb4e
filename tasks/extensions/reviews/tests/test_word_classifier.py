"""The classifier over words and pairs of words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.extensions.reviews.word_classifier import (
    WordClassifier,
    build_term_matrix,
    fit_word_classifier,
    list_words_and_bigrams,
    split_words,
)

TEXTS = ["The plot was dull.", "The plot was not dull.", "A fresh cast.", "A stale cast."]
LABELS = [False, True, True, False]


def test_words_and_pairs():
    assert split_words("It's NOT dull, is it?") == ["it's", "not", "dull", ",", "is", "it", "?"]
    assert list_words_and_bigrams("Not dull.") == ["not", "dull", ".", "not dull", "dull ."]
    assert list_words_and_bigrams("") == []


def test_presence_counts_a_term_once_and_passes_over_unknown_ones():
    found = build_term_matrix(["so so so", "new"], {"so": 1, "so so": 0}).to_dense()
    assert found.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_a_probability_by_hand():
    one = WordClassifier({"good": 0, "good film": 1, "film": 2}, np.array([1.0, 0.5, -0.25]), 0.125)
    expected = [1 / (1 + np.exp(-logit)) for logit in (1 + 0.5 - 0.25 + 0.125, 0.125)]
    assert one.positive(["A good film", "Nothing"]) == pytest.approx(expected)


def test_pairs_tell_a_negation():
    """By single words alone the first two texts differ in `not` only, which then has to be praise itself."""
    found = fit_word_classifier(TEXTS * 3, LABELS * 3, 1, 0.1)
    assert (found.positive(TEXTS) > 0.5).tolist() == LABELS
    assert found.weights[found.places["not dull"]] > 0 > found.weights[found.places["was dull"]]


def test_rare_terms_do_not_count():
    assert {*fit_word_classifier(TEXTS, LABELS, 2, 1.0).places} == {
        "the",
        "plot",
        "was",
        "dull",
        ".",
        "a",
        "cast",
        "the plot",
        "plot was",
        "dull .",
        "cast .",
    }


def test_praise_is_the_words_of_the_largest_weights():
    found = WordClassifier(
        {"not dull": 0, "fresh": 1, "!": 2, "stale": 3, "moving": 4}, np.array([9.0, 2.0, 8.0, -1.0, 3.0]), 0.0
    )
    assert found.praise(2) == ["moving", "fresh"]


@given(st.permutations(range(4)))
def test_the_order_of_the_texts_does_not_matter(order):
    one, other = (
        fit_word_classifier(TEXTS, LABELS, 1, 1.0),
        fit_word_classifier([TEXTS[n] for n in order], [LABELS[n] for n in order], 1, 1.0),
    )
    assert one.places == other.places
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)

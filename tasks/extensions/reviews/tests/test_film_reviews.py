"""The grammar of film reviews: a parser of its own says the label, and the opening says nothing of it."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.extensions.reviews import film_reviews
from tasks.extensions.reviews.film_reviews import (
    BLAME,
    DISLIKED,
    DOWN,
    FACTS,
    LIKED,
    PRAISE,
    UP,
    generate_continuation,
    generate_review,
)

GOOD, BAD = {*PRAISE}, {*BLAME}


def said(sentence):
    """What one sentence says, by its words: 1, -1, or 0 for a fact.

    Of `but` the second half counts, and a negation turns round.
    """
    if sentence in (*UP, *DOWN):
        return 1 if sentence in UP else -1
    if sentence.startswith((*LIKED, *DISLIKED)):
        return 1 if sentence.startswith(LIKED) else -1
    words = re.findall(r"\w+", sentence.split(", but ")[-1])
    found = [1 if word in GOOD else -1 for word in words if word in GOOD | BAD]
    if not found:
        assert sentence in FACTS
        return 0
    assert len(found) == 1
    return -found[0] if {"not", "never"} & {*words} else found[0]


def parsed(text):
    return [said(part) for part in re.split(r"(?<=\.) ", text)]


@given(st.integers(0, 2**32), st.booleans(), st.floats(0, 1), st.floats(0, 1))
def test_every_sentence_agrees_with_the_label(seed, positive, mixed, negated):
    found = [one for one in parsed(generate_continuation(random.Random(seed), positive, mixed, negated)) if one]
    assert found
    assert {*found} == {1 if positive else -1}


@given(st.integers(0, 2**32))
def test_the_opening_is_drawn_without_the_label(seed):
    """With the other label the same opening is drawn, and it has no word that judges."""
    one, other = (generate_review(random.Random(seed), share, 0.3, 0.2) for share in (1e-9, 1 - 1e-9))
    assert (one.positive, other.positive) == (False, True)
    assert one.opening == other.opening
    assert not {*re.findall(r"\w+", one.opening)} & (GOOD | BAD)


@pytest.mark.parametrize(("mixed", "negated", "word"), [(1.0, 0.0, ", but "), (0.0, 1.0, " not | never ")])
def test_shares_of_kinds(mixed, negated, word):
    texts = [generate_continuation(random.Random(seed), True, mixed, negated) for seed in range(30)]
    judging = [part for text in texts for part in re.split(r"(?<=\.) ", text) if part not in (*UP, *FACTS)]
    assert all(re.search(word, part) for part in judging)
    assert not any(re.search(word, generate_continuation(random.Random(seed), True, 0.0, 0.0)) for seed in range(30))


def test_a_judgement_by_hand():
    assert parsed(
        "The plot was not dull. The cast was quite stale, but the music was fresh. It runs for two hours."
    ) == [1, 1, 0]
    assert parsed("I hated the ending. Do not bother.") == [-1, -1]


def test_no_word_praises_and_blames():
    assert not GOOD & BAD
    assert len(film_reviews.ASPECTS) >= 6, "three sentences on two aspects each"

"""Rankings as people type them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.extensions.labelling import rankings


def test_the_lectures_example():
    """D > G > A = B, as the slide shows it of four answers; and as InstructGPT's figure has it, with letters in a
    row.
    """
    assert rankings.parse_ranking("D > G > A = B", "ABDG") == (3, 3, 1, 2)
    assert rankings.parse_ranking("D > C > A = B", "ABCD") == (3, 3, 2, 1)


@pytest.mark.parametrize("text", ["D>C>A=B", " d  > c>\ta =B ", "D > C > B = A", "d>C>b=a"])
def test_spaces_and_case_and_the_order_of_ties_do_not_matter(text):
    assert rankings.parse_ranking(text, "ABCD") == (3, 3, 2, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a ranking; such as C > B > A"),
        ("   ", "expected a ranking; such as C > B > A"),
        ("A > B", "C, D are not there; expected each letter once"),
        ("A > B > C", "D is not there; expected each letter once"),
        ("A > B > C > D > A", "A stands 2 times; expected each letter once"),
        ("A > B > C > E", "expected a letter of A, B, C, D, got 'E'; such as C > B > A"),
        ("A B C D", "expected > or = behind A, got 'B'; such as C > B > A"),
        ("A > B >", "expected a letter behind >; such as C > B > A"),
        ("A < B", "expected > or = behind A, got '<'"),
        ("A > = B", "expected a letter of A, B, C, D, got '='"),
        ("1 > 2", "expected a letter of A, B, C, D, got '1'"),
        ("> A", "expected a letter of A, B, C, D, got '>'"),
    ],
)
def test_an_error_says_what_was_expected(text, words):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        rankings.parse_ranking(text, "ABCD")


def test_shown_and_kept_ranks_by_hand():
    """The item's answers 2, 0, 1 were shown as A, B, C: A > B = C says that answer 2 is best."""
    assert rankings.convert_ranks_to_item_order(rankings.parse_ranking("A > B = C", "ABC"), (2, 0, 1)) == (2, 2, 1)
    assert rankings.format_ranking(rankings.convert_ranks_to_shown_order((2, 2, 1), (2, 0, 1))) == "A > B = C"


RANKED = st.integers(1, 26).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(1, count), min_size=count, max_size=count).map(
            lambda ranks: tuple(sorted(set(ranks)).index(rank) + 1 for rank in ranks)
        ),
        st.permutations(range(count)),
    )
)


@given(RANKED)
def test_every_ranking_is_read_back(case):
    ranks, order = case
    names = rankings.get_answer_letters(len(ranks))
    assert rankings.parse_ranking(rankings.format_ranking(ranks), names) == ranks
    assert rankings.convert_ranks_to_item_order(rankings.convert_ranks_to_shown_order(ranks, order), order) == ranks


@given(st.text("ABCabc>= \n") | st.text())
def test_any_text_is_a_ranking_or_told_in_one_line(text):
    told = ""
    try:
        assert set(rankings.parse_ranking(text, "ABC")) in ({1}, {1, 2}, {1, 2, 3})
    except ValueError as error:
        told = str(error)
    assert "\n" not in told

"""Sentences against the counts of the tokenizer that IFEval's code uses."""

import pytest

from tasks.language.rewards.sentences import count_sentences


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (
            "1. Wash the rice.\n2. Boil it for 20 min.\n3. Serve.",
            6,
        ),  # the tokenizer takes a number before a capital for one
        ("1. wash the rice\n2. boil it\n3. serve", 1),
        ("1) Wash the rice\n2) Boil it", 1),
        ("- Wash the rice.\n- Boil it.", 2),
        ("**1. Wash** the rice!\n\n**2. Boil** it.", 4),
        ("It costs 3.50 in the U.S. and 2.75 elsewhere.", 1),
        ("He lives in the U.S. The weather is fine.", 2),
        ("Mr. and Mrs. Low met Dr. J. Hill on Jan. 5 at 4 p.m. sharp.", 1),
        ("We saw birds, e.g. owls, i.e. at night, etc. and left.", 4),  # none of its abbreviations
        ("Wait... what? No!", 2),
        ("Wait... The end.", 2),
        ('He said "Go." Then (it was late.) he went.', 3),
        ("Really?! Yes!!", 3),  # the last sign stands alone
        ("It is A. Take the next.", 2),
        ("What is in the table?**", 2),
        ("no stop", 1),
        ("See www.a.com or v1.2.3 of it", 1),
        ("", 0),
    ],
)
def test_sentences_as_the_published_code_counts_them(text, count):
    """The counts are those of NLTK 3.10.4 with its English Punkt model."""
    assert count_sentences(text) == count

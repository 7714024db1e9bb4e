"""Ways to find the answer in a response, by hand."""

import time

import pytest

from tasks.extensions.suites.extraction import METHODS

BOTH = "The answer is 3.\n#### 4\nso \\boxed{5}, or 6"


@pytest.mark.parametrize(
    ("method", "response", "expected"),
    [
        ("qwen", BOTH, "5"),
        ("box", BOTH, "5"),
        ("sentence", BOTH, "3"),
        ("line", BOTH, "4"),
        ("last number", BOTH, "6"),
        ("strict-match", BOTH, "4"),
        ("flexible-extract", BOTH, "6"),
        ("whole", BOTH, BOTH),
        ("qwen", "Final Answer: The final answer is $2x$. I hope it is correct. \\boxed{9}", "2x"),
        ("qwen", "\\boxed{\\frac{1}{2}} is it", "\\frac{1}{2}"),
        ("qwen", "\\boxed 7$ it is", "7"),
        ("qwen", "\\boxed{7 never closed", "7 never closed"),
        ("qwen", "So the answer is:\n 12.", "12"),
        ("qwen", "1,234 in all", "1234"),
        ("qwen", "no number", None),
        ("box", "\\boxed{7 never closed", None),
        ("sentence", "the Answer is $x = 2$.\nMore", "x = 2"),
        ("sentence", "nothing", None),
        ("line", "#### 1\n#### 2\n####", "2"),
        ("last number", "from 1,234,567.5 to -3", "-3"),
        ("last number", "1,234,567.5", "1234567.5"),
        ("last number", "", None),
        ("strict-match", "#### -1,234.5 or #### 7", "-1,234.5"),
        ("flexible-extract", "$1,234. ", "$1,234."),
        ("flexible-extract", "none", None),
        ("letter", "The answer is (C).", "C"),
        ("bare letter", " (c)\n", "C"),
        ("bare letter", " ", None),
    ],
)
def test_by_hand(method, response, expected):
    assert METHODS[method](response) == expected


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", ["1,", "\\boxed{", "answer is", "#### ", "$.", "-", "{}", "A or "])
def test_a_hostile_response_takes_no_longer_than_its_length(method, text):
    """Of 200,000 characters each may take a tenth of a millisecond of processor time; linear methods take a hundredth
    of that.
    """
    began = time.process_time()
    METHODS[method](text * (200_000 // len(text)))
    assert time.process_time() - began < 20

from fractions import Fraction

import pytest

from tasks.language.rewards.equations import parse_equations, select_distinct_equations
from tasks.language.rewards.numerals import find_numbers, parse_number


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3 pens and $1,200.50", ["3", "$1,200.50"]),
        ("16-3 is 13", ["16", "3", "13"]),
        ("it fell to -5", ["-5"]),
        ("1, 2 and 3,4", ["1", "2", "3", "4"]),
        ("20% of .5.", ["20%", ".5"]),
        ("12345", ["12345"]),
        ("none", []),
    ],
)
def test_numbers(text, found):
    assert find_numbers(text) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,000", 1000), ("$2.50", Fraction(5, 2)), ("-5", -5), ("20%", Fraction(1, 5)), (".5", Fraction(1, 2))],
)
def test_parse_number(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    ("text", "value", "result", "holds"),
    [
        ("Now there are 20 + 17 = 37 pears.", 37, 37, True),
        ("20 + 17 = 38", 37, 38, False),
        ("She bought 3*4 = <<3*4=12>>12 pens.", 12, 12, True),
        ("48 pens / 2 = <<48/2=24>>24 pens", 24, 24, True),
        ("$1,200 / 2 = $600", 600, 600, True),
        ("2 + 3 * 4 = 14", 14, 14, True),
        ("(2 + 3) * 4 = 20", 20, 20, True),
        ("10 - 4 - 3 = 3", 3, 3, True),
        ("24 / 4 / 2 = 3", 3, 3, True),
        ("150 * 20% = 30", 30, 30, True),
        ("10 / 3 = 3.33", Fraction(10, 3), Fraction(333, 100), True),
        ("10 / 3 = 3.3", Fraction(10, 3), Fraction(33, 10), True),
        ("10 / 3 = 3.4", Fraction(10, 3), Fraction(34, 10), False),
        ("10 / 3 = 3", Fraction(10, 3), 3, False),
        ("5 - 8 = -3", -3, -3, True),
        ("5 / 0 = 0", None, 0, False),
        ("(2 + 3 = 5", None, 5, False),
        ("3 times 4 is 12", 12, 12, True),
        ("6 \u00d7 4 = 24", 24, 24, True),
        ("9 \u2212 4 = 5", 5, 5, True),
    ],
)
def test_one_equation(text, value, result, holds):
    (step,) = parse_equations(text)
    assert (step.value, step.result, step.holds) == (value, result, holds)


def test_order_and_repeats():
    text = "3 + 4 = 7 and 7 * 2 = 14.\nSo <<7*2=14>>14; again 4 + 3 = 7."
    steps = parse_equations(text)
    assert [step.text for step in steps] == ["3 + 4 = 7", "7 * 2 = 14", "7*2 = 14", "4 + 3 = 7"]
    assert [step.text for step in select_distinct_equations(steps)] == ["3 + 4 = 7", "7 * 2 = 14"]


def test_a_step_that_is_corrected_is_another_one():
    assert [
        step.holds for step in select_distinct_equations(parse_equations("4 - 20 = 16\n20 - 4 = 16\n20 - 4 = 16"))
    ] == [False, True]


def test_a_chain_is_its_last_equation():
    assert [step.text for step in parse_equations("3 + 4 + 5 = 7 + 5 = 12")] == ["7 + 5 = 12"]


@pytest.mark.parametrize("text", ["x = 5", "the total is 5", "3 + = 4", "12", "3 + 4"])
def test_no_equation(text):
    assert parse_equations(text) == []


def test_rambling_in_digits_is_read_without_an_error():
    assert parse_number(find_numbers("1" * 5000)[0]) > 0
    assert len(parse_equations("+".join(["1"] * 3000) + " = 3000")) == 1
    assert [step.value for step in parse_equations("(" * 3000 + "1 + 1" + ")" * 3000 + " = 2")] == [2]

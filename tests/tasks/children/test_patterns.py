"""Regular expressions of strangers, within limits of time and memory."""

import pytest

from tasks.children import patterns
from tasks.children.patterns import find_pattern_fault

NAMES = [f"model.layers.{n}.self_attn.{part}_proj" for n in range(40) for part in "qkvo"]
FORMS = {"whole": "{}", "end": r"(.*\.)?({})$"}


@pytest.mark.parametrize(
    "pattern",
    [
        "q_proj",
        "all-linear",
        r".*\.layers\.\d+\.self_attn\.(q|k)_proj",
        r"^model\.layers\.1\.",
        "",
        "x{3}",
        "[qk]_proj",
    ],
)
def test_those_that_people_write_are_none(pattern):
    assert find_pattern_fault({"whole": [pattern], "end": [pattern]}, FORMS, NAMES) == ""


HOSTILE = {
    "(.+)+!": r"takes more than 1 s to match, or 512 MiB",
    "(?:.|[a-z])*!": "takes more than 1 s to match, or 512 MiB",
    r"(.*)*\1!": "takes more than 1 s to match, or 512 MiB",
    "(((.{0,9}){0,99}){0,99}){0,99}!": "takes more than 1 s to match, or 512 MiB",
    "(" * 3000 + ")" * 3000: "is no regular expression (",
    "(": "is no regular expression (missing ), unterminated subpattern at position 0)",
    "a)": "is no regular expression (unbalanced parenthesis at position 1)",
    "*": "is no regular expression (nothing to repeat at position 0)",
    "a{9999999999999}": "is no regular expression (the repetition number is too large",
}


@pytest.mark.parametrize("pattern", HOSTILE)
def test_those_that_take_for_ever_are_named(pattern, monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 1)
    said = find_pattern_fault({"whole": ["q_proj", ".*", pattern]}, FORMS, NAMES)
    shown = repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")
    assert said.startswith(f"whole: {shown} {HOSTILE[pattern]}"), said
    assert len(said) < 250


def test_simple_ones_start_no_process(monkeypatch):
    monkeypatch.delattr(patterns, "subprocess")
    assert find_pattern_fault({"end": NAMES}, FORMS, NAMES) == ""


def test_an_expression_is_tried_as_a_part_of_its_form(monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 1)
    expressions, forms = {"alone": ["(a+)"], "many": ["(a+)"]}, {"alone": "{}", "many": "{}+!"}
    assert find_pattern_fault(expressions, forms, ["a" * 40]) == "many: '(a+)' takes more than 1 s to match, or 512 MiB"

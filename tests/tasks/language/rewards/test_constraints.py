"""Constraints that a program can check: each kind by hand, hostile responses, and what is said of wrong ones."""

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.rewards.constraint_kinds import KINDS
from tasks.language.rewards.constraints import compute_satisfied_share, find_constraints_fault, is_constraint_satisfied

LESS, LEAST = {"relation": "less than"}, {"relation": "at least"}
CASES = [  # a constraint, responses that keep it, and responses that do not
    ("keywords:existence", {"keywords": ["fox", "Hen"]}, ["A FOX and a hen", "then foxes"], ["a fox", "f.x hen"]),
    ("keywords:frequency", {"keyword": "ab", "frequency": 2, "relation": "at least"}, ["AB, abc"], ["ab", "a b ab"]),
    ("keywords:frequency", {"keyword": "a.b", "frequency": 1, "relation": "less than"}, ["axb"], ["a.b"]),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["cat", "C++"]},
        ["category", "C#", "tomcat"],
        ["The Cat.", "in c++"],
    ),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "at least"}, ["#a #b"], ["#a"]),
    ("keywords:letter_frequency", {"letter": "T", "let_frequency": 2, "let_relation": "less than"}, ["Tea"], ["Tot"]),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        ['He said "Go!" Then he went.', "What? Nothing", "One. Two. Three."],
        ["Dr. Who met J. Doe at 3.14 p.m. or so", "no stop at all", "Wait... then"],
    ),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, ["two words", "one"], ["it's two"]),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n***\nb", "***a***b***"],
        ["a", "a\n\nb", "a***\n***b"],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "So"},
        ["a\n\nso be it", 'a\n\n  "SO, yes"', "a\n\nso\n\n \n"],
        ["so\n\na", "a\n\nsoon", "a\n\n\n\nso", "a\n\nso\n\nb", "so"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[a] [b c]", "[[a]\n[b]]"],
        ["[a\n] [b]", "[a] b]"],
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["Bye\np. s. more"], ["PS more", "P:S. no"]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["Bye. P. P. S"], ["P.S."]),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["so\n * a\n- b\n**c**"],
        ["* a", "* a\n* b\n* c", "- a\n*"],
    ),
    ("detectable_format:constrained_response", {}, ["So: My answer is no."], ["My answer is no", "my answer is yes."]),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* *b*", "**a**\n*b*"],
        ["*a*", "* *a* *", "*a\nb* *c"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2", "Section1 Section 2 Section 3"],
        ["Section 1", "SECTION 1 SECTION 2", "Section one Section two"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": [1]}', '```json\n{"a": 1}\n```', " 5 "],
        ["{'a': 1}", 'So: {"a": 1}', "[" * 99_999],
    ),
    ("detectable_format:title", {}, ["<<A title>>\ntext", "a <<b>> c"], ["<< >>", "<<a\nb>>", ">> a <<", "<a>", "<<a"]),
    (
        "combination:two_responses",
        {},
        ["a******b", "******\na\n******\nb"],
        ["a", "a******a ", "a******b******c", "a************b"],
    ),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Tell me. "}, [" tell ME. Yes"], ["Yes. Tell me.", "Tell"]),
    (
        "startend:end_checker",
        {"end_phrase": "The end."},
        ["So. the END.", '"It was. The end."'],
        ["The end", "The end. Not"],
    ),
    ("startend:quotation", {}, ['"all of it"', ' "" '], ['"', 'so "it"', "'all'", "“all”"]),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["NASA, USA!", "I'M"],
        ["NASA Usa", "IIs"],
    ),
    ("change_case:english_capital", {}, ["ALL 3 OF US."], ["ALL of US", "123"]),
    ("change_case:english_lowercase", {}, ["all 3 of us."], ["all of Us", "123"]),
    ("punctuation:no_comma", {}, ["a; b"], ["a, b"]),
    (
        "language:response_language",
        {"language": "de"},
        ["Der Zug kommt heute eine Stunde sp\u00e4ter an.", "Ich wei\u00df nicht, was das bedeuten soll: 42!"],
        ["The train is an hour late today.", "42!", "Le train arrive avec une heure de retard."],
    ),
]


@pytest.mark.parametrize(("name", "arguments", "kept", "broken"), CASES)
def test_each_kind_by_hand(name, arguments, kept, broken):
    assert [response for response in kept if not is_constraint_satisfied(response, name, arguments)] == []
    assert [response for response in broken if is_constraint_satisfied(response, name, arguments)] == []


def test_every_kind_has_a_case_and_a_blank_response_keeps_none():
    assert {name for name, *_ in CASES} == KINDS.keys()
    for name, arguments, *_ in CASES:
        assert not is_constraint_satisfied(" \n", name, arguments)


def test_the_reward_is_the_share_that_is_kept():
    columns = {
        "instruction_id_list": ["punctuation:no_comma", "startend:quotation", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": None}, {"num_words": 2.0, "relation": "at least", "keywords": None}],
    }
    assert find_constraints_fault(columns) is None
    assert compute_satisfied_share('"one two"', columns) == 1
    assert compute_satisfied_share("one two", columns) == pytest.approx(2 / 3)
    assert compute_satisfied_share('"one"', columns) == pytest.approx(2 / 3)
    assert compute_satisfied_share("one,", columns) == 0
    assert compute_satisfied_share("", columns) == 0


words = st.lists(st.text(string.ascii_letters, min_size=1, max_size=9), min_size=1, max_size=30)


@given(words, st.integers(1, 40))
def test_a_relation_and_its_opposite_exclude_each_other(chosen, count):
    """Of "less than" and "at least" exactly one holds; the counts are the number of words and of sentences."""
    response = " ".join(chosen) + "."
    for name, field, truth in (
        ("length_constraints:number_words", "num_words", len(chosen)),
        ("length_constraints:number_sentences", "num_sentences", 1),
    ):
        assert is_constraint_satisfied(response, name, {field: count, **LEAST}) == (truth >= count)
        assert is_constraint_satisfied(response, name, {field: count, **LESS}) == (truth < count)


@given(st.text(st.sampled_from("aA.*<>[]-\n \"',{}:1#")), st.sampled_from(CASES))
@settings(max_examples=60)
def test_any_response_has_a_verdict_that_spaces_around_it_do_not_change(response, case):
    name, arguments, *_ = case
    found = is_constraint_satisfied(response, name, arguments)
    assert found in (True, False)
    if (
        name != "length_constraints:nth_paragraph_first_word"
    ):  # blank lines may make it another paragraph that is the n-th
        assert is_constraint_satisfied(f" {response} ", name, arguments) == found


HOSTILE = [
    "[",
    "<",
    "*",
    ".",
    "-",
    "\n",
    " ",
    "a",
    "I",
    "'",
    '"',
    "\\",
    "p.",
    "[]",
    "<<",
    "a*",
    "* ",
    "\n*",
    "\n-",
    "1",
    "{",
    "\x00",
    "\ud800",
    "Section",
    "P.P.",
]


@pytest.mark.parametrize(("name", "arguments"), [case[:2] for case in CASES])
def test_a_hostile_response_takes_no_longer_than_a_plain_one(name, arguments):
    """A check that reads the response again from each of its places would take hours for one of these, an eighth of a
    million signs each.
    """
    for text in HOSTILE:
        is_constraint_satisfied((text * (2**17 // len(text)))[: 2**17], name, arguments)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "instruction_id_list: expected a list of names of constraints, got None"),
        ({"instruction_id_list": [], "kwargs": []}, "instruction_id_list: expected a list of names"),
        ({"instruction_id_list": "punctuation:no_comma", "kwargs": [{}]}, "instruction_id_list: expected a list"),
        ({"instruction_id_list": ["punctuation:no_comma"]}, "kwargs: expected a list with the arguments of each of 1"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}, {}]}, "kwargs: expected a list"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [3]}, r"kwargs\[0\]: expected the arguments of"),
        (
            {"instruction_id_list": ["length:words"], "kwargs": [{}]},
            r"instruction_id_list\[0\]: 'length:words' is none that",
        ),
        ({"instruction_id_list": [["a"]], "kwargs": [{}]}, r"instruction_id_list\[0\]: \['a'\] is none"),
        (
            {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "tlh"}]},
            r"kwargs\[0\].language: language:response_language needs one of ar, bg, .*, vi, got 'tlh'",
        ),
        (
            {"instruction_id_list": ["punctuation:no_comma", "keywords:existence"], "kwargs": [{}, {"keywords": "a"}]},
            r"kwargs\[1\].keywords: keywords:existence needs a list of texts that are not blank, got 'a'",
        ),
        ({"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": None}]}, "and there is none"),
        (
            {"instruction_id_list": ["startend:quotation"], "kwargs": [{"mark": "x"}]},
            r"kwargs\[0\].mark: .* has no such argument",
        ),
        (
            {
                "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"num_words": 2, "relation": "exactly"}],
            },
            "'less than' or 'at least', got 'exactly'",
        ),
        (
            {
                "instruction_id_list": ["length_constraints:nth_paragraph_first_word"],
                "kwargs": [{"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"}],
            },
            r"kwargs\[0\].nth_paragraph: expected 2 at most",
        ),
    ],
)
def test_what_is_wrong_with_constraints_is_said_in_a_line(columns, said):
    fault = find_constraints_fault(columns)
    assert re.search(said, fault)
    assert "\n" not in fault


@pytest.mark.parametrize("value", [-1, 1.5, "3", True, float("nan"), float("inf"), [1]])
def test_a_count_is_a_whole_number(value):
    columns = {"instruction_id_list": ["detectable_format:number_bullet_lists"], "kwargs": [{"num_bullets": value}]}
    assert "a whole number from 0 on" in find_constraints_fault(columns)

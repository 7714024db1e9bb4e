"""Which letter of a multiple-choice question a response settles on."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.rewards.choices import find_chosen_letter, parse_gold_letter
from tasks.language.rewards.verifier import Verifier
from tests import repository

DATA = Path(__file__).parents[5] / "shared" / "data"
FORMS = [
    "{}",
    "({})",
    "{}.",
    "{})",
    "**{}**",
    "{}. Because it is warm",
    "({}) 12 apples",
    "{}: the second",
    "Answer: {}",
    "answer: ({})",
    "Answer: **{}**",
    "**Answer: {}**",
    "The answer is {}",
    "The answer is ({}).",
    "So the correct answer is {}, since ice melts.",
    "The correct option is {}.",
    "The answer is: {}",
    "The answer is $\\text{({})}$.",
    "The best answer is option {} here",
    "\\boxed{{{}}}",
    "so $\\boxed{{\\text{{{}}}}}$",
    "\\boxed{{\\textbf{{({})}}}}",
    "\\boxed{{{}. 12}}",
    "#### {}",
    "#### ({})",
    "#### {}. Paris",
    "Some are cold.\n\n{}",
    "Water boils at 100. Ice melts at 0.\nThe answer is {}.\n#### {}",
    "A dog is an animal, I think.\n\nAnswer: {}",
    "Option A is wrong, and so is option B.\nAnswer: {}",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("letter", ["A", "C", "J"])
def test_a_letter_is_marked_in_many_forms(form, letter):
    assert find_chosen_letter(form.replace("{}", letter).replace("{{", "{").replace("}}", "}")) == letter


@pytest.mark.parametrize(
    "response",
    [
        "",
        "12",
        "A dog",
        "I think so",
        "Because",
        "B or C",
        "(B) or (C)",
        "The answer is B or C.",
        "Answer: A, B",
        "Answer: A and (C)",
        "The answer is not B",
        "The answer isn't B",
        "The answer is a dog",
        "Answer: b",
        "Answer: B\nAnswer: C",
        "\\boxed{A} \\boxed{B}",
        "\\boxed{A, B}",
        "\\boxed{B}\n#### C",
        "The answer is B.\n#### C",
        "\\boxed{B}\n#### 12",
        "\\boxed{AB}",
        "#### A B C D",
        "A. 1\nB. 2\nC. 3\nD. 4",
        "A\nB",
        "Option B is incorrect",
        "K",
        "answer",
    ],
)
def test_no_letter_or_several_are_no_answer(response):
    assert find_chosen_letter(response) is None


@pytest.mark.parametrize(
    ("gold", "letter"),
    [("B", "B"), ("(B)", "B"), (" B. ", "B"), ("\\text{(B)}", "B"), ("\\textbf{D}", "D"), ("12", None), ("AB", None), ("b", None), ("", None), ("K", None), ("B or C", None), ("x + C", None), ("A(3)", None)],  # noqa: E501
)  # fmt: skip
def test_references_that_are_letters(gold, letter):
    assert parse_gold_letter(gold) == letter


def test_the_verifier_judges_letters():
    with Verifier(workers=1) as judge:  # no process is needed for them
        responses = ["\\boxed{B}", "The answer is (B).", "#### C", "B or C", "12", ""]
        assert judge(["B"] * 6, responses) == [1, 1, 0, 0, 0, 0]
        assert judge(["\\text{(B)}", "42"], ["B) yes", "#### 42"]) == [1, 1]


@given(st.text(st.sampled_from("AB C.:)(*\n#answeriboxd\\{}")))
@settings(max_examples=25)
def test_any_text_has_one_letter_or_none(text):
    assert find_chosen_letter(text) in (None, *"ABCDEFGHIJ")


@pytest.mark.parametrize(
    "text",
    ["\\boxed{", "\\text{", "answer ", "answer is ", "(", "A ", "A, ", "* ", " ", "\n", "#### ", "####\n", "{}", "\\"],
)
def test_a_hostile_response_takes_linear_time(text):
    find_chosen_letter((text * (2**18 // len(text)))[: 2**18])
    find_chosen_letter("\\boxed{" + (text * (2**18 // len(text))) + "}")


@pytest.mark.skipif(not DATA.exists(), reason=repository.needs("data"))
def test_arcs_own_keys():
    """Each question's key is right, in the forms that models answer in, and no other letter is."""
    rows = [json.loads(line) for line in (DATA / "arc" / "challenge_dev.jsonl").read_text().splitlines()]
    keys = [row["answerKey"] for row in rows]
    lettered = [key for key in keys if key.isalpha()]
    assert len(lettered) > 250
    with Verifier(workers=1) as judge:
        for form in ("The answer is ({}).", "\\boxed{{{}}}", "Step 1. A is not it.\n\n#### {}"):
            assert judge(keys, [form.format(key) for key in keys]) == [1] * len(keys)
            assert judge(lettered, [form.format("ABCDE"["EABCD".index(key)]) for key in lettered]) == [0] * len(
                lettered
            )

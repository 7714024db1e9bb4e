import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.rewards.answers import (
    find_final_answer_number,
    find_last_boxed_text,
    find_strict_answer_number,
    remove_thinking_blocks,
)
from tasks.language.rewards.numerals import is_same_number
from tasks.language.rewards.rubric import score_response
from tasks.language.rewards.verifier import judge_number_answer


@pytest.mark.parametrize(
    ("response", "strict", "final"),
    [
        ("so 3 + 4 = 7\n#### 7", "7", "7"),
        ("#### $1,000.50\n", "$1,000.50", "1,000.50"),
        ("#### -5", "-5", "-5"),
        ("#### 7 pens", None, "7"),
        ("#### 7\nand 8 more", None, "7"),  # a marked answer comes before an unmarked one
        ("#### 7\n####", None, "7"),
        ("#### 7 or 8", None, None),
        ("\\boxed{7}\n#### 9", "9", "9"),
        ("#### 9\n\\boxed{7}", None, "7"),
        ("#### 9\nso \\boxed{7} pens, not 9", None, "7"),
        ("#### \\boxed{7}", None, "7"),
        ("\\boxed{7} #### 9", None, "7"),  # a mark within a line does not count
        ("#### 9\n\\boxed{7", None, "9"),  # not closed
        ("\\boxed{\n#### 9\n}", None, "9"),
        ("\\boxed{18 \\text{ dollars}}", None, "18"),
        ("so #### 7", None, "7"),
        ("####", None, None),
        ("", None, None),
    ],
)
def test_answers(response, strict, final):
    assert (find_strict_answer_number(response), find_final_answer_number(response)) == (strict, final)


@pytest.mark.parametrize("other", ["1,000", "1000", "1000.0", "$1000", "1000.00", " 1000 "])
def test_same_number(other):
    assert is_same_number("1000", other)
    assert is_same_number(other, "1000")


@pytest.mark.parametrize("other", ["100", "10000", "-1000", "1000 1000", "", "1000 pens", "1.000"])
def test_other_number(other):
    assert not is_same_number("1000", other)


@pytest.mark.parametrize(
    ("response", "content"),
    [("\\boxed{1} \\boxed{\\frac{1}{2}} 3", "\\frac{1}{2}"), ("\\boxed{", None), ("", None), ("\\boxed{{}", None)],
)
def test_boxed(response, content):
    assert find_last_boxed_text(response) == content


@pytest.mark.parametrize(
    ("response", "reward", "strict"), [("\\boxed{7}\n#### 9", 0, False), ("#### 9\n\\boxed{7}", 1, False)]
)
def test_two_marks_that_differ(response, reward, strict):
    """The right answer is 7. The last mark counts for the reward, the rubric and both accuracies."""
    assert judge_number_answer("7", response) == reward
    assert score_response("3 and 4?", "3 + 4 = 7\n#### 7", "7", response, True).correctness == 5 * reward
    final, form = find_final_answer_number(response), find_strict_answer_number(response)
    assert is_same_number(final, "7") == reward
    assert (form is not None and is_same_number(form, "7")) == strict


PARTS = [
    "7",
    "9",
    " ",
    "\n",
    "#### ",
    "\n#### 7",
    "\n#### 9",
    "\\boxed{7}",
    "\\boxed{9}",
    "\\boxed{",
    "}",
    "3 + 4 = 7",
    " pens",
]
PARTS += [" so ", ".", "$", "%", ",", "####", "= 7", "\\boxed{\\$7.0}", "1/2", "or"]


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
@settings(max_examples=80)
def test_reward_rubric_and_accuracies_agree(response):
    """For numbers the reward is 1 exactly if the final answer is right; strict accuracy also needs the form."""
    reward, final, form = (
        judge_number_answer("7", response),
        find_final_answer_number(response),
        find_strict_answer_number(response),
    )
    lenient = final is not None and is_same_number(final, "7")
    strict = form is not None and is_same_number(form, "7")
    assert (score_response("3 and 4?", "3 + 4 = 7\n#### 7", "7", response, True).correctness == 5) == lenient
    if reward is not None:
        assert reward == lenient
    if form is not None:
        assert reward == lenient == strict


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("#### 7", "#### 7"),
        ("<think>3 + 4</think>#### 7", "#### 7"),
        ("<think>\n#### 9\n</think>\n\n#### 7\n", "#### 7"),
        ("It is <think>3 + 4</think>7<think>sure</think>.", "It is 7."),
        ("3 + 4</think>\n#### 7", "#### 7"),  # the chat template opened the block
        ("3 + 4</think>6?<think>no</think>\n#### 7", "6?\n#### 7"),
        ("<think>3 + 4\n#### 7", ""),
        ("#### 7 <think>or not", ""),
        ("<think>a</think>#### 7<think>", ""),
        ("<think></think>", ""),
        ("", ""),
        ("a <thinking> man", "a <thinking> man"),
    ],
)
def test_an_answer_without_its_thinking(response, answer):
    assert remove_thinking_blocks(response) == answer
    assert remove_thinking_blocks(answer) == answer

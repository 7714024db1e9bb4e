"""Measures of a suite's answers, by hand; and two policies held against each other as `posttrain compare` does it."""

import json

import pandas as pd
import pytest

from tasks.comparison import evaluations
from tasks.extensions.suites import evaluating, measuring, reading, results
from tasks.extensions.suites.tests.results_by_hand import result


def test_means_passes_and_votes_by_hand():
    """Of three samples: two right; none, each wrong in its own way; one right and two that differ."""
    found = result("sft", [1, 0, 1], samples=[[1, 1, 0], [0, 0, 0], [1, 0, 0]]).values
    assert found["right_greedy"].tolist() == [1, 0, 1]
    assert found["right_mean_at_3_t0.6"].tolist() == pytest.approx([2 / 3, 0, 1 / 3])
    assert found["right_pass_at_1_t0.6"].tolist() == pytest.approx([2 / 3, 0, 1 / 3])
    assert found["right_pass_at_2_t0.6"].tolist() == pytest.approx([1, 0, 2 / 3])
    assert found["right_majority_at_3_t0.6"].tolist() == pytest.approx([1, 0, 1 / 3]), "a tie of three counts by chance"


@pytest.mark.parametrize(
    ("extracted", "right", "expected"),
    [
        (["1/2", "0.5", "3", "3.0"], [1, 1, 0, 0], 0.5),  # two forms of one answer on both sides
        (["7", "7", "x"], [0, 0, 1], 0.0),
        (["", "", "2"], [0, 0, 1], 1.0),  # no answer is no vote
        (["", ""], [0, 0], 0.0),
        (["1e999999999", "x"], [0, 1], 0.5),  # which is never computed
    ],
)
def test_a_vote_is_of_answers_not_of_texts(extracted, right, expected):
    rows = [
        {"problem_id": "p", "temperature": 1.0, "sample": n, "extracted": text, "right": bool(good)}
        for n, (text, good) in enumerate(zip(extracted, right, strict=True))
    ]
    greedy = {"problem_id": "p", "temperature": 0.0, "sample": 0, "extracted": "", "right": False, "ended": True}
    frame = pd.DataFrame([{**greedy, "by_method": json.dumps({"qwen": False})}, *rows])
    found = measuring.compute_problem_metrics(frame, [1])
    assert found[f"right_majority_at_{len(right)}_t1.0"].tolist() == [expected]


def test_what_the_verifiable_reward_says_is_a_measure_beside_the_headline():
    answers = result("sft", [1, 0, 1]).answers
    assert measuring.BY_REWARD not in measuring.compute_problem_metrics(answers, [1])
    answers["by_method"] = [json.dumps({"verifiable reward": good}) for good in (True, True, False)]
    assert measuring.compute_problem_metrics(answers, [1])[measuring.BY_REWARD].tolist() == [1, 1, 0]


def test_a_table_s_columns_are_headlines_and_their_average():
    metrics = {"right_greedy": {"mean": 0.5}, "right_mean_at_8_t0.6": {"mean": 0.25}}
    found = evaluating.compute_headline_columns(
        {"math500": metrics, "aime24": metrics, "amc23": {"right_greedy": {"mean": 0.0}}}
    )
    assert found == {
        "math500": ("right_greedy", 0.5),
        "aime24": ("right_mean_at_8_t0.6", 0.25),
        "amc23": ("right_greedy", 0.0),
        "average": ("of the columns", 0.25),
    }
    assert "average" not in evaluating.compute_headline_columns({"math500": metrics})


def test_levels_are_told_apart_where_there_are_several():
    own = result("sft", [1, 0, 1, 0])
    assert {
        name: one.mean
        for name, one in measuring.estimate_means_by_group(own.asked, own.values["right_greedy"], "level").items()
    } == {
        "1": 1.0,
        "2": 0.0,
    }
    assert measuring.estimate_means_by_group(own.asked, own.values["right_greedy"], "subject") == {}


def test_agreement_by_hand():
    """By the box nothing is right: it agrees where the suite's own way finds a wrong answer."""
    own = result("sft", [1, 0, 0, 0])
    assert measuring.compute_extraction_method_shares(own.answers) == {"qwen": (0.25, 1.0), "box": (0.0, 0.75)}


def test_a_difference_is_that_of_the_command_compare():
    """Its computation under the names that it knows."""
    base, ours = result("sft", [1, 0, 0, 1, 0, 0]), result("grpo", [1, 1, 1, 0, 0, 1])
    change, changes = results.estimate_paired_difference(ours, base, "right_greedy")
    mine, theirs = (one.values.rename(columns={"right_greedy": "strict_greedy"}) for one in (ours, base))
    theirs = evaluations.compare_metrics(mine, theirs)["strict_greedy"]
    assert (change.mean, change.low, change.high) == (theirs["difference"], theirs["low"], theirs["high"])
    assert (changes.gained, changes.lost, changes.p) == (theirs["gained"], theirs["lost"], theirs["p"])
    assert (changes.gained, changes.lost) == (3, 1)


def test_a_difference_is_over_the_problems_of_both():
    base, ours = result("sft", [0, 0, 0]), result("grpo", [1, 1])
    change, changes = results.estimate_paired_difference(ours, base, "right_greedy")
    assert (change.mean, changes.gained) == (1.0, 2)
    assert results.estimate_paired_difference(ours, base, "right_mean_at_3_t0.6") is None


def test_every_suite_names_a_method_and_a_prompt():
    from tasks.extensions.suites.extraction import METHODS
    from tasks.extensions.suites.registry import SUITES

    for name, suite in SUITES.items():
        assert suite.extraction in METHODS, name
        assert "{question}" in suite.prompt.question, name
        assert (suite.scoring in ("likelihood", "bare letter")) == suite.columns.choices, name
        assert reading.get_suite(name) is suite

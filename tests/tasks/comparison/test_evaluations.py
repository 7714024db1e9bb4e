"""Which problems two evaluations share, what differs on them, and which answers flipped: by hand."""

import pandas as pd
import pytest

from tasks.comparison.evaluations import Evaluation, compare_evaluations, compare_metrics, match_problems


def asked(*rows, **columns):
    found = pd.DataFrame(rows, columns=["problem_id", "question", "answer"])
    return found.assign(**columns)


def evaluation(problems, right, **measures):
    ids = problems["problem_id"]
    answers = pd.DataFrame(
        {
            "problem_id": ids,
            "temperature": 0.0,
            "response": [f"said of {name}" for name in ids],
            "ended": True,
            "strict": right,
        }
    )
    sampled = answers.assign(temperature=1.0, strict=[not one for one in right])
    values = {"strict_greedy": [float(one) for one in right], **measures}
    return Evaluation(problems, pd.concat([sampled, answers]), pd.DataFrame(values, index=list(ids)), 0.5)


THREE = asked(("p1", "1+1?", "2"), ("p2", "1+2?", "3"), ("p3", "1+3?", "4"))


def test_problems_are_matched_by_what_they_ask():
    other = asked(("p1", "1+2?", "3"), ("p9", "1+1?", "2"), ("p3", "1+3?", "5"))
    found = match_problems(THREE, other)
    assert found.known_as == {"p1": "p9", "p2": "p1"}, "p3 has another answer there"
    assert found.reworded == 2, "p1 and p3"
    assert match_problems(THREE, THREE).known_as == {"p1": "p1", "p2": "p2", "p3": "p3"}


def test_a_history_makes_another_problem_and_equal_problems_are_paired_in_order():
    twice = asked(("a", "?", "1"), ("b", "?", "1"))
    assert match_problems(twice, asked(("x", "?", "1"), ("y", "?", "1"), ("z", "?", "1"))).known_as == {
        "a": "x",
        "b": "y",
    }
    assert match_problems(twice, asked(("x", "?", "1"))).known_as == {"a": "x"}
    assert match_problems(THREE, THREE.assign(history="[]")).known_as == {}
    assert match_problems(THREE, THREE.assign(history="")).known_as.keys() == {"p1", "p2", "p3"}


def test_a_comparison_by_hand():
    a = evaluation(THREE, [True, False, False], rubric_greedy=[8.0, 2.0, 5.0], old=[0.0] * 3)
    other = asked(("x", "1+3?", "4"), ("y", "1+1?", "2"), ("z", "2+2?", "4"))
    b = evaluation(other, [True, False, True], rubric_greedy=[6.0, 9.0, 1.0], new=[0.0] * 3)
    found = compare_evaluations(a, b, same=False, most=5)
    assert found["problems"] == {"a": 3, "b": 3, "common": 2, "reworded": 0}
    assert (found["only_a"], found["only_b"]) == (["old"], ["new"])
    greedy, points = found["metrics"]["strict_greedy"], found["metrics"]["rubric_greedy"]
    assert (greedy["a"], greedy["b"], greedy["difference"]) == (0.5, 0.5, 0.0)
    assert (greedy["gained"], greedy["lost"], greedy["p"], greedy["interval"]) == (1, 1, 1.0, "score")
    assert (points["a"], points["b"], points["difference"], points["interval"]) == (6.5, 7.5, 1.0, "bootstrap")
    assert "gained" not in points
    assert [flip["problem"] for flip in found["flips"]["gained"]] == ["p3"]
    assert found["flips"]["lost"] == [
        {
            "problem": "p1",
            "question": "1+1?",
            "reference": "2",
            "a": {"answer": "said of p1", "ended": True},
            "b": {"answer": "said of y", "ended": True},
        }
    ]
    assert compare_evaluations(a, b, same=False, most=0)["flips"] == {"gained": [], "lost": []}


def test_nothing_in_common_has_no_metrics():
    found = compare_evaluations(
        evaluation(THREE, [True] * 3), evaluation(THREE.assign(answer="7"), [True] * 3), same=False, most=5
    )
    assert (found["problems"]["common"], found["metrics"]) == (0, {})
    assert found["problems"]["reworded"] == 3


def test_an_evaluation_and_itself_differ_by_exactly_nothing():
    own = evaluation(THREE, [True, False, True], length_greedy=[3.0, 4.0, 5.0])
    found = compare_evaluations(own, own, same=True, most=5)
    for row in found["metrics"].values():
        assert (row["low"], row["difference"], row["high"], row["interval"]) == (0, 0, 0, "same")
    assert found["flips"] == {"gained": [], "lost": []}
    again = compare_evaluations(own, own, same=False, most=5)["metrics"]["strict_greedy"]
    assert again["low"] < 0 == again["difference"] < again["high"], "another evaluation with these answers is no proof"


def test_points_are_no_shares_even_where_all_are_0_or_1():
    frame = pd.DataFrame({"rubric_greedy": [0.0, 1.0, 0.0], "strict_greedy": [0.0, 1.0, 0.0]})
    found = compare_metrics(frame, frame.iloc[::-1].set_axis(frame.index))
    assert {name: row["interval"] for name, row in found.items()} == {
        "rubric_greedy": "bootstrap",
        "strict_greedy": "score",
    }


def test_without_right_answers_nothing_flips():
    own = evaluation(THREE, [True] * 3)
    bare = Evaluation(own.asked, own.answers.drop(columns="strict"), own.values)
    assert compare_evaluations(bare, own, same=False, most=5)["flips"] == {"gained": [], "lost": []}
    with pytest.raises(KeyError):
        compare_evaluations(own, Evaluation(own.asked, own.answers.head(0), own.values), same=False, most=5)

"""Requirements and what their intervals say, by hand; what else differs between evaluations, and what is then not
compared.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.console.comparison import format_pair_comparison
from flows.console.conclusion import format_comparison_conclusion
from flows.engine.dvc_repository import PlanError
from flows.lineage.comparison.cautions import describe_evaluation_differences, explain_incomparable_metric
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.gate import evaluate_requirements, parse_requirement
from tests.flows.lineage.snapshots import made


def evaluation(policy, reward="r-1", reference="sft-1", code="1", **params):
    section = {"reward_model_path": "data/rm", "samples": 8, **params}
    deps = {"data/rm": reward, "data/sft": reference, "tasks/language/evaluate.py": code}
    outs = {f"data/evaluate/{policy}": f"{policy}.dir"}
    return made(f"evaluate@{policy}", deps, outs, {"evaluate": section}, "run --reference data/sft --out x")


def pair(low, difference, high, policy="dpo", metric="strict_greedy", same=False, **row):
    found = {"a": 0.4, "b": 0.4 + difference, "difference": difference, "low": low, "high": high, "interval": "score"}
    numbers = {"metrics": {metric: {**found, **row}}, "problems": {"a": 200, "b": 200, "common": 200, "reworded": 0}}
    return Compared(policy, "language", evaluation("dpo"), evaluation("dpo"), same, numbers)


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        ("dpo/strict_greedy > 0", True),
        ("dpo/strict_greedy>0.01", False),  # an end on the bound is not above it
        ("dpo/strict_greedy > 0.009", True),
        ("dpo/strict_greedy not below 0.01", True),
        ("dpo/strict_greedy not below 0.02", False),
        ("dpo/strict_greedy < 0.09", False),
        ("dpo/strict_greedy < 0.091", True),
        ("dpo/strict_greedy not above .09", True),
        ("dpo/Strict Greedy not above 8e-2", False),
    ],
)
def test_a_requirement_by_hand(requirement, holds):
    [judged] = evaluate_requirements([parse_requirement(requirement)], [pair(0.01, 0.05, 0.09)])
    assert judged.holds is holds


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1))
def test_swapping_the_sides_swaps_the_requirements(middle, below, above, bound):
    there = [pair(middle - below, middle, middle + above)]
    back = [pair(-(middle + above), -middle, -(middle - below))]
    for relation, other in ((">", "<"), ("not below", "not above")):
        [one] = evaluate_requirements([parse_requirement(f"dpo/strict_greedy {relation} {bound:.4f}")], there)
        [two] = evaluate_requirements([parse_requirement(f"dpo/strict_greedy {other} {-bound:.4f}")], back)
        assert one.holds == two.holds


def test_what_is_not_known_or_means_something_else_holds_for_nothing():
    for found in (pair(None, 0.5, None), pair(0.1, 0.2, 0.3, incomparable="scored by different reward models")):
        for requirement in ("> -1", "< 1", "not below -1", "not above 1"):
            [judged] = evaluate_requirements([parse_requirement(f"dpo/strict_greedy {requirement}")], [found])
            assert not judged.holds


@pytest.mark.parametrize(
    "text", ["", "strict_greedy", "strict_greedy > ", "strict_greedy > x", "> 0", "a == 0", "a > inf", "a > 1e"]
)
def test_what_is_no_requirement(text):
    with pytest.raises(PlanError, match="expected METRIC"):
        parse_requirement(text)


def test_an_unknown_metric_is_told_with_what_is_near():
    found = [pair(0, 0, 0, policy) for policy in ("dpo", "grpo")]
    for text, near in (
        ("strict_greedy", "did you mean dpo/strict_greedy or grpo/strict_greedy?"),
        ("grpo/strict", "did you mean grpo/strict_greedy?"),
        ("grpo/strickt_greedy", "did you mean grpo/strict_greedy"),
    ):
        with pytest.raises(PlanError) as error:
            evaluate_requirements([parse_requirement(f"{text} > 0")], found)
        assert near in str(error.value)
    gone = Compared("ppo", "language", evaluation("ppo"), evaluation("ppo"), False, fault="its tables are gone")
    with pytest.raises(PlanError, match="ppo/strict_greedy was not compared: its tables are gone"):
        evaluate_requirements([parse_requirement("ppo/strict_greedy > 0")], [*found, gone])


def test_what_differs_between_evaluations_is_said_with_what_it_means():
    told = list(
        describe_evaluation_differences(
            "language", evaluation("dpo"), evaluation("dpo", samples=4, bootstrap=9, code="2", reward="r-2")
        )
    )
    assert told == [
        "evaluate.samples 8 -> 4: metrics of another number of samples are left out",
        "the evaluation's code differs (tasks/language/evaluate.py): any difference may come from that",
        "the reward models differ: rewards and best-of-k cannot be compared",
    ]
    assert list(describe_evaluation_differences("language", evaluation("dpo"), evaluation("grpo"))) == []


def test_metrics_of_another_yardstick_are_not_compared():
    ours, reward, reference = evaluation("dpo"), evaluation("dpo", reward="r-2"), evaluation("dpo", reference="sft-2")
    assert [
        bool(explain_incomparable_metric(name, ours, reward))
        for name in ("reward_greedy", "strict_best_of_8_t1.0", "strict_greedy")
    ] == [
        True,
        True,
        False,
    ]
    assert [
        bool(explain_incomparable_metric(name, ours, reference)) for name in ("kl_sampled_t1.0", "strict_greedy")
    ] == [True, False]
    assert not explain_incomparable_metric("reward_greedy", ours, ours)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            pair(0.01, 0.05, 0.09, ""),
            "dpo is above sft in strict_greedy on 200 problems (+5.0 points, 95 % interval +1.0 to +9.0)",
        ),
        (pair(-0.09, -0.05, -0.01, ""), "dpo is below sft in strict_greedy on 200 problems"),
        (pair(-0.01, 0.05, 0.09, ""), "200 problems cannot tell dpo from sft in strict_greedy"),
        (pair(0, 0, 0, "", same=True), "sft and dpo have one and the same evaluation"),
    ],
)
def test_what_two_policies_allow_to_conclude(found, said):
    told = format_comparison_conclusion(("sft", "dpo"), [found])
    assert told.startswith(said)
    assert told.endswith("it says nothing of other training seeds or of problems of another kind.")


def test_what_many_policies_allow_to_conclude():
    found = [pair(0.01, 0.05, 0.09, "dpo"), pair(-0.01, 0.0, 0.01, "ppo"), pair(0, 0, 0, "sft", same=True)]
    assert format_comparison_conclusion(("A", "B"), found).startswith(
        "In strict_greedy B is above A for dpo (+5.0 points); neither is clearly above the other "
        "for ppo (+0.0 points); "
        "nothing has changed for sft; "
    )
    assert "nothing can be concluded" in format_comparison_conclusion(("A", "B"), [])


def test_the_lines_of_a_pair_say_on_what_it_rests():
    found = pair(0.01, 0.05, 0.09)
    assert next(format_pair_comparison(found, full=False)) == "dpo: the same 200 problems"
    fewer = {**found.numbers, "problems": {"a": 200, "b": 150, "common": 90, "reworded": 7}}
    told = next(format_pair_comparison(Compared(**{**vars(found), "numbers": fewer}), full=False))
    assert told == "dpo: 90 problems in common, of 200 in A and 150 in B; 7 of one name differ in content"

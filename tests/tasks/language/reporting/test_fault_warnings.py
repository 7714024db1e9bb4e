"""Each box is given on a run with its fault, and not on a run without."""

import numpy as np
import pandas as pd
import pytest

from tasks.common.estimates import Estimate
from tasks.language.reporting import fault_warnings
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.scoreboard import Results

NAMES = (
    "strict_greedy",
    "strict_mean_at_2_t1.0",
    "rubric_greedy",
    "rubric_sampled_t1.0",
    "reward_greedy",
    "reward_sampled_t1.0",
)
UP, LEVEL, DOWN = (Difference(Estimate(mean, mean - 0.05, mean + 0.05), None) for mean in (0.3, 0.01, -0.3))


def results(*, changes=None, **judged):
    """Policies that are all alike but for what is given of them."""
    every = {**dict.fromkeys(NAMES, Estimate(0.5, 0.4, 0.6)), "ended_greedy": Estimate(1.0, 0.9, 1.0)}
    every |= {"length_greedy": Estimate(20.0, 19.0, 21.0)}
    found = {policy: {**every, **judged.get(policy, {})} for policy in ("pretrained", "sft", "ppo")}
    level = dict.fromkeys([*NAMES, "length_greedy"], LEVEL)
    return Results(found, "sft", dict.fromkeys(found, 0.0), {"pretrained": level, "ppo": {**level, **(changes or {})}})


def curve(**ends):
    """A curve of 20 steps in which each metric goes from 0 to its end."""
    return pd.DataFrame({name.replace("__", "/"): end * np.linspace(0, 1, 20) for name, end in ends.items()})


def test_a_run_without_faults_has_no_box():
    fine = {
        "dpo": curve(logps__chosen_change=1.0),
        "grpo": curve(frac_reward_zero_std=0.3, sampling__logp_difference=1e-6),
    }
    answers = {"ppo": generations(lambda length: -length)}
    assert fault_warnings.collect_fault_warnings(results(), fine, answers, {"asked": 500}) == []


def test_policies_with_one_fault_share_a_box():
    cut = {"ended_greedy": Estimate(0.5, 0.4, 0.6)}
    [box] = fault_warnings.collect_fault_warnings(results(sft=cut, ppo=cut), {}, {}, {"asked": 500})
    assert box.found == ["The length limit cut off greedy answers: 50 % of those of sft, ppo."]


def test_chosen_answers_that_became_less_likely():
    def told(chosen, rejected):
        ends = {"logps__chosen_change": chosen, "rewards__chosen": chosen / 10, "rewards__rejected": rejected / 10}
        return [*fault_warnings.iterate_chosen_likelihood_warnings({"dpo": curve(**ends), "sft": curve(loss=1.0)})]

    both, chosen_only = told(-2.0, -9.0), told(-2.0, 0.0)
    assert "by 1.95 nats an answer" in both[0]
    assert "the rejected ones fell further" in both[0]
    assert len(chosen_only) == 1
    assert "fell further" not in chosen_only[0]
    assert told(0.5, -9.0) == []
    assert told(-0.14, -0.5) == [], "as little as with dpo.nll is no news"
    assert told(-0.24, -0.9), "the default run has the box"


def test_a_policy_without_end_tokens():
    cut = {"ended_greedy": Estimate(0.85, 0.8, 0.9)}
    assert [*fault_warnings.iterate_unended_answer_warnings(results(ppo=cut))] == [
        "The length limit cut off greedy answers: 15 % of those of ppo."
    ]
    assert not [
        *fault_warnings.iterate_unended_answer_warnings(results(ppo={"ended_greedy": Estimate(0.95, 0.9, 0.97)}))
    ]
    assert not [
        *fault_warnings.iterate_unended_answer_warnings(results(pretrained=cut))
    ]  # has not learned to end an answer, which is no news


def test_a_best_policy_by_reward_that_is_wrong():
    rewarded, wrong = {"reward_greedy": Estimate(0.9, 0.8, 1.0)}, {"strict_greedy": Estimate(0.0, 0.0, 0.01)}
    assert [*fault_warnings.iterate_misleading_reward_warnings(results(pretrained={**rewarded, **wrong}))] == [
        "pretrained has the highest reward of greedy answers (0.90, 0.0 % right). sft is right most often (0.50, "
        "50.0 % right)."
    ]
    assert not [*fault_warnings.iterate_misleading_reward_warnings(results(ppo=rewarded))]  # as right as the others
    sampled = {"reward_sampled_t1.0": Estimate(0.9, 0.8, 1.0), "strict_mean_at_2_t1.0": Estimate(0.0, 0.0, 0.01)}
    [told] = fault_warnings.iterate_misleading_reward_warnings(results(pretrained=sampled))
    assert told.startswith("pretrained has the highest reward of answers sampled at 1.0 (0.90, 0.0 % right).")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"reward_greedy": UP, "rubric_greedy": DOWN}, "lost 0.30 rubric points (greedy answers)."),
        ({"reward_greedy": UP, "strict_greedy": DOWN}, "lost 30.0 points of accuracy (greedy answers)."),
        ({"reward_sampled_t1.0": UP, "strict_mean_at_2_t1.0": DOWN}, "of accuracy (answers sampled at 1.0)."),
        ({"reward_greedy": UP, "gold_greedy": DOWN}, "lost 30.0 points of gold answers (greedy answers)."),
        ({"reward_greedy": UP, "gold_greedy": UP, "rubric_greedy": DOWN, "rubric_sampled_t1.0": DOWN}, None),
        ({"reward_greedy": UP, "rubric_greedy": LEVEL}, None),
        ({"reward_greedy": LEVEL, "rubric_greedy": DOWN}, None),
        ({"reward_greedy": DOWN, "strict_greedy": UP}, None),
    ],
)
def test_an_over_optimised_reward_model(changes, told):
    found = [*fault_warnings.iterate_overoptimisation_warnings(results(changes=changes))]
    assert [told in said for said in found] == ([True] if told else [])


def generations(reward, lengths=(10, 20, 30)):
    rows = [
        {
            "problem_id": f"{problem}",
            "temperature": 1.0,
            "length": length,
            "reward": reward(length) + 50.0 * problem,
            "strict": True,
        }
        for problem in range(3)
        for length in lengths
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("pays", "length", "accuracy", "told"),
    [
        (lambda length: 0.1 * length, Difference(Estimate(8.0, 6.0, 10.0), None), LEVEL, True),
        (lambda length: 0.1 * length, Difference(Estimate(1.0, 0.5, 1.5), None), LEVEL, False),  # 5 % longer
        (lambda length: 0.1 * length, Difference(Estimate(8.0, 6.0, 10.0), None), UP, False),  # right more often too
        (
            lambda length: -0.1 * length,
            Difference(Estimate(8.0, 6.0, 10.0), None),
            LEVEL,
            False,
        ),  # not what is paid for
    ],
)
def test_growth_that_the_reward_model_pays_for(pays, length, accuracy, told):
    changed = results(changes={"length_greedy": length, "reward_greedy": UP, "strict_greedy": accuracy})
    found = [*fault_warnings.iterate_length_reward_warnings(changed, {"ppo": generations(pays)})]
    assert ["40 % longer than sft's" in said for said in found] == ([True] if told else [])


def test_the_pay_for_length_is_a_correlation_within_problems_and_within_right_and_wrong_answers():
    """Right answers are longer and earn more here, which is no pay for length; and lengths differ from problem to
    problem.
    """
    right = generations(lambda length: 9.0, lengths=(29, 30, 31))
    wrong = generations(lambda length: 1.0, lengths=(9, 10, 11)).assign(strict=False)
    assert fault_warnings.compute_reward_length_correlation(pd.concat([right, wrong]), 1.0) == 0.0
    assert fault_warnings.compute_reward_length_correlation(
        generations(lambda length: 2.0 * length), 1.0
    ) == pytest.approx(1.0)
    assert fault_warnings.compute_reward_length_correlation(
        generations(lambda length: (length - 20) ** 2), 1.0
    ) == pytest.approx(0.0)


def rising(**ends):
    """A curve of 20 steps in which each metric goes from its first value to its last."""
    return pd.DataFrame({name.replace("__", "/"): np.linspace(*pair, 20) for name, pair in ends.items()})


@pytest.mark.parametrize(
    ("form", "right", "told"),
    [
        ((0.5, 1.0), (0.3, 0.3), "went from 51 to 99 %, samples that are right from 30 to 30 %"),
        ((0.5, 1.0), (0.3, 0.1), "samples that are right from 29 to 11 %"),
        ((0.5, 1.0), (0.3, 0.5), None),  # right answers came too
        ((0.95, 1.0), (0.3, 0.3), None),  # the form was there
    ],
)
def test_a_policy_that_learned_the_form_alone(form, right, told):
    frame = rising(rewards__format=form, rewards__verifiable=right)
    found = [*fault_warnings.iterate_form_only_warnings({"grpo": frame, "dpo": curve(loss=1.0)})]
    assert [told in said for said in found] == ([True] if told else [])


def test_groups_without_spread():
    [told] = fault_warnings.iterate_zero_spread_warnings({"grpo": curve(frac_reward_zero_std=0.6)})
    assert "grpo: in 58 % of the groups" in told  # the mean of the last two of 20 steps
    assert not [
        *fault_warnings.iterate_zero_spread_warnings(
            {"grpo": curve(frac_reward_zero_std=0.4), "ppo": curve(reward=1.0)}
        )
    ]


def test_a_sampler_that_is_not_the_trainer():
    [told] = fault_warnings.iterate_sampler_mismatch_warnings({"grpo": curve(sampling__logp_difference=0.04)})
    assert "differs by 0.020 nats" in told
    assert not [*fault_warnings.iterate_sampler_mismatch_warnings({"grpo": curve(sampling__logp_difference=1e-5)})]


def test_a_kl_term_that_holds_nothing():
    def told(kl, std):
        return [
            *fault_warnings.iterate_ineffective_kl_warnings(
                {"grpo": curve(kl=kl, kl_slope_std=std), "sft": curve(loss=1.0)}
            )
        ]

    [said] = told(0.08, 0.0)
    assert said.startswith("grpo: it is 0.078 nats a token from the reference")
    assert told(0.08, 0.4) == [], "k2 or k3"
    assert told(0.005, 0.0) == [], "near the reference there is nothing to hold"

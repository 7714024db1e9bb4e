"""Each box is given on a run with its fault, and not on a run without."""

import numpy as np
import pandas as pd
import pytest

from tasks.common.estimates import Estimate
from tasks.language.reporting import watch_outs
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
    return Results(
        found, "sft", dict.fromkeys(found, 0.0), {"pretrained": level, "ppo": {**level, **(changes or {})}}, {}, {}
    )


def curve(**ends):
    """A curve of 20 steps in which each metric goes from 0 to its end."""
    return pd.DataFrame({name.replace("__", "/"): end * np.linspace(0, 1, 20) for name, end in ends.items()})


def titles(boxes):
    return [box.title for box in boxes]


def test_a_run_without_faults_has_no_box():
    fine = {
        "dpo": curve(logps__chosen_change=1.0),
        "grpo": curve(frac_reward_zero_std=0.3, sampling__logp_difference=1e-6),
    }
    answers = {"ppo": generations(lambda length: -length)}
    assert watch_outs.watch_outs(results(), fine, answers, {"asked": 500}) == []


def test_chosen_answers_that_became_less_likely():
    def told(chosen, rejected):
        ends = {"logps__chosen_change": chosen, "rewards__chosen": chosen / 10, "rewards__rejected": rejected / 10}
        return [box.text for box in watch_outs.less_likely({"dpo": curve(**ends), "sft": curve(loss=1.0)})]

    both, chosen_only = told(-2.0, -9.0), told(-2.0, 0.0)
    assert "by 1.95 nats an answer" in both[0]
    assert "the rejected ones fell further" in both[0]
    assert len(chosen_only) == 1
    assert "fell further" not in chosen_only[0]
    assert told(0.5, -9.0) == []


def test_a_policy_without_end_tokens():
    cut = {"ended_greedy": Estimate(0.85, 0.8, 0.9)}
    [box] = watch_outs.unended(results(ppo=cut))
    assert box.title == "ppo does not end its answers"
    assert "cut off 15 % of its greedy answers" in box.text
    assert not [*watch_outs.unended(results(ppo={"ended_greedy": Estimate(0.95, 0.9, 0.97)}))]
    assert not [*watch_outs.unended(results(pretrained=cut))]  # has not learned to end an answer, which is no news


def test_a_best_model_by_reward_that_is_wrong():
    rewarded = {"reward_greedy": Estimate(0.9, 0.8, 1.0)}
    [box] = watch_outs.wrong_favourite(results(pretrained={**rewarded, "strict_greedy": Estimate(0.0, 0.0, 0.01)}))
    assert "pretrained has the highest reward (0.90), but only 0.0 % of its greedy answers are right" in box.text
    assert not [*watch_outs.wrong_favourite(results(ppo=rewarded))]  # as right as the others


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"reward_greedy": UP, "rubric_greedy": DOWN}, "the rubric's points fell by 0.30 (greedy answers)"),
        ({"reward_greedy": UP, "strict_greedy": DOWN}, "accuracy fell by 30.0 points (greedy answers)"),
        ({"reward_sampled_t1.0": UP, "strict_mean_at_2_t1.0": DOWN}, "fell by 30.0 points (answers sampled at 1.0)"),
        ({"reward_greedy": UP, "rubric_greedy": LEVEL}, None),
        ({"reward_greedy": LEVEL, "rubric_greedy": DOWN}, None),
        ({"reward_greedy": DOWN, "strict_greedy": UP}, None),
    ],
)
def test_an_over_optimised_reward_model(changes, told):
    found = [*watch_outs.over_optimised(results(changes=changes))]
    assert [told in box.text for box in found] == ([True] if told else [])


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
    found = [*watch_outs.paid_by_length(changed, {"ppo": generations(pays)})]
    assert ["40 % longer than sft's" in box.text for box in found] == ([True] if told else [])


def test_the_pay_for_length_is_a_correlation_within_problems_and_within_right_and_wrong_answers():
    """Right answers are longer and earn more here, which is no pay for length; and lengths differ from problem to problem."""
    right = generations(lambda length: 9.0, lengths=(29, 30, 31))
    wrong = generations(lambda length: 1.0, lengths=(9, 10, 11)).assign(strict=False)
    assert watch_outs.length_pay(pd.concat([right, wrong]), 1.0) == 0.0
    assert watch_outs.length_pay(generations(lambda length: 2.0 * length), 1.0) == pytest.approx(1.0)
    assert watch_outs.length_pay(generations(lambda length: (length - 20) ** 2), 1.0) == pytest.approx(0.0)


def test_groups_without_spread():
    [box] = watch_outs.groups_alike({"grpo": curve(frac_reward_zero_std=0.6)})
    assert "grpo: in 58 % of the groups" in box.text  # the mean of the last two of 20 steps
    assert not [*watch_outs.groups_alike({"grpo": curve(frac_reward_zero_std=0.4), "ppo": curve(reward=1.0)})]


def test_a_sampler_that_is_not_the_trainer():
    [box] = watch_outs.mismatched({"grpo": curve(sampling__logp_difference=0.04)})
    assert "differs by 0.020 nats" in box.text
    assert not [*watch_outs.mismatched({"grpo": curve(sampling__logp_difference=1e-5)})]

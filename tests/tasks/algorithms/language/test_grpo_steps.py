"""GRPO with process supervision: advantages of steps by a process reward model, and what they teach."""

from dataclasses import replace

import pytest
import torch

from tasks.algorithms.language import grpo
from tasks.algorithms.language.advantages import group_advantages, step_advantages
from tasks.algorithms.language.experience import StepRewards
from tasks.algorithms.language.grpo import compute_token_advantages
from tests.tasks.algorithms.language.test_grpo import BATCH, Counted, asked, experience, trained
from tests.tasks.bandits import END, Table, collector
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import llama

NONE = float("nan")
# Of BATCH: groups of two; the third has steps of one worth alone, the first two steps in its second response.
AT_ENDS = torch.tensor(
    [
        [NONE, 0.9, NONE, NONE],
        [0.5, NONE, 0.1, NONE],
        [NONE, NONE, 0.4, NONE],
        [NONE, 0.2, NONE, NONE],
        [NONE, 0.7, NONE, NONE],
        [NONE, 0.7, NONE, 0.7],
    ]
)
OTHERS = torch.tensor([2.0, 0.0, 1.0, 1.0, 0.0, 0.0])


def judged(what, weight=1.0, others=OTHERS, others_weight=2.0):
    full = torch.full((6,), 1.0)
    return replace(what, steps=StepRewards(AT_ENDS, full * weight, others, full * others_weight))


def test_both_kinds_of_rewards_count_by_their_weights_and_not_by_their_scale():
    """Steps 0.9, 0.5 and 0.1 deviate by 0.4; the others' 2 and 0, of weight 2 together, are 1 and 0 with a deviation of
    0.7071.
    """
    found = compute_token_advantages(judged(experience(llama(1)), 0.5), asked(supervision="process"))
    steps, rest = 0.5 * 0.4 / (0.4 + 1e-4), 2 * 0.5 / (0.5**0.5 + 1e-4)
    assert found[0].tolist() == pytest.approx([steps + rest] * 2 + [0, 0])
    assert found[1].tolist() == pytest.approx([-steps - rest] * 3 + [0])
    assert not found[4:].any(), "all steps of the third group are worth the same"
    centred = compute_token_advantages(
        judged(experience(llama(1)), 0.5), asked(supervision="process", advantage="centered")
    )
    assert centred[0].tolist() == pytest.approx([0.5 * 0.4 + 1] * 2 + [0, 0])
    scaled = compute_token_advantages(judged(experience(llama(1)), 0.5, 100 * OTHERS), asked(supervision="process"))
    torch.testing.assert_close(scaled, found, rtol=1e-3, atol=0)
    summed = torch.cat([OTHERS[:2] + 0.5 * AT_ENDS[0, 1], OTHERS[2:]])
    wrong = [
        found - rest,  # the others left out
        0.5 * step_advantages(AT_ENDS, BATCH.mask, BATCH.owner, "standardized") + rest / 2,  # their weight left out
        group_advantages(summed, BATCH.owner, "standardized").unsqueeze(1).expand(-1, 4),  # one reward of a response
    ]
    assert all((found - mistake)[:2].abs().max() > 0.1 for mistake in wrong)


@pytest.mark.parametrize("advantage", ["standardized", "centered"])
def test_without_a_process_reward_it_is_outcome_supervision(advantage):
    what = judged(experience(llama(1), OTHERS.tolist()), weight=0.0, others_weight=1.0)
    settings = asked(supervision="process", advantage=advantage)
    expected = compute_token_advantages(what, replace(settings, supervision="outcome")) * BATCH.mask
    torch.testing.assert_close(compute_token_advantages(what, settings), expected)


def test_groups_whose_steps_are_worth_the_same_cost_no_pass():
    policy = llama(1)
    what = judged(experience(policy), others=torch.zeros(6))
    calls = Counted(policy)
    row = trained(policy, what, supervision="process")[0]
    assert calls.rows == [2, 4]
    assert row["frac_reward_zero_std"] == pytest.approx(1 / 3)


RIGHT = {4: 0, 5: 0, 6: 0, 0: 1, 1: 2, 2: END}  # after each token the right one: 0, 1, 2 and the end


def steps_right(prompt, response):
    """For each token whether it and all before it are right."""
    found, last, fine = [], prompt[0], True
    for token in response:
        fine = fine and RIGHT.get(last) == token
        found.append(float(fine))
        last = token
    return found


def all_right(prompt, response):
    return float(len(response) == 4 and all(steps_right(prompt, response)))


def learn(supervision):
    policy = Table()
    sampled = collector(policy, all_right, samples=12, length=4)

    def collect(step):
        found = sampled(step)
        batch = found.completions
        at_ends = torch.full(batch.mask.shape, torch.nan)
        for row, mask in enumerate(batch.mask):
            prompt = batch.prompts[batch.owner[row]].tolist()
            at_ends[row, mask] = torch.tensor(steps_right(prompt, batch.tokens[row][mask].tolist()))
        ones, none = torch.ones(len(batch)), torch.zeros(len(batch))
        return replace(found, steps=StepRewards(at_ends, ones, none, none))

    optimizer = make_optimizer(policy, 0.5, 30, clip=1.0, warmup=0.0)
    settings = asked(supervision=supervision, max_new_tokens=4)
    return list(grpo.fit(policy, collect, optimizer, settings, start=0, steps=30, reference=None))


def test_rewards_of_steps_teach_what_a_reward_at_the_end_does_not():
    """A whole answer is right once in 2,401 times at first, so that its reward is hardly ever seen; that of its first
    token is.
    """
    assert learn("process")[-1]["reward"] > 0.9
    assert learn("outcome")[-1]["reward"] < 0.1

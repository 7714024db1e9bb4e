"""A response without a reward (nan) is no sample: nothing is learned as if it had one, whatever the algorithm and its
means.
"""

from dataclasses import replace

import pytest
import torch

from tasks.algorithms.common import distributed
from tasks.algorithms.language import grpo, ppo, reinforce
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.experience import Experience, StepRewards
from tasks.algorithms.language.kl import AdaptiveKl
from tests.tasks.algorithms.language.test_grpo import AGGREGATIONS, trained
from tests.tasks.algorithms.language.test_grpo import asked as grpo_settings
from tests.tasks.algorithms.language.test_in_ranks import critic_of
from tests.tasks.algorithms.language.test_ppo import asked as ppo_settings
from tests.tasks.algorithms.language.test_reinforce import asked as reinforce_settings
from tests.tasks.bandits import Still, Table, collector, probabilities
from tests.tasks.optimizers import make_optimizer
from tests.tasks.ranks import in_ranks
from tests.tasks.tiny import llama

NONE = float("nan")
ANSWERS = [[7, 2], [8, 9, 2], [4, 4, 2], [1, 2], [5, 2], [3, 4, 5, 2], [6]]
OWNER = [0, 0, 0, 1, 1, 2, 2]
REWARDS = [-1.0, NONE, -3.0, 0.5, 2.0, NONE, NONE]  # the third prompt has no sample at all
LENGTHS = ("completions/mean_length", "completions/clipped_ratio", "entropy", "policy/entropy", "reward/none")


def sampled(rows, earned=None, asked=((3, 4), (5,), (6, 7, 8))):
    """The answers at `rows` with their rewards, probabilities, paid tokens and steps' rewards, as if `rows` were
    all.
    """
    owner = [OWNER[row] for row in rows]
    known = sorted({*owner})
    batch = make_completions(
        [[*asked[prompt]] for prompt in known],
        [known.index(prompt) for prompt in owner],
        [ANSWERS[row] for row in rows],
        2,
    )
    width = batch.mask.shape[1]
    generator = torch.Generator().manual_seed(5)
    logps = -3 * torch.rand(len(ANSWERS), 4, generator=generator)[rows, :width] * batch.mask
    rewards = torch.tensor(REWARDS if earned is None else earned)[rows]
    paid = torch.rand(len(ANSWERS), 4, generator=generator)[rows, :width] * batch.mask
    scores = torch.rand(len(ANSWERS), 4, generator=generator)[rows, :width].masked_fill(~batch.last, NONE)
    steps = StepRewards(scores, torch.full((len(rows),), 0.5), rewards, torch.ones(len(rows)))
    ended = torch.tensor([True, True, False, True, True, True, True])[rows]
    return Experience(batch, logps, rewards, ended, parts={"x": rewards}, paid=paid, steps=steps)


ALL = [*range(7)]
JUDGED = [row for row in ALL if REWARDS[row] == REWARDS[row]]


class Noting(Still):
    """An optimizer that sums the gradient over ranks as every optimizer does, notes it and leaves the weights."""

    def __init__(self, model):
        self.weights, self.gradients = [*model.parameters()], []

    def step(self):
        distributed.sum_gradients(self.weights)
        self.gradients.append(torch.cat([(p.grad if p.grad is not None else 0 * p).flatten() for p in self.weights]))
        for p in self.weights:
            p.grad = None
        return self.gradients[-1].norm().item()


def models():
    """The policy, the critic and the reference; threads must not make them, since all draw from one generator."""
    return llama(1), critic_of(llama(2)), llama(3)


def noted(kind, what, of=None, **changes):
    """The rows and gradients of two steps, and what was looked at."""
    (policy, critic, reference), seen = of or models(), []
    optimizers = Noting(policy), Noting(critic)
    named = {"start": 0, "steps": 2, "look": lambda *of: seen.append(of)}
    if kind == "grpo":
        settings = grpo_settings(**changes)
        fit = grpo.fit(policy, lambda _: what, optimizers[0], settings, reference=reference, **named)
    elif kind == "reinforce":
        settings = reinforce_settings(variance_every=1, **changes)
        mean = reinforce.RunningMean(0.5)
        fit = reinforce.fit(policy, critic, lambda _: what, optimizers, settings, mean, reference=reference, **named)
    else:
        settings, kl = ppo_settings(**changes), AdaptiveKl(0.1, 0.2, 0.5)
        fit = ppo.fit(policy, critic, reference, lambda _: what, optimizers, settings, kl, **named)
    return [*fit], [*optimizers[0].gradients, *optimizers[1].gradients], seen


CASES = {
    **{how: ("grpo", {"aggregation": how, "beta": 0.1, "updates": 2}) for how in AGGREGATIONS},
    "one at a time": ("grpo", {"aggregation": "grpo", "micro_batch": 1}),
    "without truncated": ("grpo", {"aggregation": "dapo", "mask_truncated": True, "beta": 0.1}),
    "process": ("grpo", {"supervision": "process", "advantage": "centered"}),
    "reinforce": ("reinforce", {"baseline": "critic", "kl_coefficient": 0.1, "critic_updates": 2, "micro_batch": 3}),
    "running mean": ("reinforce", {"baseline": "running_mean", "gamma": 0.9, "importance_cap": 1.2}),
    "ppo": ("ppo", {"whiten": True, "missing_end_penalty": 1.0, "lam": 0.9, "importance_cap": 1.2, "old_from_sampler": False}),  # noqa: E501
}  # fmt: skip


def differs(ours, theirs):
    """How far the gradients of two trainings are apart, by their norm; 1 where their number differs."""
    if len(ours) != len(theirs):
        return 1.0
    return max(((one - other).norm() / other.norm()).item() for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_it_is_as_if_only_the_others_had_been_sampled(case):
    kind, changes = CASES[case]
    rows, gradients, seen = noted(kind, sampled(ALL), **changes)
    alone, expected, looked = noted(kind, sampled(JUDGED), **changes)
    for row, wanted in zip(rows, alone, strict=True):
        assert row.keys() == wanted.keys()
        for name in row.keys() - {*LENGTHS}:
            assert row[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-6), name
    assert differs(gradients, expected) < 1e-4
    assert rows[0]["reward/none"] == pytest.approx(3 / 7)
    shown, advantages = seen[0][1], seen[0][2]
    assert torch.isnan(shown.rewards).tolist() == [reward != reward for reward in REWARDS]
    assert not advantages[[1, 5, 6]].any()
    torch.testing.assert_close(advantages[JUDGED][:, : looked[0][2].shape[1]], looked[0][2])
    as_zero = [0.0 if reward != reward else reward for reward in REWARDS]
    wrong = noted(kind, sampled(ALL, as_zero), **changes)[1]
    assert differs(wrong, expected) > 0.01, "0 in place of none is noticed"


@pytest.mark.parametrize("case", CASES)
def test_a_step_without_any_reward_changes_nothing(case):
    kind, changes = CASES[case]
    what = sampled(ALL, [NONE] * 7)
    rows, gradients, seen = noted(kind, what, **changes)
    assert not any(gradient.any() for gradient in gradients)
    assert not seen[0][2].any()
    values = [value for row in rows for value in row.values()]
    assert all(value == value for value in values)
    assert all(
        row[name] == 0 for row in rows for name in ("loss", "loss/policy", "loss/value", "reward") if name in row
    )
    assert rows[0]["reward/none"] == 1
    assert rows[0].keys() == noted(kind, sampled(ALL), **changes)[0][0].keys()


@pytest.mark.parametrize(
    ("aggregation", "loss", "wrong"),
    [("dapo", -1 / 3, -1 / 2), ("bnpo", -1 / 3, -1 / 2), ("dr_grpo", -1 / 8, -3 / 12), ("grpo", 0.0, 0.0)],
)
def test_a_group_by_hand(aggregation, loss, wrong):
    """Rewards -1, none and -3 of answers of 2, 3 and 1 tokens: mean -2, advantages 1, 0 and -1.

    The ratio is 1, so that the sum over tokens is -(2 - 1), of 3 tokens and 2 answers of up to 4. With 0 for none the
    advantages are 1/3, 4/3 and -5/3, and the sum over tokens -3, of 6 tokens and 3 answers.
    """
    batch = make_completions([[3, 4]], [0, 0, 0], [[7, 2], [8, 9, 2], [4]], 2)
    with torch.no_grad():
        logps = compute_token_logps(llama(1), batch) * batch.mask
    seen, ended = [], torch.ones(3, dtype=torch.bool)
    settings = grpo_settings(aggregation=aggregation, advantage="centered")
    for earned, advantages, expected in (
        ([-1.0, NONE, -3.0], [1.0, 0.0, -1.0], loss),
        ([-1.0, 0.0, -3.0], [1 / 3, 4 / 3, -5 / 3], wrong),
    ):
        what = Experience(batch, logps, torch.tensor(earned), ended)
        fit = grpo.fit(
            llama(1), lambda _, what=what: what, Still(), settings, start=0, steps=1, reference=None,
            look=lambda *of: seen.append(of[2]),
        )  # fmt: skip
        row = next(fit)
        assert seen[-1].squeeze(1).tolist() == pytest.approx(advantages)
        assert row["loss"] == pytest.approx(expected, abs=1e-6)
    assert row["reward/none"] == 0


def test_the_spread_is_that_of_the_others():
    """-1 and -3 deviate by the root of 2; of the other prompt one response alone has a reward, which is no spread."""
    what = sampled(ALL, [-1.0, NONE, -3.0, 4.0, NONE, NONE, NONE])
    found = grpo.compute_token_advantages(what.samples(), grpo_settings()).squeeze(1)
    assert found.tolist() == pytest.approx([1 / (2**0.5 + 1e-4), -1 / (2**0.5 + 1e-4), 0])
    assert trained(llama(1), replace(what, paid=None, steps=None))[0]["frac_reward_zero_std"] == 0.5


def test_a_minibatch_without_samples_is_in_no_mean():
    """Two samples in three minibatches: the third has none."""
    what = sampled(ALL, [-1.0, NONE, NONE, 0.5, NONE, NONE, NONE])
    rows, _, _ = noted("ppo", what, epochs=1, minibatches=3)
    assert rows[0]["val/ratio"] == pytest.approx(noted("ppo", what, epochs=1, minibatches=2)[0][0]["val/ratio"])


@pytest.mark.parametrize(
    "case", ["dapo", *(pytest.param(case, marks=pytest.mark.slow) for case in CASES if case != "dapo")]
)
@pytest.mark.parametrize("earned", [REWARDS, [NONE] * 7])
def test_ranks_have_the_gradient_of_one_process(case, earned):
    """Three ranks: of four samples one has two, and of none nobody waits for another."""
    kind, changes = CASES[case]
    expected, own = noted(kind, sampled(ALL, earned), **changes), [models() for _ in range(3)]
    for rows, gradients, _ in in_ranks(3, lambda rank: noted(kind, sampled(ALL, earned), own[rank], **changes)):
        for row, wanted in zip(rows, expected[0], strict=True):
            assert row == pytest.approx(wanted, rel=1e-3, abs=1e-6)
        for gradient, wanted in zip(gradients, expected[1], strict=True):
            assert (gradient - wanted).norm() <= 1e-4 * wanted.norm()


@pytest.mark.parametrize("unjudged", [0.0, NONE])
def test_a_policy_does_not_learn_to_be_unjudgeable(unjudged):
    """Answer 0 cannot be judged, and every other earns -1: without a 0 for it there is nothing to learn."""
    policy = Table()
    before = probabilities(policy)[:, 0].mean().item()
    optimizer = make_optimizer(policy, 0.1, 20, clip=1.0, warmup=0.0)
    collect = collector(policy, lambda _, response: unjudged if response == [0] else -1.0)
    rows = [*grpo.fit(policy, collect, optimizer, grpo_settings(), start=0, steps=20, reference=None)]
    after = probabilities(policy)[:, 0].mean().item()
    if unjudged == 0:
        assert after > 3 * before
    else:
        assert after == pytest.approx(before)
        assert 0 < rows[-1]["reward/none"] < 0.5

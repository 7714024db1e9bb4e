import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language import grpo
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.grpo import GrpoSettings, grpo_loss
from tasks.algorithms.language.policy_gradient import Totals, clipped_policy_loss
from tests.tasks.bandits import (
    Still,
    Table,
    check_resumes,
    collector,
    expected_reward,
    graded,
    one_token,
    probabilities,
    rewards,
    with_end,
)
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import gpt2, llama

AGGREGATIONS = ["grpo", "bnpo", "dr_grpo", "dapo"]
LOW, HIGH = 0.2, 0.3


def asked(**changes):
    plain = {
        "supervision": "outcome",
        "advantage": "standardized",
        "aggregation": "dapo",
        "updates": 1,
        "clip_low": LOW,
        "clip_high": HIGH,
    }
    plain |= {"beta": 0.0, "kl": "k3", "temperature": 1.0, "old_from_sampler": True, "importance_cap": None}
    plain |= {"max_new_tokens": 4, "mask_truncated": False, "micro_batch": 64}
    return GrpoSettings(**{**plain, **changes})


# Three groups of two responses; the second has no spread.
BATCH = make_completions(
    [[3, 4], [5], [6, 7, 8]], [0, 0, 1, 1, 2, 2], [[7, 2], [8, 9, 2], [4, 4, 2], [1, 2], [5, 2], [3, 4, 5, 2]], pad=2
)


def experience(policy, earned=(1.0, 0.0, 0.7, 0.7, 0.0, 2.0), seed=None):
    """BATCH as if sampled from `policy`; with a `seed`, from a slightly different policy."""
    with torch.no_grad():
        logps = compute_token_logps(policy, BATCH)
    if seed is not None:
        logps += 0.5 * torch.randn(logps.shape, generator=torch.Generator().manual_seed(seed))
    return Experience(BATCH, logps * BATCH.mask, torch.tensor(earned), torch.ones(6, dtype=torch.bool))


def trained(policy, what, learning_rate=0.003, reference=None, steps=1, **changes):
    """The rows of `fit` on the same experience at every step."""
    optimizer = make_optimizer(policy, learning_rate, 10, clip=1.0, warmup=0.0)
    fit = grpo.fit(policy, lambda _: what, optimizer, asked(**changes), start=0, steps=steps, reference=reference)
    return list(fit)


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


@pytest.mark.parametrize(("aggregation", "part"), [("grpo", 3), ("dapo", 1), ("dr_grpo", 3)])
def test_micro_batches_change_nothing_in_the_weights(aggregation, part):
    """Four of the six responses have an advantage, so that parts of three are unequal."""
    found = []
    for size in (64, part):
        policy = llama(1)
        what = experience(policy, seed=0)
        trained(policy, what, reference=llama(2), aggregation=aggregation, beta=0.1, updates=2, micro_batch=size)
        found.append(weights(policy))
    assert (found[0] - weights(llama(1))).abs().max() > 0.001
    torch.testing.assert_close(*found, rtol=1e-4, atol=2e-5)


class Counted:
    """Counts the calls of a model and their rows."""

    def __init__(self, model):
        self.rows = []
        model.register_forward_pre_hook(
            lambda _, __, named: self.rows.append(len(named["input_ids"])), with_kwargs=True
        )


def test_groups_without_spread_cost_no_pass():
    policy = llama(1)
    what, calls = experience(policy), Counted(policy)
    row = trained(policy, what)[0]
    assert calls.rows == [2, 4], "two of three prompts are read, and four of six responses"
    assert row["frac_reward_zero_std"] == pytest.approx(1 / 3)
    calls.rows.clear()
    before = weights(policy)
    row = trained(policy, experience(llama(1), [1.0, 1.0, 0.5, 0.5, 0.0, 0.0]))[0]
    assert calls.rows == []
    assert (row["frac_reward_zero_std"], row["loss"], row["grad_norm"]) == (1.0, 0.0, 0.0)
    assert torch.equal(weights(policy), before)


def test_groups_without_spread_change_no_gradient():
    """Compared with the gradient of the whole batch through the model, with the groups' advantages by hand."""
    policy = llama(1)
    what = experience(policy, seed=0)
    grpo_fit = grpo.fit(policy, lambda _: what, Still(), asked(), start=0, steps=1, reference=None)
    next(grpo_fit)
    found = [p.grad.clone() for p in policy.parameters()]
    policy.zero_grad()
    scale = [0.5 / (0.5**0.5 + 1e-4), 1 / (2**0.5 + 1e-4)]
    advantages = torch.tensor([scale[0], -scale[0], 0, 0, -scale[1], scale[1]])
    loss, _ = grpo_loss(
        compute_token_logps(policy, BATCH), what.logps, advantages.unsqueeze(1), BATCH.mask,
        clip_low=LOW, clip_high=HIGH, aggregation="dapo", totals=Totals(6, int(BATCH.mask.sum()), 4),
    )  # fmt: skip
    loss.backward()
    for gradient, p in zip(found, policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-5)


class Untouched:
    """A reference that must not be called."""

    def __getattribute__(self, name):
        raise AssertionError(f"the reference was asked for {name}")


def test_without_beta_the_reference_is_not_touched():
    policy, reference = llama(1), llama(2)
    what, calls = experience(policy), Counted(reference)
    assert "kl" not in trained(policy, what, reference=Untouched())[0]
    row = trained(policy, what, reference=reference, beta=0.1, updates=3)[0]
    assert row["kl"] > 0
    assert calls.rows == [3, 6], "once for all updates"
    with pytest.raises(AssertionError, match="the reference was asked"):
        trained(policy, what, reference=Untouched(), beta=0.1)


def ratios(monkeypatch, policy, what, **changes):
    """The ratios in the loss, update by update."""
    seen = []

    def spy(logps, old, advantages, low, high):
        seen.append((logps.detach() - old).exp()[: len(logps)])
        return clipped_policy_loss(logps, old, advantages, low, high)

    monkeypatch.setattr(grpo, "clipped_policy_loss", spy)
    return seen, trained(policy, what, **changes)[0]


def test_the_second_update_is_off_policy(monkeypatch):
    policy = llama(1)
    seen, row = ratios(monkeypatch, policy, experience(policy), updates=2, learning_rate=0.02)
    assert len(seen) == 2
    torch.testing.assert_close(seen[0], torch.ones_like(seen[0]), rtol=1e-4, atol=0)
    assert (seen[1] - 1).abs().max() > 0.2
    assert row["clip_ratio"] > 0, "the last update's"


def test_a_sampler_that_is_not_the_trainer_shows_before_any_update():
    """By the mean distance of the tokens that are passed through the model; later updates move the policy, and do not
    count.
    """
    policy = llama(1)
    own, hotter = experience(policy), experience(policy, seed=7)
    assert trained(policy, own, updates=2)[0]["sampling/logp_difference"] == pytest.approx(0, abs=1e-6)
    policy = llama(1)
    used = BATCH.mask & torch.tensor(
        [[True], [True], [False], [False], [True], [True]]
    )  # the second group has no spread
    apart = (compute_token_logps(policy, BATCH) - hotter.logps).abs()[used].mean().item()
    assert apart > 0.1
    assert trained(policy, hotter, updates=2)[0]["sampling/logp_difference"] == pytest.approx(apart, abs=1e-6)


def test_whoever_looks_sees_each_steps_samples_and_advantages():
    policy, seen = llama(1), []
    what = experience(policy)
    fit = grpo.fit(
        policy, lambda _: what, Still(), asked(), start=3, steps=5, reference=None, look=lambda *of: seen.append(of)
    )
    list(fit)
    assert [step for step, _, _ in seen] == [4, 5]
    assert seen[0][1] is what
    assert seen[0][2].squeeze(1).tolist() == pytest.approx([0.707, -0.707, 0, 0, -0.707, 0.707], abs=1e-3)


def test_dropout_is_off(monkeypatch):
    """In the policy and in the reference, whatever their mode was before; so the ratio is 1 and the KL 0."""
    dropped = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    policy, reference = gpt2(1, **dropped), gpt2(1, **dropped)
    what = experience(policy)
    seen, row = ratios(monkeypatch, policy.train(), what, beta=0.1, reference=reference.train())
    torch.testing.assert_close(seen[0], torch.ones_like(seen[0]), rtol=1e-4, atol=0)
    assert row["kl"] == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        policy.train()
        assert (compute_token_logps(policy, BATCH) - compute_token_logps(policy, BATCH)).abs().max() > 0.1, (
            "dropout would show"
        )


def test_a_reward_that_is_no_number_stops_the_training():
    policy = llama(1)
    before = weights(policy)
    bad = experience(policy, (1.0, 0.0, 0.7, -float("inf"), 0.0, float("inf")))
    steps = iter([experience(policy), experience(policy), bad])
    fit = grpo.fit(policy, lambda _: next(steps), Still(), asked(), start=0, steps=9, reference=None)
    next(fit), next(fit)
    with pytest.raises(TrainingError, match=r"the reward of response 3 is -inf \(2 of 6"):
        next(fit)
    assert torch.equal(weights(policy), before)


def test_a_loss_that_is_infinite_stops_the_training():
    """exp of a log-ratio to the reference above 88 is infinite; training stops before any weight changes."""
    policy, reference = Table(), Table()
    with torch.no_grad():
        policy.head.weight[1] -= 120
    what = collector(policy, lambda *_: 1.0)(1)
    what.completions.tokens[0, 0] = 1
    before = weights(policy)
    with pytest.raises(TrainingError, match="the loss is inf"):
        trained(policy, what, reference=reference, beta=0.1)
    assert torch.equal(weights(policy), before)


def test_a_gradient_that_is_infinite_stops_the_training():
    """Otherwise the loss would still be right, but the weights would be nan."""
    policy = Table()
    policy.head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(TrainingError, match=r"the gradient's norm is (inf|nan)"):
        trained(policy, collector(policy, graded)(1))


def test_the_temperature_is_that_of_the_sampling(monkeypatch):
    """In the policy and in the reference: the ratio is 1 and the KL 0, but not at another temperature."""
    policy = llama(1)
    with torch.no_grad():
        logps = compute_token_logps(policy, BATCH, 0.7)
    what = Experience(BATCH, logps, torch.tensor([1.0, 0.0, 0.7, 0.7, 0.0, 2.0]), torch.ones(6, dtype=torch.bool))
    seen, row = ratios(monkeypatch, policy, what, temperature=0.7, beta=0.1, reference=llama(1))
    torch.testing.assert_close(seen[0], torch.ones_like(seen[0]), rtol=1e-4, atol=0)
    assert row["kl"] == pytest.approx(0, abs=1e-6)
    seen, _ = ratios(monkeypatch, llama(1), what, temperature=1.0)
    assert (seen[0] - 1).abs().max() > 0.1


def test_truncated_responses_can_be_left_out():
    policy = llama(1)
    what = experience(policy, (1.0, 0.0, 0.7, 0.7, 0.0, 2.0))
    cut = Experience(BATCH, what.logps, what.rewards, torch.tensor([True, False, True, True, True, True]))
    kept, calls = trained(policy, cut)[0], Counted(policy := llama(1))
    left_out = trained(policy, cut, mask_truncated=True)[0]
    assert calls.rows == [2, 3]
    assert left_out["completions/clipped_ratio"] == kept["completions/clipped_ratio"] == pytest.approx(1 / 6)
    assert left_out["grad_norm"] != kept["grad_norm"]


def learn(policy, reward, *, steps, learning_rate, samples=16, length=1, reference=None, **changes):
    optimizer = make_optimizer(policy, learning_rate, steps, clip=1.0, warmup=0.0)
    settings = asked(max_new_tokens=length, **changes)
    collect = collector(policy, reward, samples=samples, length=length)
    return list(grpo.fit(policy, collect, optimizer, settings, start=0, steps=steps, reference=reference))


@pytest.mark.parametrize(
    ("aggregation", "advantage"),
    [("grpo", "standardized"), ("bnpo", "centered"), ("dr_grpo", "standardized"), ("dapo", "centered")],
)
def test_it_learns_answers_and_to_end(aggregation, advantage):
    """From the uniform policy, which earns 1 in 49, to nearly the maximum."""
    policy = Table()
    assert expected_reward(policy, with_end, 2).item() == pytest.approx(1 / 49)
    rows = learn(
        policy,
        with_end,
        steps=30,
        learning_rate=0.3,
        samples=32,
        length=2,
        updates=2,
        aggregation=aggregation,
        advantage=advantage,
    )
    assert expected_reward(policy, with_end, 2).item() > 0.95
    assert rows[-1]["reward"] > 0.9 > 0.3 > rows[0]["reward"]
    assert rows[-1]["completions/mean_length"] == pytest.approx(2, abs=0.1)


def test_a_transformer_learns_it_too():
    policy = llama(1, initializer_range=0.1, vocab_size=7, num_hidden_layers=1)
    start = expected_reward(policy, one_token).item()
    learn(policy, one_token, steps=20, learning_rate=0.02)
    assert expected_reward(policy, one_token).item() > 0.95 > 0.4 > start


def forward_kl_optimum(known, earned, beta):
    """pi(a) = beta ref(a) / (beta + m - r(a)), m being pi's expected reward: found by bisection of sum pi = 1."""
    low, high = earned.max(1).values - beta, earned.max(1).values
    for _ in range(80):
        middle = (low + high) / 2
        total = (beta * known / (beta + middle[:, None] - earned).clamp(min=1e-12)).sum(1)
        low, high = torch.where(total > 1, middle, low), torch.where(total > 1, high, middle)
    return beta * known / (beta + low[:, None] - earned)


@pytest.mark.slow
def test_with_k3_in_the_loss_it_ends_at_the_optimum_of_the_forward_kl():
    """The gradient of k3 at samples of pi is that of KL(ref || pi), not of KL(pi || ref): grad = E[(1 - ref / pi) grad
    log pi].

    So it ends at the maximum of E[r] - beta KL(ref || pi), and not at ref exp(r / beta). A group's mean contains the
    response itself, which scales rewards by (G - 1) / G.
    """
    policy, reference, samples, beta = Table(1, spread=1.0), Table(1, spread=1.0), 128, 0.2
    learn(
        policy, graded, steps=150, learning_rate=0.1, samples=samples, reference=reference,
        beta=beta, advantage="centered",
    )  # fmt: skip
    with torch.no_grad():
        known, found, earned = probabilities(reference), probabilities(policy), rewards(graded)
    optimum = forward_kl_optimum(known, earned * (samples - 1) / samples, beta)
    torch.testing.assert_close(optimum.sum(1), torch.ones(3), rtol=1e-4, atol=0)
    assert (found - optimum).abs().max() < 0.02
    reverse = (known.log() + earned / beta).softmax(1)
    assert (optimum - reverse).abs().max() > 0.3
    assert (known - optimum).abs().max() > 0.1


def test_it_resumes():
    def make():
        policy = Table()
        optimizer = make_optimizer(policy, 0.1, 12, clip=1.0)
        collect = collector(policy, with_end, length=2)

        def fit(start, steps):
            return grpo.fit(policy, collect, optimizer, asked(updates=2), start=start, steps=steps, reference=None)

        return {"policy": policy, "optimizer": optimizer}, fit

    check_resumes(make)

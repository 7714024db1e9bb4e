import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language import ppo
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.critic import Critic, explained_variance
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.kl import AdaptiveKl
from tasks.algorithms.language.ppo import PpoSettings, clipped_value_loss, prepare_ppo_batch
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


def asked(**changes):
    plain = {"gamma": 1.0, "lam": 1.0, "clip_ratio": 0.2, "clip_value": 0.0, "epochs": 2, "minibatches": 2}
    plain |= {"missing_end_penalty": 0.0, "whiten": False, "temperature": 1.0, "micro_batch": 100, "seed": 0}
    return PpoSettings(**{**plain, "old_from_sampler": True, "importance_cap": None, **changes})


def sampled(policy, earned, seed=None, temperature=1.0):
    """Four responses to two prompts as if sampled from `policy`; with a `seed`, from a slightly different policy."""
    batch = make_completions([[4], [5, 1]], [0, 0, 1, 1], [[0, 3], [1, 2, 3], [2, 2, 2], [3]], pad=3)
    with torch.no_grad():
        logps = compute_token_logps(policy, batch, temperature)
    if seed is not None:
        logps = logps + 0.5 * torch.randn(logps.shape, generator=torch.Generator().manual_seed(seed))
    return Experience(batch, logps * batch.mask, torch.tensor(earned), torch.tensor([True, True, False, True]))


def fit(policy, critic, collect, *, reference, optimizers=None, kl=None, start=0, steps=1, look=None, **changes):
    optimizers = optimizers or (Still(), Still())
    return ppo.fit(
        policy, critic, reference, collect, optimizers, asked(**changes), kl or AdaptiveKl(0.1, None, 0.1),
        start=start, steps=steps, look=look,
    )  # fmt: skip


ONCE = {"epochs": 1, "minibatches": 1}


def test_a_sampler_that_is_not_the_trainer_shows_before_any_update():
    """In the step's first minibatch alone, after which the policy is another."""
    policy, critic, seen = llama(1), Critic(llama(3)), []
    own, apart = sampled(policy, (1.0, -0.5, 2.0, 0.0)), sampled(policy, (1.0, -0.5, 2.0, 0.0), seed=5)
    name, look = "sampling/logp_difference", {"reference": llama(2), "minibatches": 1, "epochs": 2}
    optimizers = [make_optimizer(model, 0.01, 9, clip=1.0, warmup=0.0) for model in (policy, critic)]
    found = next(fit(policy, critic, lambda _: own, optimizers=optimizers, look=lambda *of: seen.append(of), **look))
    assert found[name] == pytest.approx(0, abs=1e-6)
    assert found["policy/approxkl"] > 1e-5
    assert (seen[0][0], seen[0][1] is own, seen[0][2].shape) == (1, True, own.logps.shape)
    policy, mask = llama(1), apart.completions.mask
    with torch.no_grad():
        wanted = (compute_token_logps(policy, apart.completions) - apart.logps)[mask].abs().mean().item()
    assert next(fit(policy, Critic(llama(3)), lambda _: apart, **look))[name] == pytest.approx(wanted, abs=1e-6) != 0


def test_a_step_by_hand():
    """The row and both gradients of one update on the whole batch, compared with sums over single tokens."""
    policy, reference, critic = llama(1), llama(2), Critic(llama(3))
    torch.nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    what = sampled(policy, (1.0, -0.5, 2.0, 0.0), seed=5)
    changes = {"epochs": 1, "minibatches": 1, "missing_end_penalty": 1.0, "whiten": True, "gamma": 0.9, "lam": 0.8}
    row = next(fit(policy, critic, lambda _: what, reference=reference, clip_value=0.2, **changes))
    found = [[p.grad.clone() for p in model.parameters()] for model in (policy, critic)]
    policy.zero_grad(), critic.zero_grad()
    mask, known = what.completions.mask, compute_token_logps(reference, what.completions)
    with torch.no_grad():
        base = prepare_ppo_batch(what, what.logps, known, critic(what.completions), asked(missing_end_penalty=1.0, whiten=True, gamma=0.9, lam=0.8), 0.1)  # fmt: skip  # noqa: E501
    logps, values = compute_token_logps(policy, what.completions), critic(what.completions)
    policy_loss, value_part, clipped, squares, ratios = 0, 0, 0, 0, 0
    for n, t in mask.nonzero().tolist():
        ratio, advantage = (logps[n, t] - what.logps[n, t]).exp(), base.advantages[n, t]
        policy_loss = policy_loss - min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
        value_part = value_part + (values[n, t] - base.returns[n, t]) ** 2 / 2
        clipped += bool((advantage > 0 and ratio > 1.2) or (advantage < 0 and ratio < 0.8))
        squares, ratios = squares + ratio.log().item() ** 2 / 2, ratios + ratio.item()
    count = int(mask.sum())
    (policy_loss / count).backward(), (value_part / count).backward()
    for gradients, model in zip(found, (policy, critic), strict=True):
        for gradient, p in zip(gradients, model.parameters(), strict=True):
            torch.testing.assert_close(gradient, p.grad, rtol=1e-3, atol=1e-5)
    expected = {
        "loss/policy": policy_loss.item() / count,
        "loss/value": value_part.item() / count,
        "policy/clipfrac": clipped / count,
        "policy/approxkl": squares / count,
        "val/ratio": ratios / count,
        "objective/kl": ((what.logps - known) * mask).sum().item() / 4,
        "objective/scores": 2.5 / 4,
        "objective/kl_coef": 0.1,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert clipped > 1


def test_dropout_is_off():
    """In all three models, whatever their mode was before: the ratio is 1, the KL 0, and the value loss repeats."""
    dropped = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    policy, reference = gpt2(1, **dropped), gpt2(1, **dropped)
    critic = Critic(gpt2(2, **dropped))
    torch.nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    what = sampled(policy, (1.0, 0.0, 1.0, 0.0))
    models = policy.train(), critic.train(), reference.train()
    rows = list(fit(models[0], models[1], lambda _: what, reference=models[2], epochs=1, minibatches=1, steps=2))
    assert rows[0]["val/ratio"] == pytest.approx(1, abs=1e-5)
    assert rows[0]["policy/approxkl"] == pytest.approx(0, abs=1e-9)
    assert rows[0]["objective/kl"] == pytest.approx(0, abs=1e-5)
    assert rows[0]["loss/value"] == pytest.approx(rows[1]["loss/value"], rel=1e-5), (
        "half of the weights dropped changes far more"
    )


def test_the_temperature_is_that_of_the_sampling():
    """In the policy and in the reference: the ratio is 1 and the KL 0, but not at another temperature."""
    policy, critic = llama(1), Critic(llama(1))
    what = sampled(policy, (1.0, 0.0, 1.0, 0.0), temperature=0.7)
    rows = {
        temperature: next(fit(policy, critic, lambda _: what, reference=llama(1), temperature=temperature, **ONCE))
        for temperature in (0.7, 1.0)
    }
    assert rows[0.7]["policy/approxkl"] == pytest.approx(0, abs=1e-9)
    assert rows[0.7]["objective/kl"] == pytest.approx(0, abs=1e-5)
    assert rows[1.0]["policy/approxkl"] > 0.001
    assert abs(rows[1.0]["objective/kl"]) > 0.01


def test_values_are_held_near_those_sampled_with(monkeypatch):
    """Through all epochs, and not near the latest values or the returns."""
    seen = []
    monkeypatch.setattr(ppo, "clipped_value_loss", lambda *all_: seen.append(all_) or clipped_value_loss(*all_))
    policy, critic = llama(1), Critic(llama(1))
    torch.nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    what = sampled(policy, (1.0, -1.0, 0.5, 0.0))
    with torch.no_grad():
        first = critic(what.completions)
    optimizers = Still(), make_optimizer(critic, 0.01, 10, clip=1.0, warmup=0.0)
    changes = {"epochs": 2, "minibatches": 1, "clip_value": 0.2}
    next(fit(policy, critic, lambda _: what, reference=llama(1), optimizers=optimizers, **changes))
    for _, old, returns, clip in seen:
        torch.testing.assert_close(old.sort(dim=0).values, first.sort(dim=0).values, msg="rows are shuffled")
        assert (old - returns).abs().max() > 0.1
        assert clip == 0.2
    assert (seen[0][0].sort(dim=0).values - seen[1][0].sort(dim=0).values).abs().max() > 0.01


def test_updates_leave_the_sampling_policy_behind():
    policy, critic = llama(1), Critic(llama(1))
    what = sampled(policy, (1.0, -1.0, 0.5, 0.0))
    optimizers = tuple(make_optimizer(model, 0.01, 10, clip=1.0, warmup=0.0) for model in (policy, critic))
    once = next(fit(llama(1), critic, lambda _: what, reference=llama(1), epochs=1, minibatches=1))
    assert once["val/ratio"] == pytest.approx(1, abs=1e-5)
    row = next(fit(policy, critic, lambda _: what, reference=llama(1), optimizers=optimizers, epochs=4, minibatches=2))
    assert [optimizer.steps_taken for optimizer in optimizers] == [8, 8]
    assert row["policy/approxkl"] > 0.01
    assert row["objective/kl"] == pytest.approx(0, abs=1e-5), "of the policy that sampled"


def test_every_response_is_in_one_minibatch_of_an_epoch(monkeypatch):
    """Epochs and steps are shuffled differently, but reproducibly."""
    orders = []
    losses = ppo._compute_losses
    monkeypatch.setattr(
        ppo, "_compute_losses", lambda *all_, **named: orders.append(all_[-1].rows.tolist()) or losses(*all_, **named)
    )
    policy, critic = Table(), Critic(Table())
    what = collector(policy, one_token, samples=3)(1)
    for _ in range(2):
        list(fit(policy, critic, lambda _: what, reference=Table(), epochs=2, minibatches=2, steps=2))
    epochs = [orders[i] + orders[i + 1] for i in range(0, len(orders), 2)]
    assert all(sorted(epoch) == list(range(9)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs[:4]}) == 4
    assert epochs[:4] == epochs[4:]


def test_the_kl_coefficient_is_used_before_it_moves():
    policy, critic = llama(1), Critic(llama(1))
    what = sampled(policy, (1.0, -1.0, 0.5, 0.0))
    kl = AdaptiveKl(0.1, target=1e-3, rate=0.5)
    rows = list(fit(policy, critic, lambda _: what, reference=llama(2), kl=kl, steps=3, **ONCE))
    assert rows[0]["objective/kl"] > 0
    assert [row["objective/kl_coef"] for row in rows] == pytest.approx([0.1, 0.11, 0.121])


def norms(policy, critic):
    return tuple(make_optimizer(model, 0.001, 10, clip=1.0) for model in (policy, critic))


def test_rewards_and_losses_that_are_no_numbers_stop_the_training():
    policy, critic = llama(1), Critic(llama(1))
    good, bad = sampled(policy, (1.0, 0.0, 1.0, 0.0)), sampled(policy, (1.0, float("inf"), 1.0, 0.0))
    steps = iter([good, bad])
    running = fit(policy, critic, lambda _: next(steps), reference=llama(1), steps=2, **ONCE)
    next(running)
    with pytest.raises(TrainingError, match="the reward of response 1 is inf"):
        next(running)
    critic.head.bias.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(TrainingError, match=r"the gradient's norm is (inf|nan)"):
        next(
            fit(policy, critic, lambda _: good, reference=llama(1), start=1, steps=2, optimizers=norms(policy, critic))
        )
    policy, critic = llama(1), Critic(llama(1))
    with torch.no_grad():
        critic.head.bias.fill_(1e30)
    with pytest.raises(TrainingError, match="the loss is"):
        next(fit(policy, critic, lambda _: good, reference=llama(1), start=3, steps=4))


def learn(policy, reward, *, steps, learning_rate, critic_rate, coefficient=0.01, samples=16, length=1, **changes):
    """Train against a copy of the initial policy; returns the critic, the reference and the rows."""
    critic, reference = Critic(policy), type(policy)(policy.config) if isinstance(policy, type(llama())) else Table()
    reference.load_state_dict(policy.state_dict())
    settings = asked(**changes)
    updates = steps * settings.epochs * settings.minibatches
    optimizers = (
        make_optimizer(policy, learning_rate, updates, clip=1.0, warmup=0.0),
        make_optimizer(critic, critic_rate, updates, clip=1.0, warmup=0.0),
    )
    collect, kl = collector(policy, reward, samples=samples, length=length), AdaptiveKl(coefficient, None, 0.1)
    rows = list(ppo.fit(policy, critic, reference, collect, optimizers, settings, kl, start=0, steps=steps))
    return critic, reference, rows


def test_it_learns_answers_and_to_end():
    """From the uniform policy, which earns 1 in 49, to nearly the maximum; the critic predicts the reward."""
    policy = Table()
    assert expected_reward(policy, with_end, 2).item() == pytest.approx(1 / 49)
    changes = {"whiten": True, "clip_value": 0.2, "lam": 0.9}
    critic, _, rows = learn(policy, with_end, steps=40, learning_rate=0.2, critic_rate=0.1, length=2, **changes)
    assert expected_reward(policy, with_end, 2).item() > 0.95
    assert rows[-1]["reward"] > 0.9 > 0.3 > rows[0]["reward"]
    values = critic(make_completions([[4], [5], [6]], [0, 1, 2], [[1], [2], [0]], pad=3))
    assert values.min() > 0.7


def test_a_transformer_learns_it_too():
    policy = llama(1, initializer_range=0.1, vocab_size=7, num_hidden_layers=1)
    start = expected_reward(policy, one_token).item()
    learn(policy, one_token, steps=10, learning_rate=0.015, critic_rate=0.015)
    assert expected_reward(policy, one_token).item() > 0.95 > 0.4 > start


@pytest.mark.slow
def test_it_ends_at_the_closed_form_optimum():
    """The maximum of E[r] - beta KL(pi || ref) is pi = ref exp(r / beta) / Z: within 0.01 for every probability.

    There the advantage of every token is 0, so that the gradient has no noise; the critic ends at beta log Z.
    """
    policy, beta = Table(1, spread=1.0), 0.5
    critic, reference, _ = learn(
        policy, graded, steps=180, learning_rate=0.1, critic_rate=0.2, coefficient=beta, samples=48
    )
    with torch.no_grad():
        known, found, earned = probabilities(reference), probabilities(policy), rewards(graded)
        optimum = (known.log() + earned / beta).softmax(1)
        assert (found - optimum).abs().max() < 0.01
        assert (known - optimum).abs().max() > 0.1
        for wrong in (earned * beta, earned / (2 * beta), 2 * earned / beta):
            assert ((known.log() + wrong).softmax(1) - optimum).abs().max() > 0.05
        values = critic(make_completions([[4], [5], [6]], [0, 1, 2], [[1], [2], [0]], pad=3)).squeeze(1)
        log_z = (known * (earned / beta).exp()).sum(1).log()
        torch.testing.assert_close(values, beta * log_z, rtol=0, atol=0.05)


def test_it_resumes():
    def make():
        policy = Table()
        critic, kl = Critic(policy), AdaptiveKl(0.1, target=0.01, rate=0.5)
        optimizers = tuple(make_optimizer(model, 0.1, 24, clip=1.0) for model in (policy, critic))
        collect = collector(policy, graded, length=1)

        def again(start, steps):
            return fit(
                policy, critic, collect, reference=Table(), optimizers=optimizers, kl=kl, start=start, steps=steps,
                epochs=1,
            )  # fmt: skip

        parts = (policy, critic, *optimizers, kl)
        return dict(zip(("policy", "critic", "optimizer", "critic_optimizer", "kl"), parts, strict=True)), again

    check_resumes(make)


class Opinion(torch.nn.Module):
    """A critic whose values depend only on a response's first token, not on the rewards."""

    def __init__(self):
        super().__init__()
        self.values = torch.nn.Parameter(5.0 * torch.tensor([1.0, -1.0, -1.0, 1.0]))

    def forward(self, responses):
        return self.values[responses.tokens[:, :1]] * responses.mask


def test_a_critic_that_knows_nothing_explains_nothing():
    """It agrees with the lambda-returns, which consist mostly of its own values, but not with the rewards."""
    policy, critic = llama(1), Opinion()
    batch = make_completions([[4]], [0, 0, 0, 0], [[first, *[5] * 30] for first in range(4)], pad=3)
    with torch.no_grad():
        logps, values = compute_token_logps(policy, batch), critic(batch)
    what = Experience(batch, logps, torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.ones(4, dtype=torch.bool))
    lambda_returns = prepare_ppo_batch(what, logps, logps, values, asked(lam=0.5), 0.0).returns
    assert explained_variance(values, lambda_returns, batch.mask) > 0.9
    row = next(fit(policy, critic, lambda _: what, reference=llama(1), lam=0.5))
    assert row["val/explained_variance"] < 0.0


@pytest.mark.parametrize("size", [1, 3])
def test_micro_batches_have_the_gradients_of_the_whole_minibatch(size):
    """The four responses have 1 to 3 tokens, so that a mean of the parts' means would differ."""

    def found(micro_batch):
        policy, critic = llama(), Critic(llama(1))
        torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
        gradients = []

        class Noting:
            learning_rate = 0.0

            def __init__(self, model):
                self.model = model

            def step(self):
                gradients.append(torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None]))
                for p in self.model.parameters():
                    p.grad = None
                return 0.0

        rows = fit(
            policy,
            critic,
            lambda step: sampled(policy, [1.0, 0.5, -1.0, 2.0], seed=3),
            reference=llama(2),
            optimizers=(Noting(policy), Noting(critic)),
            **{"epochs": 1, "minibatches": 1, "clip_value": 0.2, "micro_batch": micro_batch},
        )
        return next(rows), gradients

    (row, whole), (cut, parts) = found(100), found(size)
    assert len(whole) == len(parts) == 2, "the policy's and the critic's"
    for one, other in zip(whole, parts, strict=True):
        assert (other - one).norm() < 1e-5 * one.norm()
    assert cut == pytest.approx(row, rel=1e-4, abs=1e-6)

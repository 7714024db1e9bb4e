from dataclasses import replace

import pytest
import torch

from tasks.algorithms import ppo
from tasks.algorithms.advantages import gae, whiten
from tasks.algorithms.completions import make_completions, token_logps
from tasks.algorithms.critic import Critic
from tasks.algorithms.experience import Experience, TrainingError
from tasks.algorithms.kl import AdaptiveKl
from tasks.algorithms.optimizer import Optimizer
from tasks.algorithms.ppo import Settings, prepare, value_loss
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
from tests.tasks.tiny import gpt2, llama


def asked(**changes):
    plain = {"gamma": 1.0, "lam": 1.0, "clip_ratio": 0.2, "clip_value": 0.0, "epochs": 2, "minibatches": 2}
    plain |= {"missing_end_penalty": 0.0, "whiten": False, "temperature": 1.0, "seed": 0}
    return Settings(**{**plain, **changes})


OLD = torch.tensor([1.0, 1.0, 1.0, 1.0])
NOW = torch.tensor([1.1, 3.0, 3.0, -1.0])
RETURNS = torch.tensor([2.0, 0.0, 4.0, 1.0])
# Held within 0.5 of 1: 1.1, 1.5, 1.5 and 0.5. The larger error counts.
CLIPPED = [0.9**2 / 2, 3.0**2 / 2, 2.5**2 / 2, 2.0**2 / 2]


def test_value_loss_by_hand():
    assert value_loss(NOW, OLD, RETURNS, 0.5).tolist() == pytest.approx(CLIPPED)
    assert value_loss(NOW, OLD, RETURNS, 0.0).tolist() == pytest.approx([0.9**2 / 2, 9 / 2, 1 / 2, 4 / 2])
    wrong = [
        2 * value_loss(NOW, OLD, RETURNS, 0.5),  # not halved
        (1 + (NOW - OLD).clamp(-0.5, 0.5) - RETURNS).square() / 2,  # the held value alone
        torch.min(value_loss(NOW, OLD, RETURNS, 0.0), (OLD + (NOW - OLD).clamp(-0.5, 0.5) - RETURNS).square() / 2),
        value_loss(NOW, RETURNS, OLD, 0.5),  # held near the return
    ]
    for mistake in wrong:
        assert (mistake - torch.tensor(CLIPPED)).abs().max() > 0.5


def test_a_value_past_the_clip_that_nears_its_return_has_no_gradient():
    values = NOW.clone().requires_grad_()
    value_loss(values, OLD, RETURNS, 0.5).sum().backward()
    assert values.grad.tolist() == pytest.approx([-0.9, 3.0, 0.0, -2.0])


# Responses of three and of two tokens; the second was cut off. Everything in the last column of the second is padding.
BATCH = make_completions([[4], [5]], [0, 1], [[0, 1, 3], [1, 2]], pad=3)
MASK = BATCH.mask
LOGPS = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -1.0, 0.0]])
KNOWN = torch.tensor([[-1.5, -1.0, -0.5], [-2.0, -2.0, -9.0]])
VALUES = torch.tensor([[0.5, 1.0, 0.0], [-1.0, 2.0, 50.0]])
SAMPLED = Experience(BATCH, LOGPS, torch.tensor([2.0, 3.0]), torch.tensor([True, False]))


def by_hand(whitened):
    """gamma 0.9, lambda 0.5, KL coefficient 0.1, penalty 4 on the second: its score is -1."""
    tokens = [[-0.05, 0.1, 2.0], [0.1, -0.1 - 1.0]]
    third = 2.0 - 0.0
    second = 0.1 + 0.9 * 0.0 - 1.0 + 0.45 * third
    first = tokens[0][0] + 0.9 * 1.0 - 0.5 + 0.45 * second
    last = tokens[1][1] - 2.0
    before = tokens[1][0] + 0.9 * 2.0 - -1.0 + 0.45 * last
    advantages = torch.tensor([[first, second, third], [before, last, 0.0]])
    returns = torch.tensor([[first + 0.5, second + 1.0, third], [before - 1.0, last + 2.0, 0.0]])
    if whitened:
        kept = advantages[MASK]
        advantages = (advantages - kept.mean()) / kept.std(correction=0) * MASK
    return advantages, returns


def prepared(sampled=SAMPLED, known=KNOWN, coefficient=0.1, **changes):
    settings = asked(**{"gamma": 0.9, "lam": 0.5, "missing_end_penalty": 4.0, "whiten": True, **changes})
    return prepare(sampled, known, VALUES, settings, coefficient)


@pytest.mark.parametrize("whitened", [True, False])
def test_a_batch_is_prepared_by_hand(whitened):
    found = prepared(whiten=whitened)
    advantages, returns = by_hand(whitened)
    torch.testing.assert_close(found.advantages, advantages)
    torch.testing.assert_close(found.returns, returns)
    assert torch.equal(found.old_values, VALUES)
    assert torch.equal(found.old_logps, LOGPS)


def last_column(scores):
    """Rewards with the score in the last column instead of on the last real token."""
    tokens = -0.1 * (LOGPS - KNOWN) * MASK
    tokens[:, -1] += scores
    return gae(tokens, VALUES, MASK, 0.9, 0.5)


@pytest.mark.parametrize(
    ("advantages", "returns"),
    [
        (prepared(missing_end_penalty=0.0).advantages, prepared(missing_end_penalty=0.0).returns),
        (prepared(replace(SAMPLED, ended=~SAMPLED.ended)).advantages, None),  # the penalty on the one that ended
        (prepared(replace(SAMPLED, ended=torch.tensor([False, False]))).advantages, None),  # on all
        (prepared(missing_end_penalty=-4.0).advantages, None),  # a bonus
        (prepared(coefficient=-0.1).advantages, prepared(coefficient=-0.1).returns),
        (prepared(coefficient=0.0).advantages, prepared(coefficient=0.0).returns),
        (whiten(last_column(torch.tensor([2.0, -1.0]))[0], MASK), last_column(torch.tensor([2.0, -1.0]))[1]),
        (None, by_hand(True)[0] + VALUES * MASK),  # returns of whitened advantages
        (by_hand(False)[0], None),
        (torch.stack([whiten(by_hand(False)[0][i : i + 1], MASK[i : i + 1])[0] for i in range(2)]), None),
    ],
)
def test_known_mistakes_prepare_another_batch(advantages, returns):
    for mistake, right in zip((advantages, returns), by_hand(True), strict=True):
        assert mistake is None or (mistake - right).abs().max() > 0.05


def sampled(policy, earned, seed=None):
    """Four responses to two prompts as if sampled from `policy`; with a `seed` from one a little off it."""
    batch = make_completions([[4], [5, 1]], [0, 0, 1, 1], [[0, 3], [1, 2, 3], [2, 2, 2], [3]], pad=3)
    with torch.no_grad():
        logps = token_logps(policy, batch)
    if seed is not None:
        logps = logps + 0.5 * torch.randn(logps.shape, generator=torch.Generator().manual_seed(seed))
    return Experience(batch, logps * batch.mask, torch.tensor(earned), torch.tensor([True, True, False, True]))


def fit(policy, critic, collect, *, reference, optimizers=None, kl=None, start=0, steps=1, **changes):
    optimizers = optimizers or (Still(), Still())
    return ppo.fit(
        policy, critic, reference, collect, optimizers, asked(**changes), kl or AdaptiveKl(0.1, None, 0.1),
        start=start, steps=steps,
    )  # fmt: skip


def test_a_step_by_hand():
    """The row and both gradients of one update on the whole batch, against sums over single tokens."""
    policy, reference, critic = llama(1), llama(2), Critic(llama(3))
    torch.nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    what = sampled(policy, (1.0, -0.5, 2.0, 0.0), seed=5)
    changes = {"epochs": 1, "minibatches": 1, "missing_end_penalty": 1.0, "whiten": True, "gamma": 0.9, "lam": 0.8}
    row = next(fit(policy, critic, lambda _: what, reference=reference, clip_value=0.2, **changes))
    found = [[p.grad.clone() for p in model.parameters()] for model in (policy, critic)]
    policy.zero_grad(), critic.zero_grad()
    mask, known = what.completions.mask, token_logps(reference, what.completions)
    with torch.no_grad():
        base = prepare(what, known, critic(what.completions), asked(missing_end_penalty=1.0, whiten=True, gamma=0.9, lam=0.8), 0.1)  # fmt: skip
    logps, values = token_logps(policy, what.completions), critic(what.completions)
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
    """In all three models, whatever state they come in: the ratio is one, the KL nothing, the value loss repeats."""
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
    assert rows[0]["loss/value"] == rows[1]["loss/value"]


def test_updates_leave_the_sampling_policy_behind():
    policy, critic = llama(1), Critic(llama(1))
    what = sampled(policy, (1.0, -1.0, 0.5, 0.0))
    optimizers = tuple(Optimizer(model, 0.01, 10, clip=1.0, warmup=0.0) for model in (policy, critic))
    once = next(fit(llama(1), critic, lambda _: what, reference=llama(1), epochs=1, minibatches=1))
    assert once["val/ratio"] == pytest.approx(1, abs=1e-5)
    row = next(fit(policy, critic, lambda _: what, reference=llama(1), optimizers=optimizers, epochs=4, minibatches=2))
    assert [optimizer.done for optimizer in optimizers] == [8, 8]
    assert row["policy/approxkl"] > 0.01
    assert row["objective/kl"] == pytest.approx(0, abs=1e-5), "of the policy that sampled"


def test_every_response_is_in_one_minibatch_of_an_epoch(monkeypatch):
    """And epochs and steps are shuffled differently, but the same way again."""
    orders = []
    losses = ppo._losses
    monkeypatch.setattr(
        ppo, "_losses", lambda *all_, **named: orders.append(all_[-1].tolist()) or losses(*all_, **named)
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
    rows = list(fit(policy, critic, lambda _: what, reference=llama(2), kl=kl, steps=3))
    assert rows[0]["objective/kl"] > 0
    assert [row["objective/kl_coef"] for row in rows] == pytest.approx([0.1, 0.11, 0.121])


def test_rewards_and_losses_that_are_no_numbers_stop_the_training():
    policy, critic = llama(1), Critic(llama(1))
    good, bad = sampled(policy, (1.0, 0.0, 1.0, 0.0)), sampled(policy, (1.0, float("nan"), 1.0, 0.0))
    steps = iter([good, bad])
    running = fit(policy, critic, lambda _: next(steps), reference=llama(1), steps=2)
    next(running)
    with pytest.raises(TrainingError, match="step 2: the reward of response 1 is nan"):
        next(running)
    with torch.no_grad():
        critic.head.bias.fill_(1e30)
    with pytest.raises(TrainingError, match="step 4: the loss is"):
        next(fit(policy, critic, lambda _: good, reference=llama(1), start=3, steps=4))


def learn(policy, reward, *, steps, learning_rate, critic_rate, coefficient=0.01, samples=16, length=1, **changes):
    """Train against a copy of the policy as it was; returns the critic, the reference and the rows."""
    critic, reference = Critic(policy), type(policy)(policy.config) if isinstance(policy, type(llama())) else Table()
    reference.load_state_dict(policy.state_dict())
    settings = asked(**changes)
    updates = steps * settings.epochs * settings.minibatches
    optimizers = (
        Optimizer(policy, learning_rate, updates, clip=1.0, warmup=0.0),
        Optimizer(critic, critic_rate, updates, clip=1.0, warmup=0.0),
    )
    collect, kl = collector(policy, reward, samples=samples, length=length), AdaptiveKl(coefficient, None, 0.1)
    rows = list(ppo.fit(policy, critic, reference, collect, optimizers, settings, kl, start=0, steps=steps))
    return critic, reference, rows


@pytest.mark.parametrize("changes", [{"whiten": True, "clip_value": 0.2}, {"lam": 0.9}], ids=str)
def test_it_learns_answers_and_to_end(changes):
    """From the uniform policy, which earns 1 in 49, to nearly all there is; the critic knows what is to be had."""
    policy = Table()
    assert expected_reward(policy, with_end, 2).item() == pytest.approx(1 / 49)
    critic, _, rows = learn(policy, with_end, steps=100, learning_rate=0.1, critic_rate=0.05, length=2, **changes)
    assert expected_reward(policy, with_end, 2).item() > 0.95
    assert rows[-1]["reward"] > 0.9 > 0.3 > rows[0]["reward"]
    values = critic(make_completions([[4], [5], [6]], [0, 1, 2], [[1], [2], [0]], pad=3))
    assert values.min() > 0.7


def test_a_transformer_learns_it_too():
    policy = llama(1, initializer_range=0.1, vocab_size=7, num_hidden_layers=1)
    start = expected_reward(policy, one_token).item()
    learn(policy, one_token, steps=40, learning_rate=0.005, critic_rate=0.005)
    assert expected_reward(policy, one_token).item() > 0.95 > 0.4 > start


def test_it_ends_at_the_closed_form_optimum():
    """The maximum of E[r] - beta KL(pi || ref) is pi = ref exp(r / beta) / Z: within 0.01 for every probability.

    There the advantage of every token is 0, so that no noise is left; the critic ends at beta log Z.
    """
    policy, beta = Table(1, spread=1.0), 0.5
    critic, reference, _ = learn(
        policy, graded, steps=120, learning_rate=0.1, critic_rate=0.2, coefficient=beta, samples=48
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


@pytest.mark.parametrize("forget", [None, "policy", "critic", "optimizer", "critic_optimizer", "kl"])
def test_it_resumes(forget):
    def make():
        policy = Table()
        critic, kl = Critic(policy), AdaptiveKl(0.1, target=0.01, rate=0.5)
        optimizers = tuple(Optimizer(model, 0.1, 24, clip=1.0) for model in (policy, critic))
        collect = collector(policy, graded, length=1)

        def again(start, steps):
            return fit(
                policy, critic, collect, reference=Table(), optimizers=optimizers, kl=kl, start=start, steps=steps
            )

        parts = (policy, critic, *optimizers, kl)
        return dict(zip(("policy", "critic", "optimizer", "critic_optimizer", "kl"), parts, strict=True)), again

    check_resumes(make, forget)

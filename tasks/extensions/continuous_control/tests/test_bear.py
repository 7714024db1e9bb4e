from math import exp, log, sqrt
from types import SimpleNamespace

import pytest
import torch

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.transition_tensors import TransitionBatch
from tasks.extensions.continuous_control.algorithms import bear
from tasks.extensions.continuous_control.algorithms.vae import ActionModel, gaussian_kl
from tests.tasks.algorithms.offline import point

SETTINGS = bear.BearSettings(
    gamma=0.5,
    lam=0.75,
    target_samples=2,
    kernel="laplacian",
    bandwidth=1.0,
    mmd_samples=4,
    threshold=0.4,
    target_rate=0.05,
    warmup=150,
)
PAIR, ONE = torch.tensor([[[0.0]], [[1.0]]]), torch.tensor([[[0.5]]])  # samples, states, components
FLAT = 1e-6  # under the root


def test_the_laplacian_discrepancy_of_two_points_and_one_by_hand():
    square = (2 + 2 * exp(-1)) / 4 + 1 - 2 * exp(-0.5)
    assert bear.maximum_mean_discrepancy(PAIR, ONE, "laplacian", 0.5).tolist() == pytest.approx([sqrt(square + FLAT)])
    assert bear.maximum_mean_discrepancy(ONE, PAIR, "laplacian", 0.5).tolist() == pytest.approx([sqrt(square + FLAT)])
    unbiased = exp(-1) + 1 - 2 * exp(-0.5)  # without the pairs of a sample with itself
    once = (2 + 2 * exp(-1)) / 4 + 1 - exp(-0.5)  # the cross term counted once
    for mistake in (unbiased, once):
        assert abs(mistake - square) > 0.1


def test_the_gaussian_discrepancy_of_vectors_by_hand():
    other = torch.tensor([[[3.0, 4.0]]])  # at distance 5 of 0 by squares, 7 by components
    origin = torch.zeros(1, 1, 2)
    assert bear.maximum_mean_discrepancy(origin, other, "gaussian", 10.0).item() == pytest.approx(
        sqrt(2 - 2 * exp(-25 / 20)), rel=1e-4
    )
    assert bear.maximum_mean_discrepancy(origin, other, "laplacian", 10.0).item() == pytest.approx(
        sqrt(2 - 2 * exp(-7 / 20)), rel=1e-4
    )


@pytest.mark.parametrize("kernel", ["laplacian", "gaussian"])
def test_the_discrepancy_of_each_state_is_its_own_and_0_of_equals_with_a_finite_slope(kernel):
    one = torch.stack([PAIR[:, 0], PAIR[:, 0] + 2], dim=1).requires_grad_()
    other = torch.stack([PAIR[:, 0].flip(0), PAIR[:, 0]], dim=1)
    distance = bear.maximum_mean_discrepancy(one, other, kernel, 1.0)
    assert distance[0].item() == pytest.approx(1e-3, abs=1e-3)
    assert distance[1] > 0.5
    distance.sum().backward()
    assert one.grad.isfinite().all()
    assert one.grad[:, 1].sum() > 0.01  # falls towards the other set


def test_the_mixture_of_critics_by_hand():
    assert bear.mix_critics(torch.tensor([[1.0, 6.0], [5.0, 2.0]]), 0.75).tolist() == [2.0, 3.0]


def test_targets_by_hand_the_best_sample_of_the_mixture_and_none_after_termination():
    q = torch.tensor([[[1.0, 0.0], [3.0, 0.0]], [[9.0, 0.0], [4.0, 0.0]]])  # critics, samples, states
    asked = []

    def targets(seen, actions):
        asked.append((seen, actions))
        return q

    sampled = torch.tensor([[[0.1], [0.2]], [[0.3], [0.4]]])
    agent = SimpleNamespace(
        target_policy=SimpleNamespace(sample=lambda seen, count, generator: (sampled, None)), targets=targets
    )
    following = torch.tensor([[7.0], [8.0]])
    batch = TransitionBatch(torch.zeros(2, 1), torch.zeros(2, 1), torch.ones(2), following, torch.tensor([False, True]))
    # The first state: mixtures 3 and 3.25. Mixing the maxima of each critic would give 0.75 * 3 + 0.25 * 9 = 4.5.
    assert bear.compute_q_targets(agent, batch, SETTINGS, None).tolist() == [1 + 0.5 * 3.25, 1.0]
    (seen, actions) = asked[0]
    assert torch.equal(seen[1], following)
    assert torch.equal(actions, sampled)


def learner(data):
    torch.manual_seed(0)
    agent = bear.BEARAgent(point.spaces(False), [32], 2, data.observations)
    optimizers = {
        name: Adam(getattr(agent, name).parameters(), point.RATE) for name in ("behaviour", "critics", "policy")
    }
    return agent, {**optimizers, "multiplier": Adam([agent.log_multiplier], 0.02)}


def test_the_policys_loss_is_the_priced_discrepancy_less_the_value_once_warm():
    agent, _ = learner(point.recorded(False))
    seen = torch.linspace(-1, 1, 6).unsqueeze(1)
    with torch.no_grad():
        agent.log_multiplier.fill_(1.0)

    def parts(done):
        agent.updates.fill_(done)
        return bear.policy_loss(agent, seen, SETTINGS, torch.Generator().manual_seed(0))

    cold, distance = parts(149)
    warm, _ = parts(150)
    assert cold.item() == pytest.approx(exp(1) * distance.item())
    actions, _ = agent.policy.sample(seen, 4, torch.Generator().manual_seed(0))
    assert (cold - warm).item() == pytest.approx(agent.critics(seen, actions[0]).amin(0).mean().item(), abs=1e-5)


@pytest.mark.parametrize(("threshold", "rises"), [(0.0, True), (9.0, False)])
def test_the_multiplier_rises_where_the_constraint_is_broken_and_falls_where_it_holds(threshold, rises):
    data = point.recorded(False)
    agent, optimizers = learner(data)
    settings = bear.BearSettings(**{**vars(SETTINGS), "threshold": threshold})
    generator = torch.Generator().manual_seed(0)
    metrics = point.drain(bear.fit(agent, optimizers, data, settings, batch_size=16, generator=generator), 20)
    assert (metrics["multiplier"] > 1) == rises


def test_the_multiplier_stays_within_its_bounds():
    data = point.recorded(False)
    agent, optimizers = learner(data)
    with torch.no_grad():
        agent.log_multiplier.fill_(9.999)
    settings = bear.BearSettings(**{**vars(SETTINGS), "threshold": 0.0})
    point.drain(bear.fit(agent, optimizers, data, settings, batch_size=16, generator=torch.Generator()), 5)
    assert agent.log_multiplier.item() == 10


def test_both_targets_follow():
    data = point.recorded(False)
    agent, optimizers = learner(data)
    settings = bear.BearSettings(**{**vars(SETTINGS), "target_rate": 1.0})
    first = agent.policy.layers[0].weight.clone()
    next(bear.fit(agent, optimizers, data, settings, batch_size=8, generator=torch.Generator()))
    assert point.same(agent.targets, agent.critics)
    assert point.same(agent.target_policy, agent.policy)
    assert not torch.equal(first, agent.target_policy.layers[0].weight)


def test_it_does_better_than_the_data_and_than_cloning_it():
    data = point.recorded(False)
    agent, optimizers = learner(data)
    settings = bear.BearSettings(**{**vars(SETTINGS), "gamma": point.GAMMA, "warmup": 40})
    generator = torch.Generator().manual_seed(0)
    point.drain(bear.fit(agent, optimizers, data, settings, batch_size=64, generator=generator), 90)
    assert point.score(agent.policy) > max(data.returns.mean().item(), point.score(point.cloned(False))) + 1


def test_the_behaviour_model_learns_what_the_data_do():
    data = point.recorded(False)
    agent, optimizers = learner(data)

    def loss():
        return agent.behaviour.loss(data.observations, data.actions, torch.Generator().manual_seed(1)).item()

    before = loss()
    generator = torch.Generator().manual_seed(0)
    point.drain(bear.fit(agent, optimizers, data, SETTINGS, batch_size=64, generator=generator), 30)
    assert loss() < 0.8 * before


def test_the_action_models_loss_by_hand(monkeypatch):
    """A latent of 0.3 + 0.5 noise in each of two components, decoded into their sum."""
    model = ActionModel(point.spaces(False), [])
    with torch.no_grad():
        model.encoder[0].weight.zero_()
        model.encoder[0].bias.copy_(torch.tensor([0.3, 0.3, log(0.5), log(0.5)]))
    monkeypatch.setattr(model, "_decode", lambda seen, latent: latent.sum(-1, keepdim=True))
    noise = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    actions = torch.tensor([[0.1], [0.2], [-0.5]])
    error = ((0.3 + 0.5 * noise).sum(-1, keepdim=True) - actions).square().mean()
    divergence = (0.3**2 + 0.5**2 - 1) / 2 - log(0.5)
    loss = model.loss(torch.zeros(3, 1), actions, torch.Generator().manual_seed(0))
    assert loss.item() == pytest.approx(error.item() + 0.5 * divergence, rel=1e-5)


def test_the_latents_divergence_by_hand():
    torch.testing.assert_close(
        gaussian_kl(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0])),
        torch.tensor([0.0, (4 + exp(2) - 1) / 2 - 1]),
    )


def test_the_action_model_keeps_two_modes_apart_which_a_mean_would_blur():
    torch.manual_seed(0)
    data = point.recorded(False)
    model = ActionModel(point.spaces(False), [32])
    actions = torch.where(torch.rand(len(data), 1) < 0.5, -0.8, 0.8)
    optimizer, generator = Adam(model.parameters(), point.RATE), torch.Generator().manual_seed(0)
    for _ in range(200):
        rows = torch.randint(len(data), (64,), generator=generator)
        optimizer.step(model.loss(data.observations[rows], actions[rows], generator))
    sampled = model.sample(data.observations[:50], 40, generator)
    assert sampled.shape == (40, 50, 1)
    assert sampled.abs().mean() > 0.4
    assert (sampled > 0).float().mean().item() == pytest.approx(0.5, abs=0.2)


def test_the_action_model_samples_what_was_seen_often_without_gradient(monkeypatch):
    model = ActionModel(point.spaces(False), [4])
    assert not model.sample(torch.zeros(3, 1), 2, torch.Generator()).requires_grad
    monkeypatch.setattr(model, "_decode", lambda seen, latent: latent)
    latent = model.sample(torch.zeros(3, 1), 100, torch.Generator().manual_seed(0))
    assert latent.abs().max() == 0.5
    assert latent.std() > 0.3

from math import exp, log
from types import SimpleNamespace

import pytest
import torch

from tasks.algorithms.offline import cql_continuous as cql
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.transition_tensors import Referenced, Spaces, TransitionBatch
from tests.tasks.algorithms.offline import point

SETTINGS = cql.CqlSettings(gamma=0.9, samples=4, gap=None, target_rate=0.05)
SPACES = Spaces(3, 2, discrete=False)


def batch():
    generator = torch.Generator().manual_seed(5)
    seen, following = torch.randn(2, 6, 3, generator=generator)
    return TransitionBatch(
        seen, torch.rand(6, 2, generator=generator) * 2 - 1, torch.ones(6), following, torch.arange(6) == 2
    )


def agent(alpha=0.5):
    torch.manual_seed(0)
    learner = cql.CQLAgent(SPACES, [8], 2, batch().observations, alpha)
    with torch.no_grad():
        for parameter in learner.targets.parameters():
            parameter.mul_(1.5)  # as if the critics had moved on
    return learner


def test_the_conservative_term_by_hand():
    proposed = torch.tensor([[[1.0], [2.0]]])  # a critic, two actions, a state
    densities = torch.tensor([[log(0.25)], [log(0.5)]])
    q = torch.tensor([[3.0]])
    corrected = log(exp(1) / 0.25 + exp(2) / 0.5) - 3
    assert cql.conservative_penalty(proposed, densities, q).tolist() == pytest.approx([corrected])
    for mistake in (log(exp(1) + exp(2)) - 3, log(exp(1) * 0.25 + exp(2) * 0.5) - 3):  # none, and of the wrong sign
        assert abs(mistake - corrected) > 0.5


def test_it_estimates_the_integral_over_the_box_whoever_proposes():
    """Of exp Q over the box, which has volume 4 for two components, as a mean over proposals of either kind."""
    generator = torch.Generator().manual_seed(0)
    many = TransitionBatch(*(column[:1] for column in vars(batch()).values()))
    actions, densities = cql.sample_proposal_actions(agent().policy, many, 20_000, generator)
    q = actions.sum(-1)  # the integral of exp(x + y) is (e - 1/e)^2
    for kind in range(3):
        part = slice(20_000 * kind, 20_000 * (kind + 1))
        integral = (q[part] - densities[part]).exp().mean().item()
        assert integral == pytest.approx((exp(1) - exp(-1)) ** 2, rel=0.1), kind


def test_proposals_are_uniform_then_of_both_states_policies_without_gradient():
    learner, seen = agent(), batch()
    actions, densities = cql.sample_proposal_actions(learner.policy, seen, 4, torch.Generator().manual_seed(0))
    assert actions.shape == (12, 6, 2)
    assert densities.shape == (12, 6)
    assert not actions.requires_grad
    assert not densities.requires_grad
    torch.testing.assert_close(densities[:4], torch.full((4, 6), 2 * log(0.5)))
    for rows, states in ((slice(4, 8), seen.observations), (slice(8, 12), seen.next_observations)):
        for action, density in zip(actions[rows], densities[rows], strict=True):
            expected = learner.policy.log_likelihood(states, action)
            torch.testing.assert_close(density, expected.detach(), rtol=1e-3, atol=1e-3)


def test_all_actions_are_scored_at_the_current_state():
    seen, asked = batch(), []

    def critics(observations, actions):
        asked.append(observations)
        return torch.zeros(2, *actions.shape[:-1], requires_grad=True)

    learner = agent()
    watched = SimpleNamespace(policy=learner.policy, critics=critics, targets=learner.targets, alpha=learner.alpha)
    cql.critic_loss(watched, seen, SETTINGS, torch.Generator().manual_seed(0))
    assert len(asked) == 1
    assert asked[0].shape == (13, 6, 3)
    assert torch.equal(asked[0], seen.observations.expand(13, -1, -1))


def test_the_critics_loss_is_their_squared_error_and_the_weighted_term():
    learner, seen = agent(), batch()
    loss, term, metrics = cql.critic_loss(learner, seen, SETTINGS, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    following, _ = learner.policy.sample(seen.next_observations, 1, generator)
    value = learner.targets(seen.next_observations, following[0]).amin(0)
    targets = (1 + torch.where(seen.terminated, 0.0, 0.9) * value).detach()
    actions, densities = cql.sample_proposal_actions(learner.policy, seen, 4, generator)
    expected = 0.0
    for critic in range(2):
        q = learner.critics(seen.observations, seen.actions)[critic]
        proposed = torch.stack([learner.critics(seen.observations, action)[critic] for action in actions])
        gap = ((proposed - densities).exp().sum(0).log() - q).mean()
        expected += ((q - targets) ** 2).mean() + 0.5 * gap
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert metrics["conservative"] == term
    loss.backward()
    assert all(parameter.grad is None for parameter in learner.policy.parameters())
    assert learner.log_alpha.grad is None


def test_calibrated_the_policys_actions_are_worth_at_least_what_was_earned():
    """Those drawn uniformly are not touched, as in the authors' code."""
    learner, seen = agent(), batch()
    earned = torch.tensor([-9.0, 9.0, 0.0, 9.0, -9.0, 0.1])
    settings = cql.CqlSettings(**{**vars(SETTINGS), "calibrated": True})
    generator = torch.Generator().manual_seed(0)
    _, term, _ = cql.critic_loss(learner, Referenced.of(seen, earned), settings, generator)
    generator = torch.Generator().manual_seed(0)
    learner.policy.sample(seen.next_observations, 1, generator)
    actions, densities = cql.sample_proposal_actions(learner.policy, seen, 4, generator)
    gaps = []
    for critic in range(2):
        proposed = torch.stack([learner.critics(seen.observations, action)[critic] for action in actions])
        proposed[4:] = torch.where(proposed[4:] < earned, earned, proposed[4:])
        q = learner.critics(seen.observations, seen.actions)[critic]
        gaps.append(((proposed - densities).exp().sum(0).log() - q).mean().item())
    assert term.item() == pytest.approx(sum(gaps) / 2, rel=1e-4)


def test_the_policys_loss_weighs_its_density_by_the_temperature():
    learner, seen = agent(), batch().observations
    with torch.no_grad():
        learner.log_temperature.fill_(log(0.3))
    loss, density = cql.policy_loss(learner, seen, torch.Generator().manual_seed(0))
    actions, densities = learner.policy.sample(seen, 1, torch.Generator().manual_seed(0))
    gain = learner.critics(seen, actions[0]).amin(0)
    assert loss.item() == pytest.approx((0.3 * densities[0] - gain).mean().item(), rel=1e-5)
    assert density.item() == pytest.approx(densities.mean().item(), rel=1e-5)


def optimizers(learner):
    return {
        "policy": Adam(learner.policy.parameters(), point.RATE),
        "critics": Adam(learner.critics.parameters(), point.RATE),
        "temperature": Adam([learner.log_temperature], point.RATE),
        "alpha": Adam([learner.log_alpha], point.RATE),
    }


def fitted(steps, gap=None):
    torch.manual_seed(0)
    data = point.recorded(False)
    settings = cql.CqlSettings(**{**vars(SETTINGS), "gap": gap})
    learner = cql.CQLAgent(point.spaces(False), [32], 2, data.observations, 0.5)
    generator = torch.Generator().manual_seed(0)
    metrics = point.drain(
        cql.fit(learner, optimizers(learner), data.batches(64, generator), settings, generator), steps
    )
    return learner, metrics, data


def test_alpha_is_held_without_a_gap_and_moves_towards_it_otherwise():
    assert fitted(20)[1]["alpha"].item() == pytest.approx(0.5)
    assert fitted(20, gap=50.0)[1]["alpha"] < 0.49
    assert fitted(20, gap=-50.0)[1]["alpha"] > 0.51


def test_the_temperature_falls_while_the_entropy_is_above_minus_the_number_of_components():
    _, metrics, _ = fitted(20)
    assert metrics["entropy"] > -1
    assert metrics["temperature"] < 1


def test_the_targets_follow_the_critics():
    torch.manual_seed(0)
    data = point.recorded(False)
    learner = cql.CQLAgent(point.spaces(False), [8], 2, data.observations, 0.5)
    settings = cql.CqlSettings(**{**vars(SETTINGS), "target_rate": 1.0})
    generator = torch.Generator()
    steps = cql.fit(learner, optimizers(learner), data.batches(8, generator), settings, generator)
    before = learner.targets.members[0][0].weight.clone()
    next(steps)
    assert point.same(learner.targets, learner.critics)
    assert not torch.equal(before, learner.targets.members[0][0].weight)


def test_it_does_better_than_the_data_and_than_cloning_it():
    learner, _, data = fitted(100)
    assert point.score(learner.policy) > max(data.returns.mean().item(), point.score(point.cloned(False))) + 1


def test_values_of_actions_outside_the_data_are_held_down():
    """Actions of the data are within 0.3 of 0: those at 0.9 are valued lower the larger alpha is."""

    def excess(alpha):
        torch.manual_seed(0)
        data = point.recorded(False)
        narrow = type(data)(**{**vars(data), "actions": 0.3 * data.actions})
        learner = cql.CQLAgent(point.spaces(False), [32], 2, narrow.observations, alpha)
        generator = torch.Generator().manual_seed(0)
        point.drain(cql.fit(learner, optimizers(learner), narrow.batches(64, generator), SETTINGS, generator), 50)
        seen = narrow.observations[:200]
        outside = learner.critics(seen, torch.full((200, 1), 0.9)) + learner.critics(seen, torch.full((200, 1), -0.9))
        return (outside / 2 - learner.critics(seen, narrow.actions[:200])).mean().item()

    assert excess(5.0) < excess(0.01) - 0.5

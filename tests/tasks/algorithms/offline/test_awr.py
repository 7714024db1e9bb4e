from math import exp

import pytest
import torch

from tasks.algorithms.offline import awr
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions
from tests.tasks.algorithms.offline import point

# An episode of three steps that terminated, and one of two that was truncated.
DATA = Transitions(
    observations=torch.arange(5.0).unsqueeze(1),
    actions=torch.tensor([0, 1, 0, 1, 1]),
    rewards=torch.tensor([1.0, 2.0, 4.0, 3.0, 5.0]),
    next_observations=torch.arange(5.0).unsqueeze(1) + 1,
    terminated=torch.tensor([False, False, True, False, False]),
    lengths=torch.tensor([3, 2]),
)
NEXT = torch.tensor([10.0, 20.0, 99.0, 30.0, 40.0])  # values of the next observations


def by_hand():
    """gamma 0.9, lambda 0.5."""
    third = 4.0
    second = 2 + 0.9 * (0.5 * 20 + 0.5 * third)
    first = 1 + 0.9 * (0.5 * 10 + 0.5 * second)
    fifth = 5 + 0.9 * 40
    fourth = 3 + 0.9 * (0.5 * 30 + 0.5 * fifth)
    return torch.tensor([first, second, third, fourth, fifth])


def mistaken(kind):
    """The recursion, step by step, with one mistake."""
    result, following = torch.zeros(5), 0.0
    for t in reversed(range(5)):
        last, terminated = t in (2, 4), t == 2
        if kind == "truncation ends" and last:
            terminated = True
        value = 0.0 if terminated and kind != "termination goes on" else NEXT[t].item()
        if last and kind != "across episodes":
            following = value
        share = 0.5 if kind != "lambda on the value" else 0.25
        result[t] = DATA.rewards[t] + 0.9 * ((1 - share) * value + share * following)
        following = result[t].item()
    return result


def test_td_lambda_by_hand():
    torch.testing.assert_close(awr.td_lambda_returns(DATA, NEXT, 0.9, 0.5), by_hand())
    torch.testing.assert_close(mistaken(None), by_hand())
    for kind in ("truncation ends", "termination goes on", "across episodes", "lambda on the value"):
        assert (mistaken(kind) - by_hand()).abs().max() > 0.5, kind


def test_lambda_0_looks_one_step_ahead_and_lambda_1_to_the_end_of_the_recording():
    assert awr.td_lambda_returns(DATA, NEXT, 0.5, 0.0).tolist() == [6.0, 12.0, 4.0, 18.0, 25.0]
    assert awr.td_lambda_returns(DATA, NEXT, 0.5, 1.0).tolist() == [
        1 + 0.5 * (2 + 0.5 * 4),
        4.0,
        4.0,
        3 + 0.5 * 25,
        25.0,
    ]


def test_weights_by_hand():
    advantages = torch.tensor([2.0, 6.0])  # mean 4, deviation 2: -1 and 1
    assert awr.standardised_advantage_weights(advantages, 0.5, 20.0).tolist() == pytest.approx(
        [exp(-2), exp(2)], rel=1e-4
    )
    assert awr.standardised_advantage_weights(advantages, 0.5, 3.0).tolist() == pytest.approx([exp(-2), 3.0], rel=1e-4)
    assert awr.standardised_advantage_weights(10 * advantages + 7, 2.0, 20.0).tolist() == pytest.approx(
        [exp(-0.5), exp(0.5)], rel=1e-4
    )
    assert awr.standardised_advantage_weights(torch.ones(3), 1.0, 20.0).tolist() == [1.0] * 3  # nothing to tell apart


def test_the_weights_of_a_data_set_are_of_its_returns_less_its_values():
    torch.manual_seed(0)
    agent = awr.AWRAgent(Spaces(1, 2, True), [4], DATA)
    settings = awr.AwrSettings(gamma=0.9, lam=0.5, beta=1.0, max_weight=20.0, refresh_every=1)
    awr.refresh_returns_and_weights(agent, DATA, settings)
    returns = awr.td_lambda_returns(DATA, agent.values(DATA.next_observations), 0.9, 0.5)
    torch.testing.assert_close(agent.returns, returns)
    advantages = returns - agent.value(DATA.observations).detach().squeeze(1)
    torch.testing.assert_close(agent.weights, awr.standardised_advantage_weights(advantages, 1.0, 20.0))


def one_step(monkeypatch, weights):
    """Metrics of a first step with these weights and DATA's rewards as returns, and the values that they come from."""

    def refresh(agent, transitions, settings):
        agent.weights.copy_(torch.tensor(weights))
        agent.returns.copy_(DATA.rewards)

    monkeypatch.setattr(awr, "refresh_returns_and_weights", refresh)
    torch.manual_seed(0)
    agent = awr.AWRAgent(Spaces(1, 2, True), [4], DATA)
    likely, values = (
        agent.policy.log_likelihood(DATA.observations, DATA.actions).detach(),
        agent.values(DATA.observations),
    )
    settings = awr.AwrSettings(gamma=0.9, lam=0.5, beta=1.0, max_weight=20.0, refresh_every=1)
    steps = awr.fit(agent, optimizers(agent), DATA, settings, batch_size=7, generator=torch.Generator().manual_seed(0))
    rows = torch.randint(5, (7,), generator=torch.Generator().manual_seed(0))
    return next(steps), likely[rows], values[rows], rows


def test_the_losses_are_the_weighted_log_likelihood_and_the_square_of_return_less_value(monkeypatch):
    weights = torch.tensor([1.0, 0.0, 3.0, 0.5, 20.0])  # the last one is at the limit
    metrics, likely, values, rows = one_step(monkeypatch, weights.tolist())
    assert metrics["policy_loss"].item() == pytest.approx(-(weights[rows] * likely).mean().item(), rel=1e-5)
    assert metrics["value_loss"].item() == pytest.approx((DATA.rewards[rows] - values).square().mean().item(), rel=1e-5)
    assert metrics["weight"].item() == pytest.approx(weights[rows].mean().item())
    assert 0 < metrics["clipped"].item() < 0.5
    assert metrics["clipped"].item() == pytest.approx(rows.tolist().count(4) / 7)


def optimizers(agent):
    return {"policy": Adam(agent.policy.parameters(), point.RATE), "value": Adam(agent.value.parameters(), point.RATE)}


@pytest.mark.parametrize("discrete", [True, False])
def test_it_does_better_than_the_data_and_than_cloning_it(discrete):
    torch.manual_seed(0)
    data = point.recorded(discrete)
    agent = awr.AWRAgent(point.spaces(discrete), [32], data)
    settings = awr.AwrSettings(gamma=point.GAMMA, lam=0.9, beta=0.3, max_weight=20.0, refresh_every=40)
    generator = torch.Generator().manual_seed(0)
    point.drain(awr.fit(agent, optimizers(agent), data, settings, batch_size=64, generator=generator), 120)
    assert point.score(agent.policy) > max(data.returns.mean().item(), point.score(point.cloned(discrete))) + 1

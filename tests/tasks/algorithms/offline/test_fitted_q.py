from itertools import islice

import pytest
import torch

from tasks.algorithms.offline import fitted_q
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions
from tests.tasks.algorithms.offline.chains import dynamics, evaluated, recorded, sampled


class Fixed:
    """Does action i in the state whose one-hot vector has its 1 at i's place."""

    def __init__(self, actions):
        self.actions = torch.tensor(actions)

    def act(self, observations):
        return self.actions[observations.argmax(dim=1)]


def fitted(data, policy, spaces, *, steps, gamma, hidden=(), learning_rate=0.05, target_rate=0.1, batch_size=90):
    critics = fitted_q.Evaluators(spaces, hidden, [0])
    settings = {"learning_rate": learning_rate, "target_rate": target_rate, "batch_size": batch_size}
    generators = [torch.Generator().manual_seed(0)]
    for _ in islice(fitted_q.fit(critics, [policy], data, gamma=gamma, generators=generators, **settings), steps):
        pass
    return critics


def value(critics, observations, actions):
    with torch.no_grad():
        return critics(observations.unsqueeze(0), actions.unsqueeze(0))[0]


def test_it_comes_to_the_policy_s_value_in_the_true_dynamics(one_thread):
    chain, gamma, actions = dynamics(states=5, actions=3, seed=4), 0.6, [0, 2, 1, 1, 0]
    data, policy = sampled(chain), Fixed(actions)
    settings = {"steps": 800, "learning_rate": 0.008, "target_rate": 0.2, "batch_size": 512}
    critic = fitted(data, policy, Spaces(5, 3, True), gamma=gamma, **settings)
    exact = evaluated(chain, gamma, torch.eye(3)[actions])
    found = torch.stack([value(critic, torch.eye(5), torch.full((5,), action)) for action in range(3)], dim=1)
    torch.testing.assert_close(found.double(), exact, rtol=0.0, atol=0.08)
    mine = exact[torch.arange(5), torch.tensor(actions)].mean().item()  # each state starts equally many episodes
    assert fitted_q.estimate_policy_returns(critic, [policy], data.observations[data.starts]) == pytest.approx(
        [mine], abs=0.05
    )
    behaviour = evaluated(chain, gamma, torch.full((5, 3), 1 / 3)).mean().item()
    assert abs(behaviour - mine) > 0.3  # what the data's own returns would say


@pytest.mark.parametrize(("terminated", "worth"), [(False, 1 + 0.5 * 4), (True, 1.0)])
def test_a_truncated_episode_goes_on_and_a_terminated_one_does_not(terminated, worth, one_thread):
    data = recorded([(0, 0, 1.0, 1, terminated), (1, 0, 4.0, 1, True)], states=2, length=1)
    critic = fitted(data, Fixed([0, 0]), Spaces(2, 2, True), steps=200, gamma=0.5, target_rate=0.3)
    assert value(critic, torch.eye(2)[:1], torch.tensor([0])).item() == pytest.approx(worth, abs=0.05)


def test_what_is_bootstrapped_from_is_the_target_not_the_critic(one_thread):
    """The target of a target that never moves: r + gamma Q_first(s', a')."""
    data, spaces = recorded([(0, 0, 1.0, 1, False), (1, 0, 4.0, 1, True)], states=2, length=1), Spaces(2, 2, True)
    first = fitted_q.Evaluators(spaces, (), [0])  # as `fitted` starts
    first.normaliser.fit(data.observations)
    critic = fitted(data, Fixed([0, 0]), spaces, steps=400, gamma=0.5, target_rate=0.0)
    wanted = 1 + 0.5 * value(first, torch.eye(2)[1:], torch.tensor([0])).item()
    assert abs(wanted - (1 + 0.5 * 4)) > 0.5
    assert value(critic, torch.eye(2)[:1], torch.tensor([0])).item() == pytest.approx(wanted, abs=0.05)


class Straight:
    """A continuous policy whose action is half of the observation."""

    def act(self, observations):
        return observations / 2


def test_continuous_actions(one_thread):
    """One step, reward -(s - a)^2, random actions: a = s / 2 from s in [-1, 1] is worth -1/12 on average, the data's
    -2/3.
    """
    generator = torch.Generator().manual_seed(0)
    seen, acted = (2 * torch.rand(2000, 1, generator=generator) - 1 for _ in range(2))
    rewards = -(seen - acted).square().squeeze(1)
    ends = torch.ones(2000, dtype=torch.bool)
    data = Transitions(seen, acted, rewards, seen, ends, torch.ones(2000, dtype=torch.long))
    spaces = Spaces(1, 1, False)
    critic = fitted(data, Straight(), spaces, steps=400, gamma=0.9, hidden=(32, 32), learning_rate=0.005)
    assert fitted_q.estimate_policy_returns(critic, [Straight()], seen) == pytest.approx([-1 / 12], abs=0.03)
    assert rewards.mean().item() == pytest.approx(-2 / 3, abs=0.03)


def test_actions_are_asked_for_in_parts_and_keep_their_order():
    seen = torch.arange(2 * fitted_q.CHUNK + 3.0).unsqueeze(1)
    assert torch.equal(fitted_q.compute_policy_actions(Straight(), seen), seen / 2)


def test_bounds_by_hand():
    assert fitted_q.compute_return_bounds(torch.tensor([1.0, -2.0, 3.0]), 0.75) == (-8.0, 12.0)
    assert fitted_q.compute_return_bounds(torch.tensor([1.0, 0.5]), 0.5) == (0.0, 2.0)  # an episode may end at once
    assert fitted_q.compute_return_bounds(torch.tensor([1.0]), 1.0) == (-float("inf"), float("inf"))


class Outside:
    """A policy that always takes the action that the data lacks."""

    def act(self, observations):
        return torch.ones(len(observations), 1)


def test_a_policy_that_strays_from_the_data_is_not_worth_more_than_there_is(one_thread, monkeypatch):
    """Endless rewards of 1 are worth at most 10.

    Without the bound the critic's slope in the action amplifies itself.
    """
    generator = torch.Generator().manual_seed(0)
    seen = torch.rand(500, 1, generator=generator)
    acted = 0.2 * torch.rand(500, 1, generator=generator)
    ends = torch.zeros(500, dtype=torch.bool)
    data = Transitions(seen, acted, (acted > 0.1).float().squeeze(1), seen, ends, torch.full((50,), 10))

    def found():
        critic = fitted(data, Outside(), Spaces(1, 1, False), steps=300, gamma=0.9, target_rate=0.5)
        return value(critic, seen, acted).mean().item()

    assert found() <= 10.5
    monkeypatch.setattr(fitted_q, "compute_return_bounds", lambda rewards, gamma: (-float("inf"), float("inf")))
    assert found() > 15


def test_a_window_is_one_passage_through_the_horizon():
    data = recorded([(0, 0, 1.0, 0, False)] * 6, states=1, length=3)
    assert fitted_q.compute_convergence_window(data, 0.99, 0.1) == 1000
    assert fitted_q.compute_convergence_window(data, 0.9, 1.0) == 100, "ten steps an iteration, at least"
    assert fitted_q.compute_convergence_window(data, 1.0, 0.05) == 60, "without a discount the longest episode"
    assert fitted_q.compute_convergence_window(data, 0.0, 1.0) == 10


def test_the_scale_is_of_discounted_returns():
    data = recorded([(0, 0, 1.0, 0, False), (0, 0, 2.0, 0, False), (0, 0, -3.0, 0, False), (0, 0, 4.0, 0, True)], 1, 2)
    first, second = 1 + 0.5 * 2, -3 + 0.5 * 4
    assert fitted_q.compute_return_scale(data, 0.5) == pytest.approx(((first**2 + second**2) / 2) ** 0.5)


def test_three_windows_must_agree():
    flat = [7.0] * 30
    assert fitted_q.has_converged(flat, 0.0)
    assert not fitted_q.has_converged(flat[:-1], 9.0), "too few"
    rising = [float(number) for number in range(30)]  # means 4.5, 14.5, 24.5
    assert fitted_q.has_converged(rising, 20.0)
    assert not fitted_q.has_converged(rising, 19.9)
    turning = [0.0] * 10 + [5.0] * 10 + [0.0] * 10
    assert not fitted_q.has_converged(turning, 4.0), "the last is where the first was, but it moved between"


def test_it_waits_until_what_is_far_away_has_come_through(one_thread):
    """A step that leads back to its own state and always pays 1 is worth 1 / (1 - 0.9) = 10."""
    data, policy = recorded([(0, 0, 1.0, 0, False)] * 40, states=1, length=40), Fixed([0])
    gamma, rate = 0.9, 0.5

    def found(tolerance, most):
        critic = fitted_q.Evaluators(Spaces(1, 1, True), (), [0])
        settings = {"learning_rate": 0.05, "target_rate": rate, "batch_size": 8}
        generators = [torch.Generator().manual_seed(0)]
        steps = fitted_q.fit(critic, [policy], data, gamma=gamma, generators=generators, **settings)
        ends = {"window": fitted_q.compute_convergence_window(data, gamma, rate), "tolerance": tolerance, "most": most}
        [fit] = fitted_q.fit_until_converged(critic, [policy], data.observations[:1], steps, **ends)
        return fit

    settled = found(0.1, 20_000)
    assert settled.converged
    assert settled.value == pytest.approx(10, abs=0.1)
    assert settled.curve[-1]["step"] < 20_000
    assert [row["step"] for row in settled.curve[:3]] == [10, 20, 30]
    cut = found(0.1, 50)
    assert not cut.converged
    assert cut.value < 9
    assert cut.curve[-1]["step"] == 50
    assert cut.value == pytest.approx(sum(row["estimate"] for row in cut.curve) / 5), "fewer than a window"


@pytest.mark.parametrize("discrete", [True, False])
def test_side_by_side_each_is_what_it_is_alone(discrete, one_thread):
    """Policies, first weights and batches are each one's own."""
    g = torch.Generator().manual_seed(0)
    seen, after = torch.randn(2, 60, 3, generator=g)
    actions = torch.randint(2, (60,), generator=g) if discrete else torch.rand(60, 2, generator=g)
    ends = torch.arange(60) % 10 == 9
    data = Transitions(seen, actions, torch.randn(60, generator=g), after, ends, torch.full((6,), 10))
    ways = [torch.randn(3, 2, generator=g) for _ in range(3)]

    class Way:
        def __init__(self, way):
            self.way = way

        def act(self, observations):
            told = observations @ self.way
            return told.argmax(1) if discrete else told.tanh()

    policies, spaces = [Way(way) for way in ways], Spaces(3, 2, discrete)
    settings = {"gamma": 0.9, "learning_rate": 0.01, "target_rate": 0.1, "batch_size": 16}

    def after_steps(chosen):
        critics = fitted_q.Evaluators(spaces, [8, 8], [seed + 5 for seed in chosen])
        generators = [torch.Generator().manual_seed(seed) for seed in chosen]
        mine = [policies[seed] for seed in chosen]
        losses = [
            row["loss"] for row in islice(fitted_q.fit(critics, mine, data, generators=generators, **settings), 40)
        ]
        return fitted_q.estimate_policy_returns(critics, mine, seen[:7]), torch.stack(losses).T

    together, losses = after_steps([0, 1, 2])
    for seed in range(3):
        [alone], own = after_steps([seed])
        assert together[seed] == pytest.approx(alone, rel=1e-4, abs=1e-5)
        torch.testing.assert_close(losses[seed : seed + 1], own, rtol=1e-3, atol=1e-5)
    assert len({round(value, 3) for value in together}) == 3


def test_one_that_has_settled_does_not_wait_for_the_others():
    """Of two estimates one is constant, the other rises all the time."""

    class Told:
        spaces = None

    steps, values = ({"loss": torch.tensor([1.0, 2.0])} for _ in range(1000)), iter(range(1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitted_q, "estimate_policy_returns", lambda *_: [7.0, float(next(values))])
        flat, rising = fitted_q.fit_until_converged(
            Told(), [None, None], None, steps, window=10, tolerance=0.5, most=50
        )
    assert flat.converged
    assert flat.value == 7.0
    assert [row["step"] for row in flat.curve] == list(range(1, 31))
    assert not rising.converged
    assert rising.value == sum(range(40, 50)) / 10
    assert [row["loss"] for row in rising.curve] == [2.0] * 50

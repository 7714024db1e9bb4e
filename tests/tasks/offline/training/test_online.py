from itertools import islice

import pytest
import torch

from tasks.algorithms.offline.hindsight import Hindsight
from tasks.algorithms.offline.networks.mlp import QValues
from tasks.algorithms.offline.transition_tensors import Transitions
from tasks.offline.configs.learners import ExplorationConfig
from tasks.offline.environments import simulators
from tasks.offline.training.online import Explorer, FineTuning

CONFIG = {"replay": 1000, "warmup": 30, "steps": 2, "first_epsilon": 1.0, "last_epsilon": 0.1, "last_from": 50}


def explorer(environment="graph", relabelling=None, gamma=None, **config):
    torch.manual_seed(0)
    policy = QValues(simulators.get_policy_spaces(environment), [4], 0.9)
    policy.normaliser.fit(torch.randn(100, policy.spaces.observation) * 3 + 1)
    generator = torch.Generator().manual_seed(0)
    made = Explorer(
        environment,
        policy.act,
        ExplorationConfig.model_validate({**CONFIG, **config}),
        0,
        generator,
        torch.device("cpu"),
        preprocess=policy.normaliser,
        relabelling=relabelling,
        gamma=gamma,
    )
    made.policy = policy
    return made


def columns(of, count):
    kept = of.replay.columns
    return kept.observations[:count], kept.actions[:count], kept.next_observations[:count]


def test_it_plays_at_random_first_and_then_some_steps_for_each_batch():
    exploring = explorer()
    batch = next(exploring.batches(8))
    assert batch.observations.shape == (8, 20)
    assert exploring.replay.added == 30 + 2
    list(islice(exploring.batches(8), 3))
    assert exploring.replay.added == 32 + 6


def test_what_is_remembered_happened_and_is_normalised():
    exploring = explorer()
    next(exploring.batches(8))
    seen, actions, following = columns(exploring, 32)
    normaliser = exploring.policy.normaliser
    nodes, arrived = ((of * normaliser.deviation + normaliser.mean).argmax(dim=1) for of in (seen, following))
    assert torch.equal(torch.from_numpy(simulators.GRAPH.successors)[nodes, actions], arrived)
    terminated = exploring.replay.columns.terminated[:32]
    assert torch.equal(terminated, arrived == simulators.GRAPH.goal)
    goes_on = nodes[1:] == arrived[:-1]
    episodes = (~goes_on).nonzero().flatten() + 1
    assert len(episodes) >= 2
    assert exploring.seed >= len(episodes)  # a new seed for each


def test_a_truncated_episode_is_remembered_as_going_on():
    exploring = explorer(warmup=400)
    next(exploring.batches(8))
    arrived = exploring.replay.columns.terminated[:400].sum().item()
    assert 0 < arrived < exploring.seed  # seeds: one an episode


def test_random_actions_grow_rarer_and_the_others_are_the_policy_s():
    exploring = explorer(last_epsilon=0.0, last_from=40)
    assert exploring.epsilon() == 1.0
    exploring.played = 20
    assert exploring.epsilon() == 0.5
    exploring.played = 0
    list(islice(exploring.batches(8), 50))
    assert exploring.epsilon() == 0.0
    seen, actions, _ = columns(exploring, 130)
    greedy = exploring.policy.layers(seen).argmax(dim=1)
    assert torch.equal(actions[40:], greedy[40:])
    assert (actions[:30] != greedy[:30]).any()


@pytest.mark.parametrize("environment", ["CartPole-v1", "LunarLander-v3"])
def test_a_state_taken_within_an_episode_is_reached_again(environment):
    exploring = explorer(environment, warmup=45)
    next(exploring.batches(8))
    assert exploring.episode
    again = explorer(environment, warmup=45)
    again.load_state_dict({name: tensor.clone() for name, tensor in exploring.state_dict().items()})
    assert torch.equal(again.observation, exploring.observation)
    for action in (0, 1, 1, 0):
        assert (again.env.step(action)[0] == exploring.env.step(action)[0]).all()


def hindsight(copies=2):
    return Hindsight(simulators.build_environment_goals("bit-flip"), "future", copies)


def test_an_episode_is_remembered_again_with_what_it_reached():
    exploring = explorer("bit-flip", hindsight(), warmup=45)  # three episodes of 15 steps: chance meets no goal
    next(exploring.batches(8))
    assert exploring.played == 47
    assert exploring.replay.added == 47 + 2 * 45
    goals, kept = simulators.build_environment_goals("bit-flip"), exploring.replay.columns
    normaliser = exploring.policy.normaliser
    following = (kept.next_observations * normaliser.deviation + normaliser.mean)[:45].round()
    again = (kept.next_observations * normaliser.deviation + normaliser.mean)[15:45].round()
    reached = (again[:, goals.achieved] == again[:, goals.desired]).all(1)
    assert torch.equal(kept.terminated[15:45], reached)
    assert torch.equal(kept.rewards[15:45], reached.float() - 1)
    assert reached.sum() >= 2, "the last step of each copy at least"
    first = following[:15, goals.achieved]
    for copy in (again[:15], again[15:]):
        assert torch.equal(copy[:, goals.achieved], first), "the same steps"
        for row, goal in enumerate(copy[:, goals.desired]):
            assert (first[row:] == goal).all(1).any(), "a goal that was reached from there on"


def test_what_is_due_in_hindsight_is_known_after_a_kill():
    exploring = explorer("bit-flip", hindsight(), warmup=40)
    batches = exploring.batches(8)
    next(batches)
    again = explorer("bit-flip", hindsight(), warmup=40)
    again.load_state_dict({name: tensor.clone() for name, tensor in exploring.state_dict().items()})
    again.generator.set_state(exploring.generator.get_state())
    resumed = again.batches(8)
    for _ in range(10):
        one, other = next(batches), next(resumed)
        assert torch.equal(one.observations, other.observations)
        assert torch.equal(one.rewards, other.rewards)
    assert exploring.replay.added == again.replay.added


def test_what_was_earned_is_known_once_an_episode_is_over():
    """In the graph each step costs 1: after it the return-to-go of a T-step episode's step t is the discounted sum of T
    - t such.
    """
    exploring = explorer(gamma=0.5)
    to_the_goal = simulators.GRAPH.distances[simulators.GRAPH.successors]
    while exploring.episode or not exploring.played:
        exploring._step_and_record(torch.tensor(to_the_goal[exploring.env.unwrapped.node].argmin()))
    assert exploring.replay.columns.terminated.any()
    length = exploring.played
    reference = exploring.replay.columns.reference
    wanted = [-sum(0.5**step for step in range(length - at)) for at in range(length)]
    assert reference[:length].tolist() == pytest.approx(wanted)
    exploring._step_and_record(exploring._draw_random_action())
    if exploring.episode:
        assert reference[length] == -float("inf"), "its episode goes on"
    assert explorer().gamma is None


def test_what_was_earned_stays_unknown_where_an_episode_was_cut():
    """Ten steps in the graph that come to no goal: it would have cost more."""
    exploring = explorer(gamma=0.5)
    successors = simulators.GRAPH.successors
    while exploring.episode or not exploring.played:
        exploring._step_and_record(
            torch.tensor((successors[exploring.env.unwrapped.node] != simulators.GRAPH.goal).argmax())
        )
    assert (exploring.played, exploring.replay.columns.terminated.any().item()) == (10, False)
    assert (exploring.replay.columns.reference == -float("inf")).all()


def tuned(after, seed=0, share=None):
    """Of a data set whose rewards are 7, which the environment does not pay."""
    exploring = explorer("graph", first_epsilon=0.0, last_epsilon=0.0)
    nodes = torch.eye(20)[:6]
    data = Transitions(
        nodes,
        torch.zeros(6, dtype=torch.long),
        torch.full((6,), 7.0),
        nodes,
        torch.zeros(6, dtype=torch.bool),
        torch.tensor([6]),
    )
    return FineTuning(data, exploring, after, share, torch.arange(6.0)), exploring


def test_fine_tuning_learns_from_the_data_first_and_then_from_both():
    tuning, exploring = tuned(after=3)
    batches = tuning.batches(200, torch.Generator().manual_seed(0))
    for _ in range(3):
        assert (next(batches).rewards == 7).all()
    assert exploring.replay.added == 0
    later = [next(batches) for _ in range(6)]
    assert exploring.replay.added == 6 * 2
    shares = [(batch.rewards == -1).float().mean().item() for batch in later]
    assert shares[0] == pytest.approx(2 / 8, abs=0.1)
    assert shares[-1] == pytest.approx(12 / 18, abs=0.1)
    assert all(((batch.rewards == -1) | (batch.rewards == 7)).all() for batch in later)


def test_a_share_of_each_batch_is_of_what_was_played():
    tuning, exploring = tuned(after=2, share=0.25)
    batches = tuning.batches(40, torch.Generator().manual_seed(0))
    first = [next(batches) for _ in range(2)]
    assert all((batch.rewards == 7).all() for batch in first)
    for _ in range(5):
        batch = next(batches)
        assert (batch.rewards == 7).tolist() == [True] * 30 + [False] * 10
        of_data = batch.observations[:30].argmax(1)
        assert batch.reference[:30].tolist() == of_data.tolist(), "what was earned from each transition on"
    assert exploring.replay.added == 5 * 2


@pytest.mark.parametrize("steps", [2, 5])
def test_fine_tuning_goes_on_after_a_kill(steps):
    (tuning, exploring), generator = tuned(after=3), torch.Generator().manual_seed(0)
    batches = tuning.batches(8, generator)
    for _ in range(steps):
        next(batches)
    (again, other), second = tuned(after=3), torch.Generator()
    again.load_state_dict({name: tensor.clone() for name, tensor in tuning.state_dict().items()})
    second.set_state(generator.get_state())
    other.generator.set_state(exploring.generator.get_state())
    resumed = again.batches(8, second)
    for _ in range(5):
        one, same = next(batches), next(resumed)
        assert torch.equal(one.observations, same.observations)
        assert torch.equal(one.rewards, same.rewards)


def test_continuous_actions_are_played_again_in_a_later_episode():
    """In MuJoCo, whose episodes are reset in place in the one and begun anew in the other."""

    def exploring():
        config = ExplorationConfig.model_validate({**CONFIG, "warmup": 1})
        return Explorer("Hopper-v5", None, config, 0, torch.Generator().manual_seed(0), torch.device("cpu"))

    one, other = exploring(), exploring()
    while one.seed < 2 or len(one.episode) < 5:
        one._step_and_record(one._draw_random_action())
    other.load_state_dict({name: tensor.clone() for name, tensor in one.state_dict().items()})
    assert torch.equal(other.observation, one.observation)
    other.generator.set_state(one.generator.get_state())
    for _ in range(4):
        one._step_and_record(one._draw_random_action())
        other._step_and_record(other._draw_random_action())
        assert torch.equal(other.observation, one.observation)

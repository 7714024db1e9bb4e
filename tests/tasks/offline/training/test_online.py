from itertools import islice

import pytest
import torch

from tasks.algorithms.offline.networks.mlp import QValues
from tasks.offline.configs.learners import ExplorationConfig
from tasks.offline.environments import simulators
from tasks.offline.training.online import Explorer

CONFIG = {"replay": 1000, "warmup": 30, "steps": 2, "first_epsilon": 1.0, "last_epsilon": 0.1, "last_from": 50}


def explorer(environment="graph", **config):
    torch.manual_seed(0)
    policy = QValues(simulators.spaces_of(environment), [4], 0.9)
    policy.normaliser.fit(torch.randn(100, policy.spaces.observation) * 3 + 1)
    generator = torch.Generator().manual_seed(0)
    return Explorer(environment, policy, ExplorationConfig.model_validate({**CONFIG, **config}), 0, generator)


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
    exploring.replay.added = 20
    assert exploring.epsilon() == 0.5
    exploring.replay.added = 0
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
    assert exploring.actions
    again = explorer(environment, warmup=45)
    again.load_state_dict({name: tensor.clone() for name, tensor in exploring.state_dict().items()})
    assert torch.equal(again.observation, exploring.observation)
    for action in (0, 1, 1, 0):
        assert (again.env.step(action)[0] == exploring.env.step(action)[0]).all()

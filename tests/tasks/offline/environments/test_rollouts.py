import numpy as np
import pytest
import torch

from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences
from tasks.offline.datasets.episodes import Episode
from tasks.offline.environments import simulators
from tasks.offline.environments.rollouts import EpisodeOutcomes, Forgetful, play_seeded_episodes, wrap_as_player


def policy(environment, seed=0):
    torch.manual_seed(seed)
    spaces = simulators.get_policy_spaces(environment)
    return (Preferences if spaces.discrete else MeanAction)(spaces, [16])


def alone(environment, policy, seed):
    """One episode, played by a plain loop."""
    scene = simulators.make_offline_environment(environment)
    seen, _ = scene.reset(seed=seed)
    rewards, ended = [], False
    while not ended:
        action = policy.act(torch.from_numpy(seen)[None])[0].numpy()
        seen, reward, terminated, truncated, _ = scene.step(action)
        rewards.append(reward)
        ended = terminated or truncated
    scene.close()
    return rewards


@pytest.mark.parametrize("environment", ["CartPole-v1", "LunarLander-v3", "graph", "key-to-door"])
def test_side_by_side_is_one_after_the_other(environment):
    one = policy(environment)
    together = play_seeded_episodes(environment, wrap_as_player(one), 12, seed=40)
    for number in range(12):
        assert together.rewards[number].tolist() == alone(environment, one, 40 + number)
    assert len(set(together.lengths.tolist())) > 1 or environment == "graph"  # some went on when others had ended


def test_side_by_side_is_one_after_the_other_for_continuous_actions():
    one = policy("Hopper-v5", seed=1)
    together = play_seeded_episodes("Hopper-v5", wrap_as_player(one), 5, seed=3)
    for number in range(5):  # sums in batches differ in their last bits
        np.testing.assert_allclose(together.rewards[number], alone("Hopper-v5", one, 3 + number), rtol=1e-3)


def test_an_episode_does_not_depend_on_how_many_are_played():
    one = wrap_as_player(policy("CartPole-v1"))
    many, few = play_seeded_episodes("CartPole-v1", one, 9, seed=5), play_seeded_episodes("CartPole-v1", one, 4, seed=5)
    assert many.returns[:4].tolist() == few.returns.tolist()
    assert torch.equal(many.initial[:4], few.initial)


def episode(*rewards):
    flags = np.zeros(len(rewards), dtype=bool)
    seen = np.zeros((len(rewards) + 1, 3), dtype=np.float32)
    return Episode(seen, np.zeros(len(rewards), dtype=np.int64), np.array(rewards, dtype=np.float32), flags, flags)


def test_returns_and_lengths_by_hand():
    played = EpisodeOutcomes([episode(1.0, 2.0, 4.0), episode(8.0)])
    assert played.returns.tolist() == [7.0, 8.0]
    assert played.lengths.tolist() == [3, 1]
    assert played.compute_discounted_returns(0.5).tolist() == [1 + 1 + 1, 8]
    assert played.initial.shape == (2, 3)


class Counting:
    """A policy that records its calls."""

    def __init__(self):
        self.told = []

    def begin(self, episodes):
        self.told.append(("begin", episodes))

    def act(self, running, observations):
        self.told.append(("act", running.tolist(), len(observations)))
        return torch.zeros(len(running), dtype=torch.long)  # always to the left: CartPole falls soon

    def observe(self, running, rewards):
        self.told.append(("observe", running.tolist(), rewards.tolist()))


def test_a_player_hears_of_running_episodes_only():
    player = Counting()
    assert wrap_as_player(player) is player
    played = play_seeded_episodes("CartPole-v1", player, 3, seed=0)
    assert player.told[0] == ("begin", 3)
    acts = [told for told in player.told if told[0] == "act"]
    for number, length in enumerate(played.lengths):
        assert sum(number in running for _, running, _ in acts) == length
    assert all(len(running) == rows for _, running, rows in acts)
    observed = [told for told in player.told if told[0] == "observe"]
    assert [told[1] for told in observed] == [told[1] for told in acts]
    assert sum(sum(rewards) for *_, rewards in observed) == played.returns.sum()


def test_the_first_episode_can_be_watched():
    seen = []
    played = play_seeded_episodes(
        "graph", Forgetful(policy("graph")), 3, 7, watch=lambda scene: seen.append(scene.unwrapped.moves)
    )
    assert seen == list(range(played.lengths[0] + 1))

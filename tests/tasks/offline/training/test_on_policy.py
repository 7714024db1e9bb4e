import pytest
import torch

from tasks.algorithms.offline.networks.actors import Behaviour
from tasks.offline.datasets import episodes
from tasks.offline.environments import discrete, simulators
from tasks.offline.training.on_policy import VectorCollector

STEPS, COPIES = 60, 3


def collected(environment, seed=0, parts=(STEPS,)):
    """The collector after it has collected `parts`, and the rollouts."""
    torch.manual_seed(0)
    policy = Behaviour(simulators.get_policy_spaces(environment), [4])
    collector, generator = VectorCollector(environment, COPIES, seed), torch.Generator().manual_seed(seed)
    rollouts = [collector.collect(policy, steps, generator) for steps in parts]
    collector.close()
    return collector, rollouts


def test_what_follows_is_the_true_next_observation_also_at_an_end():
    """The next observation is where the edge leads, though the next row is a new walk's start; a reset in place would
    lose it.
    """
    _, (rollout,) = collected("graph")
    nodes, after = rollout.observations.argmax(-1), rollout.next_observations.argmax(-1)
    edges = torch.from_numpy(discrete.GRAPH.successors)[nodes, rollout.actions]
    assert torch.equal(after, edges)
    going = ~rollout.ended[:-1]
    assert torch.equal(after[:-1][going], nodes[1:][going])
    restarted = nodes[1:][~going]
    assert len(restarted) > 10
    assert (after[:-1][~going] != restarted).any()


def test_truncated_walks_have_ended_but_are_not_terminated():
    _, (rollout,) = collected("graph")
    there = rollout.next_observations.argmax(-1) == discrete.GRAPH.goal
    assert torch.equal(rollout.terminated, there)
    assert (rollout.ended & ~rollout.terminated).any()
    assert not (rollout.terminated & ~rollout.ended).any()


def test_an_episode_goes_on_over_rollouts():
    _, (whole,) = collected("graph")
    _, parts = collected("graph", parts=(7, STEPS - 7))
    assert torch.equal(whole.observations, torch.cat([part.observations for part in parts]))
    assert torch.equal(whole.rewards, torch.cat([part.rewards for part in parts]))


def test_every_whole_episode_is_kept_until_it_ended():
    collector, (rollout,) = collected("graph")
    kept = collector.list_episodes_ended_by(STEPS * COPIES)
    episodes.check_episodes(kept, 20, 3, discrete=True)
    assert len(kept) == int(rollout.ended.sum()), "all that ended"
    first, copy = min((int(rollout.ended[:, n].int().argmax()), n) for n in range(COPIES))
    assert kept[0].observations[:-1].tolist() == rollout.observations[: first + 1, copy].tolist()
    assert kept[0].actions.tolist() == rollout.actions[: first + 1, copy].tolist()
    assert kept[0].rewards.sum() == rollout.rewards[: first + 1, copy].sum()


@pytest.mark.parametrize("rows", [0, 5, 30, STEPS])
def test_up_to_a_step_there_is_what_had_ended_by_then(rows):
    """After `rows` steps in each copy: the same episodes as if no more steps had been played."""
    collector, (rollout,) = collected("graph")
    kept = collector.list_episodes_ended_by(rows * COPIES)
    assert len(kept) == int(rollout.ended[:rows].sum())
    if rows:
        alone, _ = collected("graph", parts=(rows,))
        assert [one.actions.tolist() for one in kept] == [one.actions.tolist() for _, one in alone.replay]


def test_what_was_executed_is_kept_and_what_was_sampled_is_trained_on():
    collector, (rollout,) = collected("Hopper-v5")
    assert rollout.actions.abs().max() > 1, "a Gaussian's"
    kept = torch.cat([torch.from_numpy(one.actions) for _, one in collector.replay])
    assert kept.abs().max() == 1


def test_same_seed_same_rollout():
    (one,), (same,), (other,) = (collected("key-to-door", seed=seed)[1] for seed in (0, 0, 1))
    assert torch.equal(one.observations, same.observations)
    assert not torch.equal(one.observations, other.observations)

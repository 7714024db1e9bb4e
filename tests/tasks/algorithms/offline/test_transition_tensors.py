from dataclasses import replace
from math import inf

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.algorithms.offline.transition_tensors import Transitions


def episodes(*rewards, discrete=True):
    """One episode for each list of rewards; the observation of a transition is its number, its next one the number +
    0.5.
    """
    flat = torch.tensor([reward for of in rewards for reward in of])
    number = torch.arange(len(flat), dtype=torch.float32).unsqueeze(1)
    actions = torch.arange(len(flat)) if discrete else number.repeat(1, 2)
    ends = torch.tensor([len(of) for of in rewards]).cumsum(0) - 1
    terminated = torch.zeros(len(flat), dtype=torch.bool)
    terminated[ends] = True
    return Transitions(number, actions, flat, number + 0.5, terminated, torch.tensor([len(of) for of in rewards]))


THREE = episodes([1.0, 2.0], [5.0], [0.0, 0.0, 4.0])


def test_episodes_are_where_the_lengths_say():
    assert len(THREE) == 6
    assert THREE.starts.tolist() == [0, 2, 3]
    assert THREE.episode.tolist() == [0, 0, 1, 2, 2, 2]
    assert THREE.timesteps.tolist() == [0, 1, 0, 0, 1, 2]
    assert THREE.returns.tolist() == [3.0, 5.0, 4.0]


def test_returns_to_go_stop_at_the_end_of_an_episode():
    assert THREE.returns_to_go().tolist() == [3.0, 2.0, 5.0, 4.0, 4.0, 4.0]
    assert THREE.returns_to_go(0.5).tolist() == [2.0, 2.0, 5.0, 1.0, 2.0, 4.0]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=6), min_size=1, max_size=5), st.floats(0, 1)
)
def test_returns_to_go_are_the_sums_themselves(rewards, gamma):
    expected = [
        sum(gamma**k * reward for k, reward in enumerate(of[start:])) for of in rewards for start in range(len(of))
    ]
    torch.testing.assert_close(episodes(*rewards).returns_to_go(gamma), torch.tensor(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("share", "kept"), [(1.0, [0, 1, 2]), (0.67, [0, 1, 2]), (0.6, [1, 2]), (0.34, [1, 2]), (0.1, [1])]
)
def test_the_best_share_is_of_episodes_by_return_in_their_order(share, kept):
    best = THREE.best(share)
    assert best.returns.tolist() == THREE.returns[kept].tolist()
    assert best.lengths.tolist() == THREE.lengths[kept].tolist()


def cut(*rewards, ended):
    """The same, of which only these episodes ended by themselves."""
    whole = episodes(*rewards)
    return replace(whole, terminated=whole.terminated & torch.tensor(ended)[whole.episode])


def test_what_was_earned_is_known_only_where_the_episode_ended():
    """Two steps of -1 that were cut would be worth -1.5 at most; the episode may cost -2 at this discount."""
    data = cut([-1.0, -1.0], [4.0, 2.0], [3.0], ended=[False, True, False])
    assert data.references(0.5).tolist() == [-inf, -inf, 5.0, 2.0, -inf]
    assert data.returns_to_go(0.5).tolist() == [-1.5, -1.0, 5.0, 2.0, 3.0]
    assert data.ended.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("rewards", "ended", "early", "best"),
    [
        ([[-1.0], [-1.0] * 3, [-1.0] * 4], [False, True, False], [True, False, False], 1),  # would cost 4, not 1
        ([[-2.0, -2.0], [-1.0] * 3, [-1.0] * 4], [True, True, False], [False, False, False], 1),  # the end is known
        ([[2.0, 2.0], [1.0] * 3, [1.0] * 3], [False, True, False], [True, False, False], 0),  # it has earned 4 already
        ([[-1.0] * 2, [-3.0] * 2], [False, False], [False, False], 0),  # a time limit
    ],
)
def test_a_cut_is_not_what_makes_an_episode_the_best(rewards, ended, early, best):
    data = cut(*rewards, ended=ended)
    assert data.cut_early.tolist() == early
    chosen = data.best(0.1)
    assert chosen.rewards.tolist() == rewards[best]
    assert data.best(1.0).rewards.tolist() == data.rewards.tolist()


def test_chosen_episodes_keep_all_their_columns():
    taken = THREE.episodes(torch.tensor([2, 0]))
    assert taken.observations.squeeze(1).tolist() == [3, 4, 5, 0, 1]
    assert taken.actions.tolist() == [3, 4, 5, 0, 1]
    assert taken.next_observations.squeeze(1).tolist() == [3.5, 4.5, 5.5, 0.5, 1.5]
    assert taken.terminated.tolist() == [False, False, True, False, True]
    assert taken.returns.tolist() == [4.0, 3.0]


def test_of_equal_returns_the_earlier_episode_is_kept():
    assert episodes([1.0], [2.0], [2.0]).best(0.3).observations.tolist() == [[1.0]]


def test_batches_draw_every_transition_equally_often_and_whole_ones():
    drawn = next(THREE.batches(60_000, torch.Generator().manual_seed(0)))
    counts = torch.bincount(drawn.actions, minlength=6) / 60_000
    assert (counts - 1 / 6).abs().max() < 0.01  # 6 standard deviations
    assert torch.equal(drawn.next_observations, drawn.observations + 0.5)
    assert torch.equal(drawn.rewards, THREE.rewards[drawn.actions])


def test_without_replay_a_batch_is_a_run_of_transitions_from_a_random_place():
    batches = THREE.batches(4, torch.Generator().manual_seed(0), replay=False)
    drawn = [next(batches).actions.tolist() for _ in range(100)]
    assert all(batch == [(batch[0] + step) % 6 for step in range(4)] for batch in drawn)
    assert {batch[0] for batch in drawn} == set(range(6))


def test_batches_follow_their_generator():
    one, other = (next(THREE.batches(8, torch.Generator().manual_seed(3))) for _ in range(2))
    assert torch.equal(one.actions, other.actions)


def test_continuous_actions_are_told_from_discrete_ones():
    assert THREE.discrete
    assert not episodes([1.0], discrete=False).discrete

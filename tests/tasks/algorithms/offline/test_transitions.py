import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.algorithms.offline.transitions import Transitions


def episodes(*rewards, discrete=True):
    """One episode for each list of rewards; the observation of a transition is its number, its next one the number + 0.5."""
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

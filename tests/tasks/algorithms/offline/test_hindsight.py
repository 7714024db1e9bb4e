import pytest
import torch

from tasks.algorithms.offline.hindsight import (
    Goals,
    Hindsight,
    Relabelled,
    draw_goal_rows,
    iterate_relabelled_copies,
    relabel_goals,
)
from tasks.algorithms.offline.transition_tensors import Transitions


def same(achieved, desired):
    return (achieved == desired).all(1)


# An observation is (achieved, desired, anything else), of one number each.
GOALS = Goals(slice(0, 1), slice(1, 2), lambda achieved, desired: same(achieved, desired).float() - 1, same)


def walks(*lengths):
    """Episodes whose n-th transition goes from place n to n + 1, each asked for place -1; the third number is 100 times
    the episode.
    """
    rows = [(n, -1.0, 100.0 * number) for number, length in enumerate(lengths) for n in range(length)]
    observations = torch.tensor(rows)
    following = observations + torch.tensor([1.0, 0.0, 0.0])
    count = len(rows)
    return Transitions(
        observations,
        torch.arange(count),
        torch.full((count,), -1.0),
        following,
        torch.zeros(count, dtype=torch.bool),
        torch.tensor(lengths),
    )


def test_a_goal_that_was_reached_by_hand():
    data = walks(3)
    other = relabel_goals(data, torch.tensor([[3.0], [2.0], [1.0]]), GOALS)
    assert other.observations.tolist() == [[0, 3, 0], [1, 2, 0], [2, 1, 0]]
    assert other.next_observations.tolist() == [[1, 3, 0], [2, 2, 0], [3, 1, 0]]
    assert other.rewards.tolist() == [-1, 0, -1]
    assert other.terminated.tolist() == [False, True, False]
    assert other.actions.tolist() == [0, 1, 2]
    assert data.observations[:, 1].tolist() == [-1, -1, -1], "the data stays as it is"


def test_what_ended_otherwise_still_ends():
    """The second transition fell, the third reached the goal that was asked."""
    data = walks(3)
    data.terminated[1:] = True
    data.next_observations[2, 1] = 3.0
    other = relabel_goals(data, torch.tensor([[9.0], [9.0], [9.0]]), GOALS)
    assert other.terminated.tolist() == [False, True, False]


def test_where_no_goal_ends_an_episode_terminations_stay():
    forever = Goals(GOALS.achieved, GOALS.desired, GOALS.reward, None)
    assert not relabel_goals(walks(3), torch.tensor([[3.0], [2.0], [1.0]]), forever).terminated.any()


@pytest.mark.parametrize(
    ("strategy", "expected"), [("future", {2, 3, 4, 5}), ("final", {5}), ("episode", {0, 1, 2, 3, 4, 5})]
)
def test_which_goals_a_strategy_takes(strategy, expected):
    """Of row 2 in an episode of rows 0 to 5."""
    row = torch.full((2000,), 2)
    found = draw_goal_rows(
        strategy, row, torch.zeros_like(row), torch.full_like(row, 5), torch.Generator().manual_seed(0)
    )
    counts = torch.bincount(found, minlength=6)
    assert set(found.tolist()) == expected
    assert counts.max() < 1.3 * counts[counts > 0].min() or strategy == "final", "all are as likely"


def test_the_copies_of_an_episode():
    """With the final goal the last transition of each copy reaches it."""
    made = [*iterate_relabelled_copies(walks(4), Hindsight(GOALS, "final", 3), torch.Generator().manual_seed(0))]
    assert len(made) == 3
    for copy in made:
        assert copy.observations[:, 1].tolist() == [4, 4, 4, 4]
        assert copy.rewards.tolist() == [-1, -1, -1, 0]
    assert Hindsight(GOALS, "final", 3).share == 0.75


def test_a_data_set_gets_goals_of_the_same_episode_and_as_many_as_asked():
    data = walks(2, 30, 5)
    source = Relabelled(data, GOALS, "future", share=0.8)
    batch = next(source.batches(4000, torch.Generator().manual_seed(0)))
    changed = batch.observations[:, 1] != -1
    assert changed.float().mean() == pytest.approx(0.8, abs=0.03)
    assert torch.equal(batch.observations[:, 1], batch.next_observations[:, 1])
    lengths = data.lengths[(batch.observations[:, 2] / 100).long()]
    goals, places = batch.observations[changed, 1], batch.observations[changed, 0]
    assert (goals > places).all()
    assert (goals <= lengths[changed]).all()
    reached = batch.next_observations[:, 0] == batch.observations[:, 1]
    assert torch.equal(batch.terminated, reached)
    assert torch.equal(batch.rewards, reached.float() - 1)
    everything = next(Relabelled(data, GOALS, "future", share=1.0).batches(500, torch.Generator().manual_seed(0)))
    assert (everything.observations[:, 1] >= 0).all()

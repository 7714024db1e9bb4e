import pytest
import torch

from tasks.algorithms.offline.replay import ReplayBuffer
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch


def filled(count, capacity):
    """The observation of the n-th transition is n, its next one n + 0.5."""
    replay = ReplayBuffer(Spaces(1, 100, True), capacity)
    for n in range(count):
        replay.add(torch.tensor([n + 0.0]), torch.tensor(n), -n, torch.tensor([n + 0.5]), n % 2 == 1)
    return replay


def drawn(replay):
    return replay.batch(500, torch.Generator().manual_seed(0))


def test_transitions_come_back_whole():
    batch = drawn(filled(7, capacity=10))
    assert set(batch.actions.tolist()) == set(range(7)), "none that was not added"
    assert torch.equal(batch.observations.squeeze(1), batch.actions.float())
    assert torch.equal(batch.next_observations, batch.observations + 0.5)
    assert torch.equal(batch.rewards, -batch.actions.float())
    assert torch.equal(batch.terminated, batch.actions % 2 == 1)


def test_the_oldest_make_room():
    assert set(drawn(filled(25, capacity=10)).actions.tolist()) == set(range(15, 25))


def test_its_state_is_all_of_it():
    replay, again = filled(25, capacity=10), filled(3, capacity=10)
    again.load_state_dict({name: tensor.clone() for name, tensor in replay.state_dict().items()})
    for both in (replay, again):
        both.add(torch.tensor([99.0]), torch.tensor(99), 0.0, torch.tensor([99.5]), False)
    assert torch.equal(drawn(again).actions, drawn(replay).actions)
    assert 15 not in drawn(again).actions, "the place that was due next"


@pytest.mark.parametrize("first", [3, 18])
def test_many_at_once_are_as_one_after_another(first):
    """Also more of them than there is room for."""
    one, many = filled(25, capacity=10), filled(first, capacity=10)
    numbers = torch.arange(first, 25)
    seen = numbers.float().unsqueeze(1)
    many.extend(TransitionBatch(seen, numbers, -numbers.float(), seen + 0.5, numbers % 2 == 1))
    for name, tensor in one.state_dict().items():
        assert torch.equal(many.state_dict()[name], tensor), name


@pytest.mark.parametrize("count", [7, 25])
def test_what_was_earned_is_of_the_last_ones(count):
    replay = filled(count, capacity=10)
    assert (replay.columns.reference == -float("inf")).all()
    replay.set_references(torch.arange(3.0))
    latest = replay.latest(4)
    assert latest.reference.tolist() == [-float("inf"), 0.0, 1.0, 2.0]
    replay.add(torch.tensor([0.0]), torch.tensor(0), 0.0, torch.tensor([0.5]), False)
    assert replay.latest(2).reference.tolist() == [2.0, -float("inf")]
    replay.set_references(torch.arange(12.0))
    assert replay.latest(10).reference.tolist()[-2:] == [10.0, 11.0], "of more than there is room for, the last"


def test_the_latest_stand_in_the_order_in_which_they_came():
    assert filled(25, capacity=10).latest(4).actions.tolist() == [21, 22, 23, 24]
    assert filled(12, capacity=10).latest(4).actions.tolist() == [8, 9, 10, 11], "around the memory's end"
    assert filled(3, capacity=10).latest(4).actions.tolist() == [0, 1, 2]

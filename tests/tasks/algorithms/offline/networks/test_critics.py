import pytest
import torch

from tasks.algorithms.offline.networks.critics import Critics, bellman_targets, polyak_update, sum_mean_squared_errors
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch


def test_discrete_critics_give_the_value_of_the_action_asked_for():
    torch.manual_seed(0)
    critics = Critics(Spaces(2, 3, True), [4], 2)
    seen, actions = torch.randn(5, 2), torch.tensor([2, 0, 1, 1, 2])
    every = critics.every(seen)
    assert every.shape == (2, 5, 3)
    expected = torch.stack([torch.stack([every[i, row, action] for row, action in enumerate(actions)]) for i in (0, 1)])
    assert torch.equal(critics(seen, actions), expected)


def test_continuous_critics_take_actions_for_the_same_states_in_several_rows():
    torch.manual_seed(0)
    critics = Critics(Spaces(2, 3, False), [4], 2)
    critics.normaliser.fit(torch.randn(20, 2) * 3 + 1)
    seen, actions = torch.randn(5, 2), torch.randn(7, 5, 3)
    q = critics(seen.expand(7, -1, -1), actions)
    assert q.shape == (2, 7, 5)
    torch.testing.assert_close(q[:, 3], critics(seen, actions[3]))
    normal = (seen - critics.normaliser.mean) / critics.normaliser.deviation
    torch.testing.assert_close(q[1, 3], critics.members[1](torch.cat([normal, actions[3]], -1)).squeeze(-1))
    assert (q[0] - q[1]).abs().min() > 0  # two networks, not one twice


def test_a_truncated_episode_is_bootstrapped_a_terminated_one_is_not():
    nothing = torch.zeros(2, 1)
    truncated_then_terminated = torch.tensor([False, True])
    batch = TransitionBatch(nothing, nothing, torch.tensor([1.0, 2.0]), nothing, truncated_then_terminated)
    assert bellman_targets(batch, torch.tensor([10.0, 10.0]), 0.9).tolist() == [10.0, 2.0]


def test_errors_are_means_over_the_batch_and_a_sum_over_critics():
    q, targets = torch.tensor([[1.0, 2.0], [0.0, 4.0]]), torch.tensor([1.0, 1.0])
    assert sum_mean_squared_errors(q, targets).item() == pytest.approx((0 + 1) / 2 + (1 + 9) / 2)


def test_a_target_goes_its_share_of_the_way():
    source, target = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    before = target.weight.detach().clone()
    polyak_update(target, source, 0.25)
    torch.testing.assert_close(target.weight.detach(), 0.75 * before + 0.25 * source.weight.detach())

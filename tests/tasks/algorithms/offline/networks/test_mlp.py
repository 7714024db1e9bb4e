import torch

from tasks.algorithms.offline.networks.mlp import MeanAction, Normaliser, Preferences
from tasks.algorithms.offline.transition_tensors import Spaces


def test_the_normaliser_gives_mean_0_and_deviation_1_and_leaves_constants_alone():
    seen = torch.tensor([[1.0, 10.0, 7.0], [3.0, 30.0, 7.0]])
    normaliser = Normaliser(3)
    normaliser.fit(seen)
    torch.testing.assert_close(normaliser(seen), torch.tensor([[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]]))


def test_the_normaliser_is_part_of_the_state():
    policy = Preferences(Spaces(2, 3, True), [4])
    policy.normaliser.fit(torch.tensor([[0.0, 1.0], [4.0, 5.0]]))
    again = Preferences(Spaces(2, 3, True), [4])
    again.load_state_dict(policy.state_dict())
    seen = torch.randn(5, 2)
    assert torch.equal(again(seen), policy(seen))
    torch.testing.assert_close(policy(seen), policy.layers((seen - torch.tensor([2.0, 3.0])) / 2))


def test_greedy_is_the_highest_preference():
    policy = Preferences(Spaces(2, 3, True), [])
    with torch.no_grad():
        policy.layers[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
        policy.layers[0].bias.zero_()
    assert policy.act(torch.tensor([[2.0, 1.0], [1.0, 2.0], [-1.0, -1.0]])).tolist() == [0, 1, 2]


def test_mean_actions_stay_within_the_box():
    policy = MeanAction(Spaces(2, 3, False), [8])
    acted = policy.act(1000 * torch.randn(50, 2))
    assert acted.shape == (50, 3)
    assert acted.abs().max() <= 1

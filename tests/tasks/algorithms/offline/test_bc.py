from itertools import islice
from math import log

import pytest
import torch

from tasks.algorithms.offline import bc
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch, Transitions


def batch(observations, actions):
    count = len(actions)
    return TransitionBatch(
        torch.tensor(observations),
        torch.tensor(actions),
        torch.zeros(count),
        torch.zeros(count, 1),
        torch.zeros(count, dtype=torch.bool),
    )


def test_the_loss_for_discrete_actions_is_their_mean_negative_log_probability():
    policy = Preferences(Spaces(1, 2, True), [])
    with torch.no_grad():
        policy.layers[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
        policy.layers[0].bias.zero_()
    # Logits (log 3, 0): probabilities 3/4 and 1/4.
    value, metrics = bc.behaviour_cloning_loss(policy, batch([[log(3)], [log(3)]], [0, 1]))
    assert value.item() == pytest.approx(-(log(3 / 4) + log(1 / 4)) / 2)
    assert metrics["accuracy"] == 0.5


def test_the_loss_for_continuous_actions_is_the_mean_square_over_rows_and_components():
    policy = MeanAction(Spaces(1, 2, False), [])
    with torch.no_grad():
        policy.layers[0].weight.zero_()
        policy.layers[0].bias.zero_()
    value, _ = bc.behaviour_cloning_loss(policy, batch([[0.0], [0.0]], [[1.0, 0.0], [0.5, 0.5]]))
    assert value.item() == pytest.approx((1 + 0 + 0.25 + 0.25) / 4)


def trained(data, policy, steps=300):
    generator = torch.Generator().manual_seed(0)
    optimizer = Adam(policy.parameters(), 0.01)
    for _ in islice(bc.fit(policy, optimizer, data, batch_size=32, generator=generator), steps):
        pass
    return policy


@pytest.mark.parametrize("discrete", [True, False])
def test_it_learns_to_do_as_the_data_does(discrete):
    torch.manual_seed(0)
    seen = torch.rand(400, 2) * 2 - 1
    side = seen[:, 0] > seen[:, 1]
    actions = side.long() if discrete else (seen[:, :1] - seen[:, 1:]) / 2
    data = Transitions(seen, actions, torch.zeros(400), seen, torch.zeros(400, dtype=torch.bool), torch.full((40,), 10))
    kind = Preferences if discrete else MeanAction
    acted = trained(data, kind(Spaces(2, 2 if discrete else 1, discrete), [32])).act(seen)
    if discrete:
        assert (acted == actions).float().mean() > 0.97  # a constant policy: about a half
    else:
        assert (acted - actions).square().mean() < 0.05 * actions.var()

import torch
from torch import nn

from tasks.algorithms.offline.networks.target import TargetNetwork


def network(weight):
    made = nn.Linear(1, 1, bias=False)
    nn.init.constant_(made.weight, weight)
    return made


def after(updates, **settings):
    """Weights of a target that starts at 0 and follows a network whose weight is 1, 2, .. after each update."""
    online = network(0.0)
    target, weights = TargetNetwork(online, **settings), []
    for number in range(1, updates + 1):
        nn.init.constant_(online.weight, number)
        target.update(online)
        weights.append(target.network.weight.item())
    return weights


def test_a_hard_update_copies_at_every_so_manyth_step_and_holds_still_between():
    assert after(7, every=3, rate=1.0) == [0, 0, 3, 3, 3, 6, 6]


def test_a_soft_one_goes_part_of_the_way_each_time():
    assert after(3, every=1, rate=0.5) == [0.5, 1.25, 2.125]


def test_what_it_says_has_no_gradient_and_its_weights_are_its_own():
    online = network(2.0)
    target = TargetNetwork(online, every=1, rate=1.0)
    assert not target(torch.ones(1, 1)).requires_grad
    nn.init.constant_(online.weight, 5.0)
    assert target(torch.ones(1, 1)).item() == 2


def test_its_state_has_the_number_of_updates():
    online = network(1.0)
    first, second = (TargetNetwork(online, every=3, rate=1.0) for _ in range(2))
    for _ in range(2):
        first.update(online)
    second.load_state_dict(first.state_dict())
    nn.init.constant_(online.weight, 9.0)
    second.update(online)
    assert second.network.weight.item() == 9

import pytest
import torch

from tasks.algorithms.offline.adam import Adam, AdamW


def optimizer(weight, **changes):
    options = {"clip": 1.0, "weight_decay": 0.0, "warmup": 4, "steps": 12, "last": 0.1}
    return AdamW([weight], 0.8, **{**options, **changes})


def rates(count, **changes):
    weight = torch.nn.Parameter(torch.ones(1))
    adam, seen = optimizer(weight, **changes), []
    for _ in range(count):
        seen.append(adam.learning_rate)
        adam.step(weight.sum())
    return seen


def test_the_rate_warms_up_and_falls_along_a_cosine():
    seen = rates(14)
    assert seen[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    assert seen[8] == pytest.approx(0.8 * 0.55), "half way down"
    assert seen[12:] == pytest.approx([0.08, 0.08]), "a tenth, and no more falling"


def test_a_last_share_of_one_keeps_the_rate():
    assert rates(9, last=1.0, warmup=0) == pytest.approx([0.8] * 9)


def test_the_first_step_is_as_long_as_the_rate_and_decay_shrinks_the_weight():
    # Adam's first update is the rate times the gradient's sign; decay takes rate * weight_decay of the weight before
    # it.
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer(weight, weight_decay=0.5, warmup=0).step(3 * weight.sum())
    assert weight.item() == pytest.approx(2 * (1 - 0.8 * 0.5) - 0.8, rel=1e-5)


def test_gradients_are_clipped_to_their_norm():
    weight = torch.nn.Parameter(torch.zeros(2))
    Adam([weight], 0.1, clip=1.0).step((torch.tensor([3.0, 4.0]) * weight).sum())
    assert weight.grad.tolist() == pytest.approx([0.6, 0.8])


def test_it_goes_on_where_its_state_was_taken():
    def steps(adam, weight, count):
        for _ in range(count):
            adam.step((weight**2).sum())
        return weight.detach().clone()

    whole = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    expected = steps(optimizer(whole), whole, 9)
    first = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    adam = optimizer(first)
    steps(adam, first, 5)
    second = torch.nn.Parameter(first.detach().clone())
    again = optimizer(second)
    again.load_state_dict(adam.state_dict())
    assert torch.equal(steps(again, second, 4), expected)

import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language.accumulation import AccumulatedStep, BatchPart
from tasks.algorithms.language.completions import make_completions

BATCH = make_completions([[4], [5]], [0, 1, 1], [[7, 2], [8, 9, 2], [2]], pad=2)


class Descent:
    """One weight that goes down its gradient."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.tensor(2.0))

    def step(self):
        gradient, self.weight.grad = self.weight.grad, None
        with torch.no_grad():
            self.weight -= gradient
        return abs(gradient.item())


def part(rows, counts=1.0):
    index = torch.tensor(rows)
    return BatchPart(index, BATCH.rows(index), index, counts)


def test_parts_add_up_by_hand():
    """Losses 3 w and 5 w at w = 2 are 16, with a gradient of 8; a part that does not count adds nothing."""
    descent = Descent()
    step = AccumulatedStep(descent, ("tokens", "clipped"))
    step.backward(part([0]), 3 * descent.weight, {"tokens": 2, "clipped": torch.tensor(1)})
    step.backward(part([1, 2]), 5 * descent.weight, {"tokens": 4, "clipped": torch.tensor(2)})
    step.backward(part([0], counts=0.0), 7 * descent.weight, {"tokens": 2, "clipped": torch.tensor(1)})
    assert descent.weight.item() == 2.0, "until the step is finished"
    assert step.finish() == {"loss": 16.0, "tokens": 6.0, "clipped": 3.0, "grad_norm": 8.0}
    assert descent.weight.item() == -6.0


def test_a_step_without_a_part_has_all_its_sums():
    descent = Descent()
    descent.weight.grad = torch.tensor(0.0)
    assert AccumulatedStep(descent, ("tokens",)).finish() == {"loss": 0.0, "tokens": 0.0, "grad_norm": 0.0}


def test_a_loss_that_is_no_number_moves_no_weight():
    descent = Descent()
    step = AccumulatedStep(descent)
    step.backward(part([0]), descent.weight * float("nan"))
    with pytest.raises(TrainingError, match="the loss is nan"):
        step.finish()
    assert descent.weight.item() == 2.0


def test_a_part_selects_its_rows_as_wide_as_it_is():
    values = torch.arange(9.0).reshape(3, 3)
    assert part([2, 0]).select(values).tolist() == [[6.0, 7.0], [0.0, 1.0]]
    assert part([1]).select(values[:, :1]).tolist() == [[3.0]]

import pytest
import torch
from torch.optim import Muon as TorchMuon

from tasks.algorithms.common.muon import Muon, orthogonalise_matrix


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (24, 8), (1, 5)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_steps_equal_torch_s_in_single_precision(shape, weight_decay, monkeypatch):
    """torch's own optimizer, run without bfloat16, is the oracle."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    ours, theirs = (torch.nn.Parameter(random(*shape)) for _ in range(2))
    optimizers = [
        Muon([ours], 0.02, weight_decay),
        TorchMuon([theirs], lr=0.02, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
    ]
    for step in range(4):
        ours.grad, theirs.grad = (random(*shape, seed=step + 1) for _ in range(2))
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(16, 16), (16, 40), (40, 16)])
def test_directions_stay_and_lengths_become_alike(shape):
    matrix = random(*shape)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    result = u.T @ orthogonalise_matrix(matrix) @ v.T
    values = result.diagonal()
    assert values.min() > 0.6
    assert values.max() < 1.25
    torch.testing.assert_close(result, torch.diag(values), rtol=0, atol=1e-4)


def test_a_scale_does_not_matter_and_zero_stays_zero():
    matrix = random(6, 9)
    torch.testing.assert_close(orthogonalise_matrix(matrix * 1000), orthogonalise_matrix(matrix), rtol=1e-4, atol=1e-5)
    assert orthogonalise_matrix(torch.zeros(3, 4)).abs().max() == 0


def test_a_weight_without_a_gradient_stays():
    weight = torch.nn.Parameter(random(3, 4))
    before = weight.detach().clone()
    Muon([weight], 0.1, 0.5).step()
    assert torch.equal(weight, before)

import pytest
import torch

from tasks.algorithms.offline.networks import transformer
from tasks.algorithms.offline.networks.dropout import dropout
from tests.tasks.algorithms.offline.networks.test_transformer import random


@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_a_share_of_elements_is_dropped_and_the_mean_stays(share):
    torch.manual_seed(0)
    x = torch.ones(1000, 333)
    dropped = dropout(x, share, training=True)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - share)])
    deviation = (share * (1 - share) / x.numel()) ** 0.5
    assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=4 * deviation + 2**-16)


def test_elements_are_dropped_independently_of_their_neighbours():
    """Four of them share one draw of 64 bits."""
    torch.manual_seed(1)
    kept = (dropout(torch.ones(400_000), 0.3, training=True) > 0).float().view(-1, 4)
    correlations = torch.corrcoef(kept.T) - torch.eye(4)
    assert correlations.abs().max() < 4 / 100_000**0.5


def test_gradients_pass_where_elements_were_kept():
    torch.manual_seed(2)
    x = torch.randn(7, 5, requires_grad=True)
    dropped = dropout(x, 0.4, training=True)
    dropped.sum().backward()
    assert torch.equal(x.grad, (dropped != 0) / 0.6)


def test_the_seed_decides_and_any_size_and_type_will_do():
    for shape in ((), (1,), (3, 1), (2, 3, 5)):
        torch.manual_seed(3)
        one = dropout(torch.ones(shape, dtype=torch.bfloat16), 0.5, training=True)
        torch.manual_seed(3)
        assert torch.equal(one, dropout(torch.ones(shape, dtype=torch.bfloat16), 0.5, training=True))
        assert (one.shape, one.dtype) == (shape, torch.bfloat16)


def test_none_is_dropped_in_play_or_without_a_share():
    x = torch.randn(9)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_attention_drops_weights_too(monkeypatch):
    seen = []
    monkeypatch.setattr(transformer, "dropout", lambda x, share, training: (seen.append(tuple(x.shape)), x)[1])
    random(dropout=0.5, layers=1, heads=4).train()(torch.randn(2, 9, 24))
    assert seen == [(2, 9, 24), (2 * 4, 9, 9), (2, 9, 24), (2, 9, 24)]

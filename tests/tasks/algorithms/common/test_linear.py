import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tasks.algorithms.common import linear, matmul_backend
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.linear import Linear, Rectified
from tests.tasks.tiny import llama

USES_ONEDNN = linear.uses_onednn  # `small` replaces it


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(linear, "uses_onednn", lambda: True)
    monkeypatch.setattr(linear, "SMALLEST", 100 * 64 * 96)


def both(inputs=64, outputs=96, bias=True, layer=Linear):
    torch.manual_seed(0)
    ours = layer(inputs, outputs, bias=bias)
    theirs = nn.Linear(inputs, outputs, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs if layer is Linear else nn.Sequential(theirs, nn.ReLU())


def through(layer, x):
    """Output, and the gradients of input and weights, for a loss with a weight for every output."""
    x = x.detach().clone().requires_grad_()
    out = layer(x)
    (out * torch.linspace(-1, 1, out.numel()).reshape(out.shape)).sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.fixture
def calls(monkeypatch):
    """The number of calls to oneDNN."""
    asked = []
    plain = linear._multiply_by_onednn
    monkeypatch.setattr(linear, "_multiply_by_onednn", lambda *given: asked.append(1) or plain(*given))
    return asked


@pytest.mark.parametrize("layer", [Linear, Rectified])
@pytest.mark.parametrize("outputs", [96, 64, 20], ids=["wider", "as wide", "narrower"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "x",
    [torch.randn(100, 64), torch.randn(8, 20, 64), torch.randn(2, 5, 20, 64), torch.randn(64, 100).t(), torch.randn(2, 80, 128)[..., ::2]],  # noqa: E501
    ids=["rows", "sequences", "four dimensions", "transposed", "strided"],
)  # fmt: skip
def test_same_as_torch(calls, monkeypatch, x, bias, outputs, layer):
    monkeypatch.setattr(linear, "SMALLEST", 1)
    ours, theirs = both(x.shape[-1], outputs, bias, layer)
    for mine, its in zip(through(ours, x), through(theirs, x), strict=True):
        assert mine.shape == its.shape
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-4)
    assert len(calls) == 3  # output, gradient of the input, gradient of the weights


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (Linear(64, 96), torch.randn(99, 64)),
        (Linear(64, 95), torch.randn(100, 64)),
        (Rectified(64, 95), torch.randn(100, 64)),
        (Linear(64, 96).double(), torch.randn(100, 64, dtype=torch.float64)),
        (Linear(64, 96), torch.randn(0, 64)),
    ],
    ids=["few rows", "few weights", "few weights, rectified", "double precision", "no rows"],
)
def test_torch_does_the_rest(calls, layer, x):
    plain = nn.Linear.forward(layer, x)
    assert torch.equal(layer(x), plain.relu() if isinstance(layer, Rectified) else plain)
    assert not calls


def test_elsewhere_all_is_torchs(calls, monkeypatch):
    monkeypatch.setattr(linear, "uses_onednn", lambda: False)
    ours, theirs = both(layer=Rectified)
    x = torch.randn(100, 64)
    assert all(torch.equal(mine, its) for mine, its in zip(through(ours, x), through(theirs, x), strict=True))
    assert not calls


@pytest.mark.parametrize(("library", "expected"), [("torch", False), ("onednn", True)])
def test_products_are_those_of_the_chosen_library(monkeypatch, library, expected):
    monkeypatch.setenv("POSTTRAIN_PRODUCTS", library)
    assert USES_ONEDNN.__wrapped__() is expected


@pytest.mark.parametrize(("library", "available"), [("mkl", True), ("onednn", False)])
def test_a_library_that_torch_does_not_have_is_refused(monkeypatch, library, available):
    monkeypatch.setenv("POSTTRAIN_PRODUCTS", library)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: available)
    with pytest.raises(TrainingError, match="POSTTRAIN_PRODUCTS"):
        USES_ONEDNN.__wrapped__()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [shape[:3] for shape in matmul_backend.SHAPES])
def test_both_libraries_give_the_same_numbers(rows, inputs, outputs, bias):
    """Each within 1e-5 of the largest number, for the shapes that are measured."""
    ours, theirs = both(inputs, outputs, bias)
    x = torch.randn(rows, inputs)
    for mine, its in zip(through(ours, x), through(theirs, x), strict=True):
        assert (mine - its).abs().max() <= 1e-5 * its.abs().max()


def test_half_precision_stays_torchs(calls):
    layer, _ = both()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(100, 64)).dtype == torch.bfloat16
    assert not calls


def test_same_bytes_each_time():
    ours, _ = both()
    x = torch.randn(300, 64)
    first, again = through(ours, x), through(copy.deepcopy(ours), x)
    ours.zero_grad()
    assert all(torch.equal(mine, its) for mine, its in zip(first, again, strict=True))


def test_frozen_weights():
    """A layer with frozen weights still passes gradients on to its input, as a critic does to the policy."""
    ours, theirs = both()
    x = torch.randn(100, 64, requires_grad=True)
    gradients = [torch.autograd.grad(layer.requires_grad_(False)(x).square().sum(), x)[0] for layer in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)
    assert ours.weight.grad is None


class Largest(TorchDispatchMode):
    """The number of values of the largest tensor that any operation returns."""

    found = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        out = function(*arguments, **(named or {}))
        self.found = max(self.found, out.numel() if isinstance(out, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("bias", [True, False])
def test_a_frozen_weight_is_not_copied_for_each_row(bias):
    """As the head is read at each prompt's last token, where a model has an adapter: torch would make 8 copies of the
    weight here.
    """
    layer = Linear(64, 96, bias=bias).bfloat16().requires_grad_(False)
    x = torch.randn(8, 5, 64).bfloat16().requires_grad_()
    with Largest() as largest:
        out = layer(x[:, -1:])
        out.sum().backward()
    assert largest.found <= 64 * 96
    torch.testing.assert_close(out.squeeze(1), layer(x[:, -1]))


def test_a_models_own_layers_become_such_ones_and_keep_names_weights_and_ties(calls):
    torch.manual_seed(0)
    plain = llama(tie_word_embeddings=True)
    random = torch.get_rng_state()
    fast = linear.replace_linear_layers(copy.deepcopy(plain))
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(type(layer) is nn.Linear for layer in fast.modules())
    assert list(fast.state_dict()) == list(plain.state_dict())
    assert fast.lm_head.weight is fast.model.embed_tokens.weight
    tokens = torch.randint(16, (40, 30))
    found, expected = (model(input_ids=tokens, labels=tokens) for model in (fast, plain))
    assert calls
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
    for output in (found, expected):
        output.loss.backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)

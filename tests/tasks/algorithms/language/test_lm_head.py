"""Log-probabilities without the logits of all positions: the same values and gradients in less memory."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from tasks.algorithms.common.linear import replace_linear_layers
from tasks.algorithms.language import lm_head, sft
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.lm_head import compute_chunked_logps, defer_large_head
from tasks.algorithms.language.sequences import make_sequence_batch
from tests.tasks.tiny import SIZES, gpt2, llama

VOCABULARY = 64
PROMPTS, OWNER = [[3, 4, 5], [6], [7, 8]], [0, 0, 1, 2, 2, 2]
RESPONSES = [[7, 8, 2], [9, 2], [10, 11, 12, 13, 2], [1], [2, 2], [60, 3, 2]]
COMPLETIONS = make_completions(PROMPTS, OWNER, RESPONSES, pad=2)
BATCH = make_sequence_batch([PROMPTS[owner] for owner in OWNER], RESPONSES, pad=2)


def phi(seed=0):
    """Its head has a bias."""
    torch.manual_seed(seed)
    model = PhiForCausalLM(PhiConfig(**{**SIZES, "vocab_size": VOCABULARY})).eval()
    nn.init.normal_(model.lm_head.bias)
    return model


MODELS = {
    "llama": lambda: llama(vocab_size=VOCABULARY),
    "llama, tied": lambda: llama(vocab_size=VOCABULARY, tie_word_embeddings=True),
    "llama, fast products": lambda: replace_linear_layers(llama(vocab_size=VOCABULARY)),
    "gpt2": lambda: gpt2(vocab_size=VOCABULARY),
    "phi, biased": phi,
}


@pytest.fixture
def chunks(monkeypatch):
    """Every tensor of logits is too large, and three positions make a chunk."""
    monkeypatch.setattr(lm_head, "LARGE", 1)
    monkeypatch.setattr(lm_head, "CHUNK", 3 * VOCABULARY)


def logps(model, completions=COMPLETIONS):
    weight = torch.arange(1.0, 7.0).unsqueeze(1)
    values = compute_token_logps(model, completions, temperature=0.7)
    return values, (weight * values).sum()


def likelihood(model, batch=BATCH):
    loss, accuracy = sft.cross_entropy_and_accuracy(model, batch)
    return accuracy, loss


def with_gradients(model, compute):
    model.zero_grad()
    values, loss = compute(model)
    loss.backward()
    return values.detach(), loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("compute", [logps, likelihood])
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_the_whole_tensor(name, compute, monkeypatch):
    model = MODELS[name]()
    plain = with_gradients(model, compute)
    monkeypatch.setattr(lm_head, "LARGE", 1)
    monkeypatch.setattr(lm_head, "CHUNK", 3 * VOCABULARY)
    used = []
    inner = lm_head._compute_scaled_logits
    monkeypatch.setattr(
        lm_head, "_compute_scaled_logits", lambda rows, *more: used.append(len(rows)) or inner(rows, *more)
    )
    torch.testing.assert_close(with_gradients(model, compute), plain, rtol=1e-4, atol=2e-5)
    assert used == [3, 3, 3, 3, 3, 1] * 2, "16 response tokens, in the forward and in the backward pass"
    with torch.no_grad():
        torch.testing.assert_close(compute(model)[0], plain[0])


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 6, 7])
def test_gradients_in_double_precision(rows, biased, monkeypatch):
    monkeypatch.setattr(lm_head, "CHUNK", 3 * 11)
    torch.manual_seed(rows)
    head = nn.Linear(4, 11, bias=biased).double()
    states, tokens = torch.randn(rows, 4, dtype=torch.double, requires_grad=True), torch.randint(11, (rows,))

    def values(states, *_):
        return compute_chunked_logps(head, states, tokens, temperature=0.6)[0]

    whole = (head(states) / 0.6).log_softmax(-1).gather(1, tokens[:, None]).squeeze(1)
    torch.testing.assert_close(values(states), whole)
    assert torch.equal(compute_chunked_logps(head, states, tokens)[1], head(states).argmax(-1))
    assert torch.autograd.gradcheck(values, (states, *head.parameters()))


def test_what_is_frozen_gets_no_gradient(chunks):
    """As with adapters, or where only the head is trained."""
    model = llama(vocab_size=VOCABULARY)
    whole = with_gradients(model, logps)[2]
    for frozen in ({"lm_head.weight"}, {name for name, _ in model.named_parameters()} - {"lm_head.weight"}):
        model.zero_grad()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in frozen)
        logps(model)[1].backward()
        for (name, parameter), gradient in zip(model.named_parameters(), whole, strict=True):
            if name in frozen:
                assert parameter.grad is None
            else:
                torch.testing.assert_close(parameter.grad, gradient)


class Largest(TorchDispatchMode):
    """The number of values of the largest tensor that any operation returns."""

    found = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        out = function(*arguments, **(named or {}))
        for part in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(part, torch.Tensor):
                self.found = max(self.found, part.numel())
        return out


class Saved(torch.autograd.graph.saved_tensors_hooks):
    """The number of values of the largest tensor that is kept for the backward pass."""

    found = 0

    def __init__(self):
        super().__init__(self.keep, lambda part: part)

    def keep(self, part):
        self.found = max(self.found, part.numel())
        return part


ANSWERS = [[*range(20)]] * 6
LONGER = {
    logps: make_completions([[*range(40)]], [0] * 6, ANSWERS, 2),
    likelihood: make_sequence_batch([[1]] * 6, ANSWERS, 2),
}


@pytest.mark.parametrize("compute", LONGER)
def test_no_tensor_has_the_logits_of_all_positions(compute, monkeypatch):
    """Neither in the forward nor in the backward pass, and none is kept between them."""
    vocabulary = 512
    model = llama(vocab_size=vocabulary)
    monkeypatch.setattr(lm_head, "CHUNK", 8 * vocabulary)
    found = []
    for large in (2**30, 1):
        monkeypatch.setattr(lm_head, "LARGE", large)
        saved = Saved()
        with Largest() as largest, saved:
            compute(model, LONGER[compute])[1].backward()
        found.append((largest.found, saved.found))
    plain, chunked = found
    assert min(plain) >= 6 * 20 * vocabulary
    assert chunked == (32 * vocabulary, 32 * vocabulary), "the head's weights, and nothing larger"


def scaled(kind, config, **changes):
    torch.manual_seed(0)
    return kind(config(**{**SIZES, "vocab_size": VOCABULARY, **changes})).eval()


MORE = {
    "gemma2, capped": lambda: scaled(Gemma2ForCausalLM, Gemma2Config, head_dim=8, final_logit_softcapping=30.0),
    "cohere, scaled": lambda: scaled(CohereForCausalLM, CohereConfig, logit_scale=0.0625),
    "granite, scaled": lambda: scaled(GraniteForCausalLM, GraniteConfig, logits_scaling=8.0),
}


@pytest.mark.parametrize("name", MORE)
def test_a_model_that_changes_its_logits_keeps_them(name, chunks, monkeypatch):
    model = MORE[name]()
    with defer_large_head(model, 10**9) as head:
        assert head is None
    found = logps(model)[0]
    monkeypatch.setattr(lm_head, "LARGE", 2**30)
    assert torch.equal(found, logps(model)[0])


def test_a_cap_is_seen_where_logits_are_small():
    """Logits of 1e-4 pass a cap of 30 unchanged in fp32."""
    model = MORE["gemma2, capped"]()
    with torch.no_grad():
        model.lm_head.weight.mul_(1e-4)
    plain = model.lm_head(model.model(torch.tensor([[1, 2]])).last_hidden_state)
    assert torch.allclose(model(torch.tensor([[1, 2]])).logits, plain, rtol=0, atol=1e-7)
    with defer_large_head(model, 10**9) as head:
        assert head is None
    model = scaled(Gemma2ForCausalLM, Gemma2Config, head_dim=8, final_logit_softcapping=None)
    with defer_large_head(model, 10**9) as head:
        assert head is model.lm_head


def test_a_head_that_is_more_than_a_linear_layer_is_used_as_it_is():
    class Adapter(nn.Linear):
        pass

    for change in (
        lambda model: setattr(model, "lm_head", Adapter(32, 16)),
        lambda model: setattr(model, "lm_head", nn.Sequential(model.lm_head)),
        lambda model: model.lm_head.register_forward_hook(lambda *_: None),
        lambda model: setattr(model.lm_head, "forward", model.lm_head.forward),
        lambda model: nn.utils.parametrizations.weight_norm(model.lm_head),
    ):
        model = llama()
        with defer_large_head(model, 10**9) as head:
            assert head is model.lm_head
        change(model)
        with defer_large_head(model, 10**9) as head:
            assert head is None


def test_nothing_is_left_behind():
    """The model is itself again, after an error too; no random number is drawn, though dropout is on."""
    model = gpt2(vocab_size=VOCABULARY, resid_pdrop=0.5).train()
    tokens = torch.tensor([[1, 2, 3]])
    state = torch.get_rng_state()
    with defer_large_head(model, 10**9):
        pass
    assert torch.equal(torch.get_rng_state(), state)

    def fail():
        with defer_large_head(model, 10**9):
            assert model(input_ids=tokens).logits.shape == (1, 3, 32)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert model.training
    assert model(input_ids=tokens).logits.shape == (1, 3, VOCABULARY)


def test_few_logits_are_kept():
    """So the batches of the default run, which have less than a tenth of that, go the way that they always went."""
    with defer_large_head(llama(vocab_size=VOCABULARY), lm_head.LARGE // VOCABULARY - 1) as head:
        assert head is None
    with defer_large_head(llama(vocab_size=VOCABULARY), lm_head.LARGE // VOCABULARY) as head:
        assert head is not None


@pytest.mark.parametrize("mixed", [True, False])
def test_half_precision(mixed, chunks, monkeypatch):
    """bf16 weights, or fp32 weights under autocast: as near to the whole tensor's as rounding lets it be."""
    model = llama(vocab_size=VOCABULARY, initializer_range=0.05)
    model = model if mixed else model.to(torch.bfloat16)

    def compute(model):
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            return logps(model)

    found = with_gradients(model, compute)
    monkeypatch.setattr(lm_head, "LARGE", 2**30)
    plain = with_gradients(model, compute)
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found[0], plain[0], rtol=1e-6, atol=1e-6)
    for gradient, wanted in zip(found[2], plain[2], strict=True):
        assert gradient.dtype == wanted.dtype
        torch.testing.assert_close(gradient, wanted, rtol=0.02, atol=0.02 * wanted.abs().max().item())

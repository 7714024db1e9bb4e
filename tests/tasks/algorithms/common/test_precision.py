"""bfloat16 with fp32 masters learns as fp32 does; without masters small updates are lost."""

import pytest
import torch

from tasks.algorithms.common.precision import (
    TrainedWeights,
    convert_weights_to_precision,
    get_master_weight,
    restore_full_precision,
)
from tasks.algorithms.language import sft
from tasks.algorithms.language.completions import compute_token_logps
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.reward_model import score_responses
from tasks.algorithms.language.rollouts import sample_rollouts
from tasks.algorithms.language.sequences import make_sequence_batch
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import ARCHITECTURES, completions, llama, llama_scorer

BATCH = make_sequence_batch([[8 + n] for n in range(8)], [[(3 * n + 1) % 8, (n + 2) % 8, 15] for n in range(8)], pad=15)
RESPONSES = completions([[3, 4], [3, 4], [5]], [[7, 2], [8, 9, 10, 2], [6, 2]], pad=2)


def losses(precision, rate, kind="adamw", steps=30):
    model = llama(initializer_range=0.1, num_hidden_layers=1)
    convert_weights_to_precision(model, precision)
    return [
        row["loss"] for row in sft.fit(model, [BATCH] * steps, make_optimizer(model, rate, steps, clip=1.0, kind=kind))
    ]


def fall(precision, rate, kind, steps=25):
    """By how much the loss of the trained weights, in fp32, is below that of the weights before."""
    model = llama(initializer_range=0.1, num_hidden_layers=1)
    before = loss_in_fp32(model)
    convert_weights_to_precision(model, precision)
    list(sft.fit(model, [BATCH] * steps, make_optimizer(model, rate, steps, clip=1.0, kind=kind)))
    restore_full_precision(model)
    return before - loss_in_fp32(model.float())


@torch.no_grad()
def loss_in_fp32(model):
    return sft.cross_entropy_and_accuracy(model, BATCH)[0].item()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_with_masters_it_learns_as_in_fp32(kind):
    """Measured: curves that fall from 2.82 to 0.003 differ by at most 1.6 %; rounding moves a weight by 0.4 %."""
    fp32, bf16 = losses("fp32", 0.015, kind), losses("bf16", 0.015, kind)
    assert fp32[-1] < 0.01
    assert bf16 == pytest.approx(fp32, rel=0.04)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_without_masters_updates_below_the_resolution_are_lost(kind):
    """25 steps of at most 3e-5 each, on weights around 0.1, whose neighbours in bfloat16 are 5e-4 away.

    The losses are those of the weights as the optimizer has them, computed in fp32: a forward pass in bfloat16 rounds
    by more than a tenth of the fall on some processors.
    """
    fallen = {precision: fall(precision, 3e-5, kind) for precision in ("fp32", "bf16", "pure_bf16")}
    assert fallen["fp32"] > 0.02
    assert fallen["bf16"] == pytest.approx(fallen["fp32"], rel=0.1)
    assert fallen["pure_bf16"] < 0.1 * fallen["fp32"]


@pytest.mark.parametrize("make", ARCHITECTURES.values())
def test_what_is_kept_in_which_type(make):
    model, same = make(), make()
    convert_weights_to_precision(model, "bf16")
    optimizer = make_optimizer(model, 0.01, 4, clip=1.0, kind="muon")
    list(sft.fit(model, [BATCH] * 2, optimizer))
    moments = {name: value for name, value in optimizer.state_dict().items() if value.dim()}
    assert moments
    assert {value.dtype for value in moments.values()} == {torch.float32}
    for p in model.parameters():
        assert (p.dtype, get_master_weight(p).dtype) == (torch.bfloat16, torch.float32)
        assert torch.equal(p, get_master_weight(p).bfloat16()), "the model computes with the rounded masters"
        assert p.grad is None
    kept = TrainedWeights(model).state_dict()
    assert kept.keys() == same.state_dict().keys()
    restore_full_precision(model)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())


def test_masters_begin_at_the_unrounded_weights():
    model, before = llama(), llama().state_dict()
    convert_weights_to_precision(model, "bf16")
    restore_full_precision(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_without_masters_everything_is_bfloat16():
    model = llama()
    convert_weights_to_precision(model, "pure_bf16")
    optimizer = make_optimizer(model, 0.01, 4, clip=1.0, kind="muon")
    list(sft.fit(model, [BATCH] * 2, optimizer))
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert {value.dtype for name, value in optimizer.state_dict().items() if value.dim()} == {torch.bfloat16}


def test_gradients_of_parts_are_summed_in_fp32():
    """1 + 2^-10 is no bfloat16 number: summed there the second part would be lost."""
    layer = torch.nn.Linear(1, 1, bias=False)
    convert_weights_to_precision(layer, "bf16")
    for gradient in (1.0, 2.0**-10):
        layer.weight.sum().mul(gradient).backward()
    assert get_master_weight(layer.weight).grad.item() == 1 + 2.0**-10


@pytest.mark.parametrize("precision", ["bf16", "pure_bf16"])
def test_a_loaded_training_goes_on_to_the_same_bits(precision):
    def made():
        model = llama()
        convert_weights_to_precision(model, precision)
        return TrainedWeights(model), make_optimizer(model, 1e-3, 6, clip=1.0)

    def go_on(weights, optimizer, steps):
        list(sft.fit(weights.model, [BATCH] * steps, optimizer))

    whole, first, second = made(), made(), made()
    go_on(*whole, 6)
    go_on(*first, 2)
    go_on(*second, 1)  # loading replaces it
    for part, other in zip(first, second, strict=True):
        other.load_state_dict({name: value.clone() for name, value in part.state_dict().items()})
    go_on(*second, 4)
    for part, other in zip(whole, second, strict=True):
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in part.state_dict().items())
    assert all(
        torch.equal(p, other)
        for p, other in zip(whole[0].model.parameters(), second[0].model.parameters(), strict=True)
    )


def test_only_trained_weights_are_kept():
    model = llama()
    model.model.embed_tokens.weight.requires_grad_(False)
    convert_weights_to_precision(model, "bf16")
    assert model.model.embed_tokens.weight.dtype == torch.bfloat16
    assert get_master_weight(model.model.embed_tokens.weight) is model.model.embed_tokens.weight, "it is never updated"
    assert "model.embed_tokens.weight" not in TrainedWeights(model).state_dict()


def test_what_is_counted_in_a_buffer_is_kept_too():
    model = torch.nn.BatchNorm1d(2)
    kept = {name: value.clone() for name, value in TrainedWeights(model).state_dict().items()}
    assert kept.keys() == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    model(torch.randn(4, 2))
    TrainedWeights(model).load_state_dict(kept)
    assert model.num_batches_tracked == 0


@pytest.mark.parametrize("make", ARCHITECTURES.values())
def test_log_probabilities_scores_and_values_are_fp32_and_near(make):
    """Measured: log-probabilities of -8.1 to 0 differ by up to 0.042, a 200th of the largest, as 8 significant bits
    have it.
    """
    model, rounded = make(), make()
    convert_weights_to_precision(rounded, "pure_bf16")
    with torch.no_grad():
        exact, found = compute_token_logps(model, RESPONSES), compute_token_logps(rounded, RESPONSES)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=0.0, atol=0.1)
    critic = Critic(rounded)
    torch.nn.init.normal_(critic.head.weight)
    convert_weights_to_precision(critic, "bf16")
    assert critic.head.weight.dtype == torch.bfloat16
    values = critic(RESPONSES)
    assert values.dtype == torch.float32
    assert not torch.equal(values, values.bfloat16().float()), "not rounded behind the head"


def test_scores_of_a_head_are_not_rounded():
    scorer = llama_scorer()
    convert_weights_to_precision(scorer, "pure_bf16")
    found = score_responses(scorer, RESPONSES)
    assert found.dtype == torch.float32
    assert not torch.equal(found, found.bfloat16().float())


def test_keys_and_values_are_sampled_with_in_bfloat16(monkeypatch):
    from tasks.algorithms.language import cache

    types, with_room = set(), cache._copy_into_larger_buffer
    monkeypatch.setattr(
        cache, "_copy_into_larger_buffer", lambda *given: types.add((made := with_room(*given)).dtype) or made
    )
    model = llama()
    convert_weights_to_precision(model, "bf16")
    drawn = next(
        sample_rollouts(
            model, [[3], [4]], samples=3, max_new_tokens=4, temperature=1.0, end_tokens=(), seed=0, batch_size=2
        )
    )
    assert types == {torch.bfloat16}
    assert drawn.logps.dtype == torch.float32

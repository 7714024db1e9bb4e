"""With gradient checkpointing less is kept and layers are computed twice; numbers and gradients stay."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from transformers import OPTConfig, OPTForCausalLM

from tasks.algorithms.common import gradient_checkpointing
from tasks.algorithms.language import completions as completions_module
from tasks.algorithms.language import sft
from tasks.algorithms.language.completions import compute_response_states, compute_token_logps
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.reward_model import score_responses
from tasks.algorithms.language.rollouts import sample_rollouts
from tasks.algorithms.language.sequences import make_sequence_batch
from tests.tasks.tiny import ARCHITECTURES, completions, gpt2, llama, llama_scorer

RESPONSES = completions([[3, 4], [3, 4], [5]], [[7, 2], [8, 9, 10, 2], [6, 2]], pad=2)
BATCH = make_sequence_batch([[3], [4, 5]], [[1, 2], [6, 7, 8, 2]], pad=2)
PASSES = {
    "log-probabilities": (llama, lambda model: compute_token_logps(model, RESPONSES, 0.7)),
    "of gpt2": (gpt2, lambda model: compute_token_logps(model, RESPONSES)),
    "states": (llama, lambda model: compute_response_states(model.base_model, RESPONSES)[:, :3]),
    "scores": (llama_scorer, lambda model: score_responses(model, RESPONSES)),
    "values": (lambda: with_value(Critic(llama())), lambda critic: critic(RESPONSES)),
    "cross-entropy": (llama, lambda model: sft.cross_entropy_and_accuracy(model.train(), BATCH)[0]),
}


def with_value(critic):
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
    return critic


def of(model):
    return model.body if isinstance(model, Critic) else model


def forwards(model):
    """Count how often each layer is computed."""
    counts = []
    for layer in model.modules():
        if isinstance(layer, gradient_checkpointing.GradientCheckpointingLayer):
            inner = next(part for part in layer.children())
            inner.register_forward_hook(lambda *_: counts.append(1))
    return counts


@pytest.mark.parametrize("name", PASSES)
def test_the_same_numbers_and_gradients_from_less_memory(name):
    """By the same pass without it, which reads each prompt once, through the cache."""
    make, passed = PASSES[name]
    found = []
    for on in (False, True):
        model = make()
        if on:
            gradient_checkpointing.enable_gradient_checkpointing(of(model))
        counts, kept = forwards(model), []
        with saved_tensors_hooks(
            lambda tensor, kept=kept: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
        ):
            values = passed(model)
        once = len(counts)
        (values * torch.arange(1.0, values.numel() + 1).view(values.shape)).sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        found.append((values.detach(), gradient, sum(kept), once, len(counts)))
    (plain, expected, all_kept, once, both), (values, gradient, kept, first, again) = found
    torch.testing.assert_close(values, plain, rtol=1e-4, atol=1e-5)
    assert (gradient - expected).norm() < 1e-5 * expected.norm()
    assert once == both, "without it nothing is computed again"
    assert again == 2 * first, "with it every layer is"
    assert kept < 0.7 * all_kept


@pytest.mark.parametrize("make", [gpt2, llama])
def test_dropout_stays_as_it_was(make):
    """Policies are trained with dropout off, reward models and SFT with dropout on, the same in both computations."""
    options = {"resid_pdrop": 0.5, "attn_pdrop": 0.5} if make is gpt2 else {"attention_dropout": 0.5}
    model = make(**options)
    plain = compute_token_logps(model.eval(), RESPONSES).detach()
    gradient_checkpointing.enable_gradient_checkpointing(model)
    torch.testing.assert_close(compute_token_logps(model, RESPONSES).detach(), plain, rtol=1e-4, atol=1e-5)
    assert not any(part.training for part in model.modules())
    model.train()
    torch.manual_seed(0)
    dropped = compute_token_logps(model, RESPONSES)
    assert (dropped - plain).abs().max() > 0.01
    dropped.sum().backward()  # torch refuses a second computation that differs from the first
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("make", ARCHITECTURES.values())
def test_sampling_keeps_its_cache(make):
    model, other = make(), make()
    gradient_checkpointing.enable_gradient_checkpointing(model)
    drawn, expected = (
        next(
            sample_rollouts(
                one, [[3], [4]], samples=3, max_new_tokens=6, temperature=1.0, end_tokens=(), seed=0, batch_size=2
            )
        )
        for one in (model, other)
    )
    assert torch.equal(drawn.tokens, expected.tokens)
    assert torch.equal(drawn.logps, expected.logps)


def test_without_gradients_prompts_are_read_once(monkeypatch):
    """As for a reference's log-probabilities: nothing is kept then, and nothing has to be computed again."""
    model = llama()
    gradient_checkpointing.enable_gradient_checkpointing(model)
    monkeypatch.setattr(
        completions_module,
        "_build_full_sequence_inputs",
        lambda _: pytest.fail("each answer behind a copy of its prompt"),
    )
    with torch.no_grad():
        assert torch.equal(compute_token_logps(model, RESPONSES), compute_token_logps(llama(), RESPONSES))


def test_a_model_without_such_layers_is_refused(monkeypatch):
    """Otherwise nothing would be recomputed, and nothing would say so."""
    monkeypatch.setattr(gradient_checkpointing, "GradientCheckpointingLayer", torch.nn.Conv3d)
    with pytest.raises(ValueError, match=r"^LlamaForCausalLM has no layers that transformers can recompute$"):
        gradient_checkpointing.enable_gradient_checkpointing(llama())


def test_dropout_of_a_layers_own_stays_off_too():
    """OPT's layers drop out by their own mode of training, not by that of a part of theirs."""
    sizes = {"vocab_size": 16, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"word_embed_proj_dim": 32, "max_position_embeddings": 64, "pad_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    model = OPTForCausalLM(OPTConfig(**sizes, dropout=0.5, init_std=0.3)).eval()
    plain = compute_token_logps(model, RESPONSES).detach()
    gradient_checkpointing.enable_gradient_checkpointing(model)
    found = compute_token_logps(model, RESPONSES)
    torch.testing.assert_close(found.detach(), plain, rtol=1e-4, atol=1e-5)
    found.sum().backward()

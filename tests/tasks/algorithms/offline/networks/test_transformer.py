import pytest
import torch
from transformers import GPT2Config, GPT2Model

from tasks.algorithms.offline.networks.transformer import Transformer


def random(width=24, layers=3, heads=4, dropout=0.0):
    torch.manual_seed(0)
    stack = Transformer(width, layers, heads, dropout)
    for parameter in stack.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return stack


def as_gpt2(stack):
    """The same weights in transformers' GPT-2: its matrices are transposed, with queries, keys and values in one."""
    width, layers, heads = (stack.sizes[key] for key in ("width", "layers", "heads"))
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "vocab_size": 1, "n_positions": 32}
    silent = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    model = GPT2Model(GPT2Config(activation_function="relu", **sizes, **silent))
    weights = {"ln_f": stack.norm}
    for number, block in enumerate(stack.blocks):
        parts = {"ln_1": block.attention_norm, "ln_2": block.forward_norm, "attn.c_proj": block.out}
        parts |= {"mlp.c_fc": block.up, "mlp.c_proj": block.down}
        weights |= {f"h.{number}.{name}": part for name, part in parts.items()}
    with torch.no_grad():
        model.wpe.weight.zero_()
        for name, part in weights.items():
            theirs = model.get_submodule(name)
            theirs.weight.copy_(part.weight.T if part.weight.dim() == 2 else part.weight)
            theirs.bias.copy_(part.bias)
        for number, block in enumerate(stack.blocks):
            together = model.h[number].attn.c_attn
            together.weight.copy_(torch.cat([block.query.weight, block.key_value.weight]).T)
            together.bias.copy_(torch.cat([block.query.bias, block.key_value.bias]))
    return model


def test_hidden_states_and_gradients_are_those_of_gpt2():
    stack = random()
    theirs = as_gpt2(stack)
    mine, other = (torch.randn(2, 9, 24, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    hidden, expected = stack(mine), theirs(inputs_embeds=other, use_cache=False).last_hidden_state
    assert torch.allclose(hidden, expected, atol=1e-5)
    hidden.square().sum().backward()
    expected.square().sum().backward()
    assert torch.allclose(mine.grad, other.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("positions", [[1, 4, 7], [8], [0]])
def test_states_at_some_positions_are_those_among_all(positions):
    stack, inputs = random(), torch.randn(2, 9, 24)
    chosen = torch.tensor(positions)
    assert torch.allclose(stack(inputs, chosen), stack(inputs)[:, chosen], atol=1e-5)


def test_no_state_depends_on_a_later_vector():
    stack, inputs = random(), torch.randn(2, 9, 24)
    changed = inputs.clone()
    changed[:, 5:] = torch.randn(2, 4, 24)
    before, after = stack(inputs), stack(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_dropout_is_for_training_only():
    stack, inputs = random(dropout=0.5), torch.randn(2, 9, 24)
    assert not torch.equal(stack(inputs), stack(inputs))
    stack.eval()
    assert torch.equal(stack(inputs), stack(inputs))


def test_width_must_divide_among_heads():
    with pytest.raises(ValueError, match="width 10 is not a multiple of heads 4"):
        Transformer(10, 1, 4, 0.0)

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    MptConfig,
    MptForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from tasks.algorithms.language import rollouts, shared_prompts
from tasks.algorithms.language.cache import RoomyLayer, select_rows_and_reserve_cache_room
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.shared_prompts import SharedLayer
from tests import repository
from tests.tasks.algorithms.language.test_rollouts import ENDS, PROMPTS, draw, generated
from tests.tasks.tiny import ARCHITECTURES, SIZES, llama

STORIES = Path(__file__).parents[5] / "shared/models/stories260K"
PROMPT, HEADS, SIZE = 5, 2, 4  # of keys


def layer_and_copy(owner, dtype=torch.float32, room=6):
    """Three prompts' random keys and values: once in a shared layer, and repeated for every row in a plain layer."""
    keys, values = torch.randn(2, 3, HEADS, PROMPT, SIZE, generator=torch.Generator().manual_seed(0)).to(dtype)
    owner = torch.tensor(owner)
    return SharedLayer(keys, values, owner, room), RoomyLayer(keys, values, owner, room)


def step(layer, other, seed, hidden, heads=2 * HEADS):
    """Add a token to both and attend to all keys: by the shared layer, and over whole rows.

    The first `hidden` keys are masked.
    """
    draws = torch.Generator().manual_seed(seed)
    rows, dtype = len(other.keys), other.keys.dtype
    keys, values = torch.randn(2, rows, HEADS, 1, SIZE, generator=draws).to(dtype)
    query = torch.randn(rows, heads, 1, SIZE, generator=draws).to(dtype)
    layer.update(keys, values)
    whole = other.update(keys, values)
    mask = torch.ones(rows, 1, 1, layer.get_seq_length(), dtype=torch.bool)
    for row, count in enumerate(hidden):
        mask[row, ..., :count] = False
    mask = mask if any(hidden) else None
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, *(part.repeat_interleave(heads // HEADS, 1) for part in whole), attn_mask=mask, scale=0.3
    )
    return layer.attend(query, mask, 0.3), expected.transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [HEADS, 3 * HEADS])  # the second: several query heads to a key head
def test_attention_is_that_over_whole_rows(dtype, heads):
    """It holds while rows grow and leave unevenly and prompts leave; two tokens of one prompt are hidden."""
    layer, other = layer_and_copy([0, 0, 0, 1, 1, 1, 2, 2, 2], dtype)
    prompts = []
    for seed, kept in enumerate([range(9), [0, 2, 3, 4, 5, 8], [0, 2, 3], [2, 0], [0]]):
        for part in (layer, other):
            part.batch_select_indices(torch.tensor(kept))
        found, expected = step(layer, other, seed, [2 if row == 1 else 0 for row in layer.owner], heads)
        tolerance = 1e-6 if dtype is torch.float32 else 3e-2
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        assert found.dtype == dtype
        prompts.append(len(layer.keys))
        assert layer.get_seq_length() == other.get_seq_length() == PROMPT + seed + 1
    assert prompts == [3, 3, 2, 2, 1], "a prompt leaves with its last row"


def test_rows_may_stand_in_any_order():
    layer, other = layer_and_copy([2, 0, 2, 1, 0, 2])
    torch.testing.assert_close(*step(layer, other, 0, [1, 0, 1, 0, 0, 1]))


def test_a_token_hidden_or_not_shows():
    """Otherwise a layer that ignores the mask would pass the test above."""
    (seen, _), (hidden, expected) = (step(*layer_and_copy([0, 1, 2]), 0, [0, count, 0]) for count in (0, 2))
    assert (seen[1] - expected[1]).abs().max() > 0.01
    torch.testing.assert_close(hidden, expected)


def test_prompts_stand_once_in_memory():
    layer, other = layer_and_copy([0] * 4 + [1] * 4 + [2] * 4)
    assert layer.keys.numel() == 3 * HEADS * PROMPT * SIZE
    assert layer.response_layer.buffers[0].numel() == 12 * HEADS * 6 * SIZE
    assert other.buffers[0].numel() == 12 * HEADS * (PROMPT + 6) * SIZE


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "stories260K"])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_tokens_are_those_of_generate(architecture, seed):
    """The tokens are the same as with one sample for each prompt, where nothing is shared."""
    if architecture == "stories260K" and not STORIES.exists():
        pytest.skip(repository.needs("models/stories260K"))
    if architecture == "stories260K":
        model = AutoModelForCausalLM.from_pretrained(STORIES).eval()
        prompts, ends = [[1, 403, 407 + seed], [1, 261, 300, 268, 310], [1]], [13, 431]
    else:
        model, prompts, ends = ARCHITECTURES[architecture](seed), PROMPTS, ENDS
    [drawn] = draw(model, prompts, samples=3, temperature=0.0, end_tokens=ends)
    expected = generated(model, prompts, ends, 12)
    assert drawn.responses() == [answer for answer in expected for _ in range(3)]


def layers_used(model, samples=4, **changes):
    """The kinds of the layers that decoding used, and the tokens drawn."""
    seen = set()

    def look(module, given, named):
        cache = named.get("past_key_values")
        seen.update((type(layer), name_of(model)) for layer in (cache.layers if cache else ()))

    hook = model.register_forward_pre_hook(look, with_kwargs=True)
    [drawn] = draw(model, samples=samples, **changes)
    hook.remove()
    return seen, drawn


def name_of(model):
    return model.config._attn_implementation


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_models_share_while_they_decode_and_no_longer(architecture):
    model = ARCHITECTURES[architecture]()
    assert layers_used(model)[0] == {(SharedLayer, shared_prompts.NAME)}
    assert name_of(model) == "sdpa"


def test_one_sample_a_prompt_shares_nothing():
    assert layers_used(llama(), samples=1)[0] == {(RoomyLayer, "sdpa")}


def test_attention_is_the_model_s_own_again_after_an_error():
    model = llama()
    with pytest.raises(IndexError):
        draw(model, [[99]], samples=2)  # a token that the model does not have
    assert name_of(model) == "sdpa"


def windowed():
    """A layer that attends to the last 4 tokens below one that attends to all."""
    torch.manual_seed(0)
    kinds = ["sliding_attention", "full_attention"]
    changes = {"layer_types": kinds, "use_sliding_window": True, "sliding_window": 4}
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, **changes)).eval()


def eager():
    model = llama()
    model.set_attn_implementation("eager")
    return model


def mpt():
    """MPT, whose attention adds its own bias to the scores."""
    torch.manual_seed(0)
    return MptForCausalLM(MptConfig(d_model=32, n_heads=4, n_layers=2, vocab_size=16, max_seq_len=64)).eval()


def bloom():
    """BLOOM, whose attention does not use transformers' interface."""
    torch.manual_seed(0)
    return BloomForCausalLM(BloomConfig(hidden_size=32, n_head=4, n_layer=2, vocab_size=16)).eval()


def dropping():
    """A model in training mode with dropout on attention."""
    return ARCHITECTURES["gpt2"]().train()


OTHERS = {
    windowed: {SharedLayer, DynamicSlidingWindowLayer},
    eager: {RoomyLayer},
    mpt: {RoomyLayer},
    bloom: {RoomyLayer},
}


@pytest.mark.parametrize("make", OTHERS)
def test_what_does_not_fit_stays_as_it_was(make, monkeypatch):
    model = make()
    kinds, ours = layers_used(model)
    assert {kind for kind, _ in kinds} == OTHERS[make]
    monkeypatch.setattr(
        rollouts, "use_shared_prompt_attention", lambda model, samples: nullcontext(select_rows_and_reserve_cache_room)
    )
    kinds, theirs = layers_used(model)
    assert SharedLayer not in {kind for kind, _ in kinds}
    assert ours.responses() == theirs.responses()
    torch.testing.assert_close(ours.logps, theirs.logps, rtol=1e-4, atol=1e-5)


def test_dropout_stays_in_attention():
    assert {kind for kind, _ in layers_used(dropping())[0]} == {RoomyLayer}


def test_a_model_that_reads_keys_itself_fails_aloud():
    """It raises an error, since otherwise the prompt would be left out."""
    cache = DynamicCache()
    cache.update(*torch.zeros(2, 1, HEADS, PROMPT, SIZE), 0)
    assert type(cache.layers[0]) is DynamicLayer
    select_rows_and_reserve_cache_room(cache, torch.tensor([0, 0]), 1, lambda _: SharedLayer)
    keys, _ = cache.update(*torch.zeros(2, 2, HEADS, 1, SIZE), 0)
    with pytest.raises(TypeError):
        torch.zeros(2, HEADS, 1, SIZE) @ keys


def test_log_probabilities_in_bf16_are_as_near_to_those_recomputed():
    """The difference is within the precision of the format; whole rows in bf16 differ by as much."""
    model = llama(vocab_size=16, initializer_range=0.05).to(torch.bfloat16)
    _, drawn = layers_used(model, samples=8, end_tokens=[])
    batch = make_completions(PROMPTS, [prompt for prompt in range(4) for _ in range(8)], drawn.responses(), pad=0)
    with torch.no_grad():
        again = compute_token_logps(model, batch)
    torch.testing.assert_close(drawn.logps, again, rtol=0, atol=0.03)

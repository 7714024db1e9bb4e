from contextlib import nullcontext

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.cache import (
    RoomyLayer,
    list_unsupported_cache_layers,
    select_rows_and_reserve_cache_room,
)
from tests.tasks.architectures import SHAPES, SLIDING
from tests.tasks.tiny import ARCHITECTURES, SIZES, llama

PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 3, 1], [2, 2]]
ENDS = [0, 5, 11]


def draw(model, temperature, samples):
    [drawn] = rollouts.sample_rollouts(
        model,
        PROMPTS,
        samples=samples,
        max_new_tokens=12,
        temperature=temperature,
        end_tokens=ENDS,
        seed=1,
        batch_size=8,
    )
    return drawn


def select_only(cache, rows, room):
    """What transformers' own cache does: it grows by concatenation."""
    cache.batch_select_indices(rows)


def mistral(seed=0):
    """A model with attention over the last 4 tokens only; its cache layers, which forget, are left unchanged."""
    torch.manual_seed(seed)
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)).eval()


@pytest.mark.parametrize("samples", [1, 6])  # each prompt's cache apart, and shared
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "mistral"])
def test_samples_are_those_with_transformers_own_cache(architecture, temperature, samples, monkeypatch):
    model = {**ARCHITECTURES, "mistral": mistral}[architecture]()
    ours = draw(model, temperature, samples)
    monkeypatch.setattr(rollouts, "use_shared_prompt_attention", lambda model, samples: nullcontext(select_only))
    theirs = draw(model, temperature, samples)
    assert ours.responses() == theirs.responses()
    assert torch.equal(ours.ended, theirs.ended)
    torch.testing.assert_close(ours.logps, theirs.logps, rtol=1e-4, atol=1e-5)
    assert len({len(row) for row in ours.responses()}) > 1, "rows left the batch on the way"


def test_only_plain_layers_are_replaced():
    def kinds(model):
        cache = model(torch.tensor([PROMPTS[0]]), use_cache=True).past_key_values
        select_rows_and_reserve_cache_room(cache, torch.tensor([0, 0]), 3)
        assert all(len(layer.keys) == 2 for layer in cache.layers), "each is repeated"
        return {type(layer) is RoomyLayer for layer in cache.layers}

    assert all(kinds(make()) == {True} for make in ARCHITECTURES.values())
    assert kinds(mistral()) == {False}


def states(rows, length, seed):
    return torch.randn(2, rows, 2, length, 3, generator=torch.Generator().manual_seed(seed))


def layers(rows, room):
    """The same two prompts in our layer and in transformers', each repeated for `rows`."""
    ours, theirs = DynamicCache(), DynamicCache()
    for cache in (ours, theirs):
        cache.update(*states(2, 4, 0), 0)
    select_rows_and_reserve_cache_room(ours, rows, room)
    theirs.batch_select_indices(rows)
    assert type(theirs.layers[0]) is DynamicLayer
    return ours.layers[0], theirs.layers[0]


def test_it_holds_what_the_dynamic_layer_holds():
    """It does so while it grows by one or several tokens and rows leave."""
    ours, theirs = layers(torch.tensor([0, 0, 1, 1, 1]), 8)
    for step, (length, kept) in enumerate([(1, [0, 2, 3]), (3, [1, 2]), (1, [1, 0]), (2, [0])], 1):
        new = states(len(theirs.keys), length, step)
        for mine, other in zip(ours.update(*new), theirs.update(*new), strict=True):
            assert torch.equal(mine, other)
        assert ours.get_seq_length() == theirs.get_seq_length()
        assert ours.get_mask_sizes(1) == theirs.get_mask_sizes(1)
        for layer in (ours, theirs):
            layer.batch_select_indices(torch.tensor(kept))
        assert torch.equal(ours.keys, theirs.keys)
        assert torch.equal(ours.values, theirs.values)


def test_growth_copies_nothing():
    ours, theirs = layers(torch.tensor([0, 1]), 2)
    before = ours.keys.data_ptr(), theirs.keys.data_ptr()
    for layer in (ours, theirs):
        layer.update(*states(2, 1, 1))
    assert ours.keys.data_ptr() == before[0]
    assert theirs.keys.data_ptr() != before[1]


def test_there_is_no_room_for_more_than_was_asked_for():
    ours, _ = layers(torch.tensor([0, 1]), 2)
    ours.update(*states(2, 2, 1))
    with pytest.raises(RuntimeError):
        ours.update(*states(2, 1, 2))


def test_repeated_rows_do_not_share_memory():
    ours, _ = layers(torch.tensor([0, 0]), 1)
    keys, _ = ours.update(*states(2, 1, 1))
    assert torch.equal(keys[0, :, :4], keys[1, :, :4])
    assert not torch.equal(keys[0, :, 4], keys[1, :, 4])


def test_a_model_samples_from_it():
    """Otherwise the comparison with transformers' cache would compare that cache with itself."""
    seen = []
    model = llama()
    model.register_forward_pre_hook(lambda _, __, named: seen.append(named.get("past_key_values")), with_kwargs=True)
    draw(model, 0.0, samples=1)
    assert seen[0] is None
    assert all(type(layer) is RoomyLayer for cache in seen[1:] for layer in cache.layers)
    assert len(seen) > 3


@pytest.mark.parametrize("name", SHAPES)
def test_layers_that_cannot_be_closed_up_are_known_before_anything_is_played(name):
    assert bool(list_unsupported_cache_layers(SHAPES[name]())) == (name in SLIDING)

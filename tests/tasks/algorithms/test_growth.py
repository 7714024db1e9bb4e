import pytest
import torch
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

from tasks.algorithms.growth import add_layers
from tasks.algorithms.reward_model import score
from tests.tasks.tiny import SIZES, completions, gpt2, llama_scorer

BATCH = completions([[3, 4], [3, 4], [5]], [[7, 2], [8, 9, 10, 2], [6, 2]], pad=2)


def grown(count=2, seed=0):
    model = llama_scorer()
    add_layers(model, count, torch.Generator().manual_seed(seed))
    return model


def test_it_gives_what_it_gave_until_it_is_trained():
    model = grown()
    assert len(model.model.layers) == model.config.num_hidden_layers == SIZES["num_hidden_layers"] + 2
    torch.testing.assert_close(score(model, BATCH), score(llama_scorer(), BATCH))


def test_new_layers_learn_and_are_not_the_last_ones_weights():
    model = grown()
    last, new = model.model.layers[1], model.model.layers[2]
    assert not torch.equal(new.self_attn.q_proj.weight, last.self_attn.q_proj.weight)
    assert not torch.equal(new.self_attn.q_proj.weight, model.model.layers[3].self_attn.q_proj.weight)
    assert new.mlp.up_proj.weight.std().item() == pytest.approx(model.config.initializer_range, rel=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: weight.clone() for name, weight in new.named_parameters()}
    for _ in range(2):  # what writes moves in the first step, the rest behind it in the second
        score(model, BATCH).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not [name for name, weight in new.named_parameters() if torch.equal(weight, before[name])]


def test_the_generator_decides():
    first, same, other = (grown(seed=seed).model.layers[2].mlp.up_proj.weight for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_it_is_saved_and_loaded_as_any_model(tmp_path):
    model = grown()
    with torch.no_grad():
        for weight in model.model.layers[3].parameters():
            weight.add_(0.1)
    model.save_pretrained(tmp_path)
    back = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(score(back, BATCH), score(model, BATCH))


def test_a_layer_reads_the_one_below_at_earlier_tokens():
    """The cache has a place for each layer: scores of a batch are those of whole sequences."""
    model = grown()
    with torch.no_grad():
        for layer in model.model.layers[2:]:
            for weight in layer.parameters():
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.dim())))
        alone = model(torch.tensor([[3, 4, 8, 9, 10, 2]])).logits[0, 0]
    torch.testing.assert_close(score(model, BATCH)[1], alone, rtol=1e-4, atol=1e-5)


def test_what_is_not_built_so_is_refused():
    with pytest.raises(ValueError, match="GPT2LMHeadModel is not built of layers that can be added to"):
        add_layers(gpt2(), 1, torch.Generator())


def test_the_kinds_of_layers_stay_in_step():
    config = LlamaConfig(**{**SIZES, "num_labels": 1})
    config.layer_types = ["full_attention"] * 2
    model = LlamaForSequenceClassification(config)
    add_layers(model, 1, torch.Generator().manual_seed(0))
    assert model.config.layer_types == ["full_attention"] * 3

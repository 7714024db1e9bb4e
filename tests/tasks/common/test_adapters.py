"""Low-rank adapters: what is trained, what is written, and that peft and transformers read it as the same model."""

import functools
import json
from copy import deepcopy

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaForSequenceClassification

from tasks.algorithms.language import sft
from tasks.algorithms.language.sequences import make_sequence_batch
from tasks.children import patterns
from tasks.common import adapters, model_files, models
from tasks.common.errors import ConfigError, DataError
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import ARCHITECTURES, gpt2, llama, llama_scorer

BATCH = make_sequence_batch([[8 + n] for n in range(8)], [[(3 * n + 1) % 8, (n + 2) % 8, 15] for n in range(8)], pad=15)
TOKENS = torch.tensor([[3, 4, 5, 9], [8, 1, 2, 2]])


def adapted(make=llama, steps=5, targets="all-linear", **changes):
    """A model whose adapter was trained, with the model that it was before."""
    if steps and targets == "all-linear":
        return deepcopy(_trained(make, steps, **changes))
    return _adapted(make, steps, targets, **changes)


@functools.cache
def _trained(make, steps, **changes):
    """Several tests begin with the same training."""
    return _adapted(make, steps, "all-linear", **changes)


def _adapted(make, steps, targets, **changes):
    model, before = make(), make()
    adapters.add_adapter(model, **{"rank": 2, "alpha": 4.0, "dropout": 0.0, **changes}, targets=targets)
    if steps:
        list(sft.fit(model, [BATCH] * steps, make_optimizer(model, 0.05, steps, clip=1.0)))
    return model, before


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=TOKENS).logits


@pytest.mark.parametrize("make", ARCHITECTURES.values())
def test_a_new_adapter_changes_nothing_and_is_all_that_is_trained(make):
    model, before = adapted(make, steps=0)
    assert torch.equal(logits(model), logits(before))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    layers = [part for name, part in adapters._list_linear_layers(before) if "lm_head" not in name]
    assert sum(p.numel() for p in trained.values()) == sum(2 * sum(layer.weight.shape) for layer in layers)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_it_learns(kind):
    """Muon takes A and B for two hidden matrices, and makes the update of each orthogonal."""
    model, _ = adapted(functools.partial(llama, num_hidden_layers=1), steps=0, rank=8, alpha=16.0)
    rows = list(sft.fit(model, [BATCH] * 20, make_optimizer(model, 0.05, 20, clip=1.0, kind=kind)))
    assert rows[-1]["loss"] < 0.1 * rows[0]["loss"]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
@pytest.mark.parametrize("make", ARCHITECTURES.values())
def test_merged_is_unmerged_is_what_peft_and_transformers_load(make, tmp_path):
    model, before = adapted(make)
    adapters.save_adapter(model, tmp_path / "adapter")
    before.save_pretrained(tmp_path / "both")
    adapters.save_adapter(model, tmp_path / "both")
    learned = logits(model)
    assert (learned - logits(before)).abs().max() > 0.5, "it has learned something"
    by_peft = PeftModel.from_pretrained(before, tmp_path / "adapter")
    torch.testing.assert_close(logits(by_peft), learned, rtol=1e-4, atol=1e-4)
    for load in (AutoModelForCausalLM.from_pretrained, models.load_model):
        torch.testing.assert_close(logits(load(tmp_path / "both")), learned, rtol=1e-4, atol=1e-4)
    adapters.merge_adapters(model)
    torch.testing.assert_close(logits(model), learned, rtol=1e-4, atol=1e-4)
    for plain in (model, models.load_model(tmp_path / "both")):
        assert plain.state_dict().keys() == make().state_dict().keys(), (
            "a model as any other, which can be trained whole"
        )
        assert all(p.requires_grad for p in plain.parameters())
        plain.save_pretrained(tmp_path / "again")
        torch.testing.assert_close(logits(models.load_model(tmp_path / "again")), learned, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
@pytest.mark.parametrize(
    "load",
    [models.load_model, lambda path, dtype: model_files.load_checked_model(AutoModelForCausalLM, path, dtype=dtype)],
)
def test_in_bfloat16_the_sum_is_rounded_and_not_its_parts(load, tmp_path):
    """So that a reference in bfloat16 is the policy that begins as the same model: rounded before, a tenth of the
    weights would differ.
    """
    model, before = adapted()
    before.save_pretrained(tmp_path)
    adapters.save_adapter(model, tmp_path)
    adapters.merge_adapters(model)
    found = load(tmp_path, "bfloat16")
    assert {p.dtype for p in found.parameters()} == {torch.bfloat16}
    assert found.model.rotary_emb.inv_freq.dtype == torch.float32
    for name, weight in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], weight.bfloat16()), name


def test_a_merged_weight_by_hand():
    """W + alpha / rank B A."""
    model, before = adapted(rank=2, alpha=3.0)
    layer = model.model.layers[0].mlp.up_proj
    expected = (
        before.model.layers[0].mlp.up_proj.weight + 1.5 * layer.lora_B.default.weight @ layer.lora_A.default.weight
    )
    adapters.merge_adapters(model)
    torch.testing.assert_close(model.model.layers[0].mlp.up_proj.weight, expected)
    assert torch.equal(model.model.embed_tokens.weight, before.model.embed_tokens.weight)


def test_switched_off_it_is_the_model_before_and_then_goes_on():
    model, before = adapted()
    learned = logits(model)
    with adapters.disable_adapters(model):
        assert torch.equal(logits(model), logits(before))
    assert torch.equal(logits(model), learned)
    assert any(p.requires_grad for p in model.parameters())


def test_named_layers_alone_are_adapted():
    model, _ = adapted(steps=0, targets=["q_proj", "mlp.down_proj"])
    names = {name.split(".lora_")[0].split(".", 3)[3] for name, p in model.named_parameters() if p.requires_grad}
    assert names == {"self_attn.q_proj", "mlp.down_proj"}


@pytest.mark.parametrize("name", ["lm_head", "embed_tokens", "proj", "query"])
def test_what_is_no_layer_is_refused_in_one_line(name):
    with pytest.raises(ConfigError) as told:
        adapted(steps=0, targets=["q_proj", name])
    assert str(told.value) == (
        f"params.yaml: lora.targets: {name} is no linear layer of ; "
        "there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"
    )


def test_the_files_are_the_same_whatever_the_order_and_name_no_place(tmp_path):
    for name, targets in (("one", ["q_proj", "v_proj"]), ("other", ["v_proj", "q_proj"])):
        model, _ = adapted(targets=targets)
        adapters.save_adapter(model, tmp_path / name)
    one, other = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "other"))
    assert one == other
    assert sorted(one) == ["adapter_config.json", "adapter_model.safetensors"]
    found = json.loads(one["adapter_config.json"])
    assert (found["r"], found["lora_alpha"], found["target_modules"]) == (2, 4.0, ["q_proj", "v_proj"])
    assert found["base_model_name_or_path"] is None


def test_a_new_head_is_trained_whole():
    scorer = llama_scorer()
    adapters.add_adapter(scorer, 2, 4.0, 0.0, "all-linear")
    assert isinstance(scorer, LlamaForSequenceClassification)
    trained = [name for name, p in scorer.named_parameters() if p.requires_grad and ".lora_" not in name]
    assert trained == ["score.weight"]


def test_dropout_draws_from_torchs_generator():
    model, _ = adapted(steps=3, dropout=0.5)
    seen = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        seen.append(sft.cross_entropy_and_accuracy(model.train(), BATCH)[0].item())
    assert seen[0] == seen[1] != seen[2]
    assert logits(model).equal(logits(model)), "off in evaluation"


def test_gpt2s_transposed_layers_are_adapted():
    model, _ = adapted(gpt2, steps=0, targets=["c_attn"])
    assert model.transformer.h[0].attn.c_attn.fan_in_fan_out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target_modules", "(.+)+!"),
        ("exclude_modules", "(.+)+!"),
        ("rank_pattern", {"(.+)+!": 2}),
        ("alpha_pattern", {"(.+)+!": 2}),
        ("modules_to_save", ["(.+)+!"]),
        ("layers_pattern", "(.+)+!"),
        ("layers_pattern", ["(.+)+!"]),
    ],
)
def test_an_expression_that_matches_for_ever_is_one_line(name, value, tmp_path, monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 1)
    model, before = adapted(steps=0)
    before.save_pretrained(tmp_path)
    adapters.save_adapter(model, tmp_path)
    file = tmp_path / adapters.FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "layers_to_transform": [0], name: value}))
    load = (
        models.load_model
        if name != "target_modules"
        else functools.partial(model_files.load_checked_model, AutoModelForCausalLM)
    )
    with pytest.raises(DataError) as stopped:
        load(tmp_path)
    assert str(stopped.value) == f"{file}: {name}: '(.+)+!' takes more than 1 s to match, or 512 MiB"


@pytest.mark.parametrize("text", ["", "[]", "[" * 50_000, '{"rank_pattern": 7}'])
def test_an_adapter_config_that_is_none_is_one_line(text, tmp_path):
    model, before = adapted(steps=0)
    before.save_pretrained(tmp_path)
    adapters.save_adapter(model, tmp_path)
    (tmp_path / adapters.FILE).write_text(text)
    with pytest.raises(DataError, match=r"adapter_config\.json: cannot be read"):
        models.load_model(tmp_path)

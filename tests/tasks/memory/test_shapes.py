"""The number of weights by formula, against torch's own models; and what a size, a folder or params.yaml describes."""

import json

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from tasks.common.errors import StageError
from tasks.language.training.starting_model import build_llama_config
from tasks.memory import shapes, sources
from tests.conftest import PARAMS, SECTIONS
from tests.tasks.memory.saved import SIZES

LAYERS = {"num_hidden_layers": 3, "intermediate_size": 172}
GROUPED = {**SIZES, **LAYERS, "num_key_value_heads": 2}
CONFIGS = {
    "llama": LlamaConfig(**GROUPED),
    "tied": LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "biases": LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True),
    "head_dim": LlamaConfig(**GROUPED, head_dim=24),
    "mistral": MistralConfig(**GROUPED),
    "qwen2": Qwen2Config(**GROUPED),
    "qwen3": Qwen3Config(**GROUPED, head_dim=16),
    "gpt2": GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=128, vocab_size=100),
    "gpt2 wide": GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=64, vocab_size=100, n_inner=96),
    "gpt_neox": GPTNeoXConfig(**SIZES, **LAYERS),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_weights_and_adapters_are_those_of_the_model(config):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        shape = shapes.build_shape_from_config(config.to_dict(), "a model")
        assert shape.weights == model.num_parameters()
        assert shape.body == model.base_model.num_parameters()
        hidden = {*shape.matrices}
        inner = [p for name, p in model.named_parameters() if ".h." in name or ".layers." in name]
        assert shape.hidden() == sum(p.numel() for p in inner if p.dim() == 2)
        targets = [one.name for one in hidden]
        adapted = LoraConfig(r=3, target_modules=targets, fan_in_fan_out=config.model_type == "gpt2")
        inject_adapter_in_model(adapted, model)
    assert shape.adapter(3) == sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)


@pytest.mark.parametrize("shape", shapes.KNOWN, ids=lambda shape: shape.name)
def test_known_shapes_have_about_the_size_of_their_names(shape):
    named = shapes.SIZE.match(shape.name.rpartition("-")[2])
    assert named
    assert shape.weights == pytest.approx(float(named[1]) * shapes.UNITS[named[2]], rel=0.1)


def test_a_size_is_taken_exactly():
    for text, weights in (("8B", 8 * 10**9), ("0.5b", 5 * 10**8), ("350M", 350 * 10**6), ("400B", 4 * 10**11)):
        shape = shapes.estimate_shape_from_size(text)
        assert shape.weights == weights
        parts = shape.body + (0 if shape.tied else shape.embedding)
        assert parts == pytest.approx(weights, rel=1e-6), "the layers are stretched to it"
    assert "Llama-3-8B" in shapes.estimate_shape_from_size("8B").name
    assert [shapes.estimate_shape_from_size(text) for text in ("8", "B", "8 T", "0B", "-1B", "")] == [None] * 6


def test_an_architecture_without_a_formula_needs_its_files(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "falcon", **GROUPED}))
    with pytest.raises(StageError, match=r"model type falcon: its weights are not counted here; expected one of llama"):
        shapes.read_shape_from_folder(tmp_path)
    save_file({"a": torch.zeros(30, 10), "b": torch.zeros(7, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    assert sources.resolve_model_shape(str(tmp_path)).weights == 307


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("[", "config.json cannot be read"),
        ("[" * 100_000, "config.json cannot be read"),
        ('{"model_type": "llama"}', "no usable hidden_size"),
        ('{"model_type": "gpt2", "n_embd": 8, "n_head": 0}', "no usable"),
        ('{"model_type": "llama", "hidden_size": "wide", "num_attention_heads": 2}', "no usable"),
        ("[1]", "config.json cannot be read"),
    ],
)
def test_a_config_that_says_too_little_is_one_line(tmp_path, config, told):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(StageError) as found:
        sources.resolve_model_shape(str(tmp_path))
    assert told in str(found.value)


def test_params_describe_the_model_that_the_stage_builds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {name: SECTIONS[name].model_validate(PARAMS[name]) for name in ("pretrained", "tokenizer")}

    class Words:
        bos_token_id = eos_token_id = pad_token_id = 0

        def __len__(self):
            return PARAMS["tokenizer"]["vocabulary"]

    config = build_llama_config(given["pretrained"], Words())
    with torch.device("meta"):
        weights = AutoModelForCausalLM.from_config(config).num_parameters()
    assert sources.resolve_starting_model_shape(given).weights == weights
    config.vocab_size = 200  # what a small corpus makes of it
    config.save_pretrained("data/pretrained")
    assert sources.resolve_starting_model_shape(given).vocabulary == 200
    own = {"init": "directory", "path": "data/pretrained"}
    given["pretrained"] = SECTIONS["pretrained"].model_validate(PARAMS["pretrained"] | own)
    assert sources.resolve_starting_model_shape(given).vocabulary == 200


@pytest.mark.parametrize(("text", "size"), [("80GB", 80 * 10**9), ("1.5 GiB", 1610612736), ("24gb", 24 * 10**9)])
def test_memory_as_it_is_written(text, size):
    assert sources.parse_memory_size(text) == size


@pytest.mark.parametrize("text", ["80", "GB", "0GB", "80 TB", "-1GB"])
def test_memory_in_no_known_unit(text):
    with pytest.raises(StageError, match=r"expected a size such as 80GB or 24GiB"):
        sources.parse_memory_size(text)

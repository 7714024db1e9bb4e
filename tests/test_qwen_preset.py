"""The preset for one GPU with 24 GB: its arithmetic, and its path with random weights in Qwen2.5-0.5B's shape at two
layers.

It was not run on a GPU here. What can be tried without one is tried: the template and its end token, bfloat16 with fp32
weights besides, gradient checkpointing, batches in parts, and what becomes of the tables.
"""

from pathlib import Path

import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from flows.params import editing
from tasks.common import models, tables
from tasks.language import grpo, sft
from tasks.language.configs.grpo import GrpoConfig
from tasks.language.configs.sft import SftConfig
from tasks.language.data import forms
from tasks.language.tables.problems import Demonstrations, Prompts
from tasks.memory import shapes
from tasks.preflight import estimates
from tests import repository
from tests.conftest import SECTIONS
from tests.tasks.chats import chat_tokenizer

ROOT = Path(__file__).parent.parent
SHAPE = {  # of Qwen2.5-0.5B's config.json
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
}


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """params.yaml with the preset laid over it."""
    file = repository.write_params(tmp_path_factory.mktemp("qwen"))
    editing.edit_params(file.parent, SECTIONS, editing.load_preset_edits(ROOT, SECTIONS, "qwen-gsm8k"))
    return repository.sections(YAML(typ="safe").load(file))


def test_the_memory_that_it_names_is_that_of_the_model(preset):
    with torch.device("meta"):
        weights = Qwen2ForCausalLM(Qwen2Config(**SHAPE)).num_parameters()
    assert weights == pytest.approx(0.494e9, rel=0.01)
    shape = shapes.build_shape_from_config({**SHAPE, "model_type": "qwen2"}, "Qwen2.5-0.5B")
    assert shape.weights == weights
    configs = {name: kind.model_validate(preset[name]) for name, kind in SECTIONS.items()}
    examples = {"sft": (5000, 300), "dpo": (2000, 300), "ppo": (2000, 300), "grpo": (2000, 300)}
    told = list(estimates.iterate_cost_estimate_lines(configs, [*examples], shape, examples, {}))
    memory = {line.partition(":")[0]: float(line.rpartition("about ")[2].split()[0]) for line in told}
    assert memory.keys() == examples.keys()
    assert all(8.5 < memory[name] < 24 for name in memory), memory
    assert all(preset[name]["training"]["precision"] == "bf16" for name in examples)


@pytest.mark.slow
def test_its_path_with_random_weights(preset, tmp_path):
    """SFT learns a sentence, and GRPO takes two steps on it, all in the preset's precision and parts."""
    words = chat_tokenizer("ChatML")
    torch.manual_seed(0)
    small = {**SHAPE, "num_hidden_layers": 2, "vocab_size": len(words), "max_position_embeddings": 1024}
    models.save_model(Qwen2ForCausalLM(Qwen2Config(**small)), words, tmp_path / "model")
    rows = [{"problem_id": f"a{n}", "question": f"{n} + 1?"} for n in range(8)]
    table = pd.DataFrame(forms.build_demonstration_row(row, f"It is\n#### {n + 1}") for n, row in enumerate(rows))
    for part in ("train", "validation"):
        tables.write_table(Demonstrations, table, tmp_path / f"demonstrations/{part}.parquet")
    own = SftConfig.model_validate(preset["sft"] | {"batch_size": 8, "epochs": 12, "learning_rate": 0.001})
    assert own.training.gradient_checkpointing
    assert own.training.accumulate == 4
    sft.run(own, tmp_path / "model", tmp_path / "demonstrations", tmp_path / "sft", tmp_path / "sft.csv")
    loss = pd.read_csv(tmp_path / "sft.csv")["loss"]
    assert loss.iloc[-1] < 0.5 * loss.iloc[0]
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "sft")
    assert saved.dtype == torch.float32, "the weights beside the bfloat16 ones are what is kept"

    asked = [
        {
            "prompt_id": row["problem_id"],
            "dataset": "own",
            "question": row["question"],
            "solution": "",
            "answer": str(n),
        }
        for n, row in enumerate(rows, 1)
    ]
    for part in ("prompts", "validation"):
        tables.write_table(Prompts, pd.DataFrame(asked).assign(reward="policy"), tmp_path / f"mixture/{part}.parquet")
    size = {"steps": 2, "prompts_per_step": 4, "samples": 4, "max_new_tokens": 16, "micro_batch": 4}
    policy = GrpoConfig.model_validate(preset["grpo"] | size | {"evaluate_every": 0, "show_every": 0})
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    found = grpo.run(
        policy, tmp_path / "sft", tmp_path / "mixture", nothing, nothing, tmp_path / "grpo", tmp_path / "grpo.csv"
    )
    assert 0 <= found["rewards/verifiable"] <= 1
    assert (tmp_path / "grpo/model.safetensors").is_file()

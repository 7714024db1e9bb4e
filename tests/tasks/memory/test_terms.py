"""Each term against torch's own tensors, and the sums by hand."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from tasks.algorithms.common import distributed
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.common.precision import convert_weights_to_precision, get_master_weight
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.common import adapters
from tasks.memory import shapes, terms
from tests.tasks.memory.saved import SIZES, saved_bytes, shape, workload

LAYERS = {"num_hidden_layers": 3, "intermediate_size": 172}
CONFIGS = {
    "llama": LlamaConfig(**SIZES, **LAYERS),
    "grouped": LlamaConfig(**SIZES, **LAYERS, num_key_value_heads=2),
    "qwen2": Qwen2Config(**SIZES, **LAYERS, num_key_value_heads=2),
    "qwen3": Qwen3Config(**SIZES, **LAYERS, num_key_value_heads=2, head_dim=16),
    "gpt2": GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=128, vocab_size=100),
    "gpt_neox": GPTNeoXConfig(**SIZES, **LAYERS),
}
ROWS, LENGTH = 4, 32
TOKENS = 8 * ROWS * LENGTH  # bytes of the tokens themselves, which torch keeps for the embeddings


def by_name(found):
    return {term.name: term.bytes for term in found}


def positions(config, size):
    """Bytes of the cosines and sines of rotary positions, of one row for all."""
    turned = {"gpt2": 0, "gpt_neox": 4}.get(config.model_type, 16)
    return 2 * LENGTH * turned * size


@pytest.mark.parametrize("size", [4, 2])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_layers_keep_what_the_formula_says_to_the_byte(config, size):
    model = AutoModelForCausalLM.from_config(config).to({4: torch.float32, 2: torch.bfloat16}[size]).eval()
    inputs = {"input_ids": torch.ones(ROWS, LENGTH, dtype=torch.long), "use_cache": False}
    kept = saved_bytes(model, lambda: model(**inputs))
    own = shape(model)
    layers = own.layers * terms.count_layer_bytes_per_token(own, size) + terms._count_norm_bytes_per_token(
        own, size, False
    )
    extra = positions(config, size) + TOKENS + (8 * LENGTH if config.model_type == "gpt2" else 0)
    assert kept == ROWS * LENGTH * layers + extra


@pytest.mark.parametrize("name", ["llama", "grouped"])
def test_padding_adds_masks_and_keys_for_all_heads(name):
    model = AutoModelForCausalLM.from_config(CONFIGS[name]).eval()
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    mask[0, -3:] = 0
    inputs = {"input_ids": torch.ones_like(mask), "attention_mask": mask, "use_cache": False}
    kept = saved_bytes(model, lambda: model(**inputs))
    assert (
        terms.compute_activation_bytes(workload("sft", shape(model)))[0] == kept - positions(CONFIGS[name], 4) - TOKENS
    )


@pytest.mark.parametrize("name", ["llama", "grouped", "qwen2"])
def test_answers_that_share_a_prompt_keep_its_keys_beside_their_own(name):
    """The pass that GRPO, PPO, DPO and the reward model make: 2 prompts of 12 tokens with 4 answers of 20 each."""
    model = AutoModelForCausalLM.from_config(CONFIGS[name]).eval()
    owner = [0, 0, 0, 0, 1, 1, 1, 1]
    batch = make_completions([[5] * 12, [6] * 12], owner, [[7] * 20] * 8, pad=0)
    kept = saved_bytes(model, lambda: compute_token_logps(model, batch))
    work = workload("grpo", shape(model), batch=8, samples=4, prompt=12, answer=20, whole=False)
    log_probabilities = 4 * 8 * 20 * 100
    turned = 2 * 4 * 16 * (2 * 12 + 8 * 19)  # cosines and sines of both passes
    indices = 8 * (2 * 12 + 2 * 8 * 20 + 8) + 8 * 20  # tokens, twice those of the answers, owners, and the mask
    assert kept == terms.compute_activation_bytes(work)[0] + log_probabilities + turned + indices


@pytest.mark.parametrize("checkpointing", [False, True])
def test_recomputed_layers_keep_their_inputs(checkpointing):
    own = shapes.build_shape_from_config(CONFIGS["llama"].to_dict(), "a model")
    work = workload("sft", own, checkpointing=checkpointing)
    layer = ROWS * LENGTH * terms.count_layer_bytes_per_token(own, 4) + ROWS * LENGTH * LENGTH * 4
    last = ROWS * LENGTH * terms._count_norm_bytes_per_token(own, 4, False)
    inputs = 3 * ROWS * LENGTH * 64 * 4
    assert terms.compute_activation_bytes(work)[0] == (inputs + layer + last if checkpointing else 3 * layer + last)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "pure_bf16"])
@pytest.mark.parametrize("rank", [0, 2])
def test_weights_gradients_and_moments_are_those_of_a_step(optimizer, precision, rank):
    model = AutoModelForCausalLM.from_config(CONFIGS["qwen2"])
    if rank:
        if precision != "fp32":
            model.to(torch.bfloat16)
        adapters.add_adapter(model, rank, 2 * rank, 0.0, "all-linear")
    convert_weights_to_precision(model, precision)
    step = Optimizer(model, 0.01, 1, 1.0, OptimizerSettings(optimizer, "constant", 0.0, 1.0, (0.9, 0.9), 0.0))
    model(input_ids=torch.arange(8).view(1, 8), use_cache=False).logits.logsumexp(-1).sum().backward()
    gradients = sum(
        get_master_weight(p).grad.nbytes for p in model.parameters() if get_master_weight(p).grad is not None
    )
    step.step()
    moments = sum(part.nbytes for name, part in step.state_dict().items() if not name.endswith(("step", "steps_taken")))
    held = {
        "weights": sum(p.nbytes for p in model.parameters()),
        "masters in fp32": sum(
            get_master_weight(p).nbytes for p in model.parameters() if get_master_weight(p) is not p
        ),
        "gradients": gradients,
        "optimizer": moments,
    }
    work = workload("sft", shape(model), optimizer=optimizer, precision=precision, rank=rank)
    told = by_name(terms._list_training_state_terms(work))
    assert {name: told[name] for name in held} == held


def test_the_lectures_count():
    """8 billion weights in fp16 are 16 GB. PPO: 3 x 16 policy + 16 reference + 3 x 16 critic + 16 reward model; GRPO
    has no critic.
    """
    own = shapes.estimate_shape_from_size("8B")
    for stage, total in (("ppo", 128), ("grpo", 80)):
        work = workload(stage, own, precision="fp16", whole=False, critic=stage == "ppo", reference=True, scorer=own)
        assert sum(terms.estimate_lecture_memory(work).values()) == total * 10**9
        fuller = by_name(terms.list_memory_terms(work))
        assert terms.estimate_lecture_memory(work).keys() <= fuller.keys(), "each of their terms has a row in the table"
        assert terms.compute_peak_memory(terms.list_memory_terms(work))[0] > total * 10**9 + fuller["gradients"]


def test_logits_that_are_too_many_stay_in_chunks():
    own = shapes.estimate_shape_from_size("0.5B")
    few, many = (workload("sft", own, batch=rows, answer=100) for rows in (4, 5))
    assert 4 * 100 * own.vocabulary < terms.LARGE < 5 * 100 * own.vocabulary
    assert by_name(terms.list_memory_terms(few))["logits"] == 3 * 4 * 400 * own.vocabulary
    assert by_name(terms.list_memory_terms(many))["logits"] == 3 * 4 * 500 * 896 + 4 * own.embedding + 8 * terms.CHUNK


def test_what_stands_together():
    """The sum has what is always there, and the larger of passes and sampling."""
    found = [terms.Term(name, size, when, "") for name, size, when in (("a", 5, "always"), ("b", 3, "training"))]
    assert terms.compute_peak_memory(found) == (8, "training")
    assert terms.compute_peak_memory([*found, terms.Term("c", 4, "sampling", "")]) == (9, "sampling")


@given(
    st.integers(1, 6).map(lambda n: 2**n), st.sampled_from(["fp32", "bf16", "pure_bf16"]), st.sampled_from([0, 8]),
    st.sampled_from(["sft", "dpo", "grpo", "ppo", "reward_model"]), st.booleans(),
)  # fmt: skip
def test_what_needs_less_never_counts_more(batch, precision, rank, stage, checkpointing):
    own = shapes.estimate_shape_from_size("50M")
    pairs = {"whole": stage == "sft", "samples": 1 if stage == "sft" else 2, "prompt": 0 if stage == "sft" else 40}
    work = workload(
        stage, own, batch=batch, precision=precision, rank=rank, checkpointing=checkpointing, critic=stage == "ppo", **pairs  # noqa: E501
    )  # fmt: skip

    def total(**changes):
        return terms.compute_peak_memory(terms.list_memory_terms(replace(work, **changes)))[0]

    assert total(accumulate=2) <= total()
    assert total(answer=16) < total()
    assert total(devices=2, shard="optimizer") <= total(devices=2) <= total() + 4 * terms.BUCKET
    assert total(device="cpu") >= total(), "a heap has holes"
    assert total(reference=True) >= total()


def test_devices_divide_the_batch_and_the_moments_where_they_are_asked_to():
    own = shapes.estimate_shape_from_size("50M")
    one = workload("sft", own, batch=32)
    four = replace(one, devices=4)
    assert (one.rows, four.rows, four.parts, replace(four, accumulate=4).rows) == (32, 8, 1, 2)
    alone, shared, sharded = (
        by_name(terms.list_memory_terms(work)) for work in (one, four, replace(four, shard="optimizer"))
    )
    assert shared["activations"] * 4 == alone["activations"]
    assert shared["weights"] == alone["weights"]
    assert terms.BUCKET == distributed.BUCKET
    assert shared["bucket of gradients"] == 4 * distributed.BUCKET < alone["gradients"]
    assert sharded == shared | {"optimizer": shared["optimizer"] / 4}


@pytest.mark.parametrize(("precision", "row"), [("fp32", 4), ("bf16", 4), ("pure_bf16", 2)])
def test_devices_that_divide_the_model_have_rows_of_all_and_the_whole_of_little(precision, row):
    own = shapes.estimate_shape_from_size("8B")
    work = workload("grpo", own, batch=32, samples=8, sampled=32, precision=precision, devices=8)
    whole, divided = (by_name(terms.list_memory_terms(replace(work, shard=shard))) for shard in ("", "model"))
    assert divided["weights"] == divided["gradients"] == row * own.weights / 8
    assert divided["optimizer"] == whole["optimizer"] / 8
    assert divided["gathered policy"] == whole["weights"], "sampling needs all"
    assert own.layer * 2 < divided["gathered weights"] / terms.TRAINED[precision][0] < own.weights / 4
    assert not {"masters in fp32", "bucket of gradients"} & divided.keys()
    assert divided["weights as they are read"] == row * own.weights
    found = terms.list_memory_terms(replace(work, shard="model"))
    assert (
        terms.compute_peak_memory(found)[0]
        < terms.compute_peak_memory(terms.list_memory_terms(replace(work, shard="optimizer")))[0]
    )
    assert by_name(terms.list_memory_terms(replace(work, shard="model", devices=1))) == by_name(
        terms.list_memory_terms(replace(work, devices=1))
    )

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MistralConfig,
    MistralForCausalLM,
)
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from flows.params.editing import check_params_consistency
from flows.params.files import ParameterError
from tasks.common.errors import StageError
from tasks.language.configs.pretrained import RECURRENT
from tasks.language.training.architectures import (
    check_architecture_config,
    check_packing_support,
    check_shared_prompt_sampling,
)
from tests import repository
from tests.conftest import SECTIONS
from tests.tasks.language.test_pretrained import pretrain
from tests.tasks.tiny import ARCHITECTURES, SIZES, gpt2, llama

ROOT = Path(__file__).parents[4]
SMALL = {
    "mamba": {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 32, "state_size": 4},
    "rwkv": {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 32, "context_length": 32},
}


@pytest.fixture(params=SMALL)
def recurrent(request, tmp_path):
    """A folder with a recurrent model and its weights."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(request.param, **SMALL[request.param]))
    model.save_pretrained(tmp_path / "raw")
    return request.param, tmp_path / "raw"


def test_a_recurrent_model_is_one_line_before_it_is_copied(made, recurrent, tmp_path):
    kind, raw = recurrent
    with pytest.raises(StageError) as stopped:
        pretrain(made, tmp_path / "out", init="directory", raw=raw)
    assert str(stopped.value) == (
        f"{raw}: model type {kind} is stateful (recurrent, or of linear attention); expected an attention model, "
        "whose key-value cache has a place "
        "for each token of a row"
    )
    assert not (tmp_path / "out").exists()


@pytest.fixture
def project(tmp_path):
    """A folder with params.yaml, naming raw/ as the model to start from."""
    text = repository.params_text().replace("init: scratch ", "init: directory ")
    (tmp_path / "params.yaml").write_text(text.replace("path: data/raw/models     #", "path: raw #", 1))
    return tmp_path


def told(project, stages):
    with pytest.raises(ParameterError) as stopped:
        check_params_consistency(project, SECTIONS, stages, stages)
    return str(stopped.value)


def test_a_recurrent_model_is_known_before_anything_runs(project, recurrent):
    check_params_consistency(project, SECTIONS, {"sft"}, {"sft"})
    assert told(project, {"sft", "pretrained"}) == (
        f"params.yaml: pretrained.path: raw holds a model of type {recurrent[0]}, which is stateful (recurrent, or "
        "of linear attention); expected an "
        "attention model, whose key-value cache has a place for each token of a row"
    )


def test_a_folder_without_a_model_is_known_before_anything_runs(project):
    wanted = "expected a model in Hugging Face layout"
    assert told(project, {"pretrained"}) == f"params.yaml: pretrained.path: raw holds no config.json; {wanted}"
    (project / "raw").mkdir()
    (project / "raw/config.json").write_text("{}")
    line = f"params.yaml: pretrained.path: raw holds a config.json without a model_type; {wanted}"
    assert told(project, {"pretrained"}) == line
    (project / "raw/config.json").write_text(json.dumps({"model_type": "llama"}))
    check_params_consistency(project, SECTIONS, {"pretrained"}, {"pretrained"})


def test_the_list_of_recurrent_types_is_transformers_own():
    """The types are read from the sources, since importing all models takes minutes."""
    models = Path(find_spec("transformers").origin).parent / "models"

    def says_so(kind):
        module = model_type_to_module_name(kind)
        source = models / module / f"modeling_{module}.py"
        return source.is_file() and "_is_stateful = True" in source.read_text()

    assert sorted(RECURRENT) == sorted(filter(says_so, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attention_models_are_fine(name):
    check_shared_prompt_sampling(name, ARCHITECTURES[name]())


def test_a_cache_that_forgets_is_noticed():
    model = llama()
    forward = model.forward
    model.forward = lambda input_ids, **more: forward(
        input_ids, **{name: value for name, value in more.items() if name in ("use_cache", "logits_to_keep")}
    )
    with pytest.raises(StageError, match=r"^here: model type llama: an answer has other probabilities behind a prompt"):
        check_shared_prompt_sampling("here", model)


def test_a_model_without_a_cache_is_one_line():
    model = llama()
    forward = model.forward
    model.forward = lambda *all_, **more: forward(*all_, **{**more, "use_cache": False, "past_key_values": None})
    with pytest.raises(StageError) as stopped:
        check_shared_prompt_sampling("here", model)
    assert str(stopped.value).startswith("here: model type llama cannot be used here (AttributeError: ")
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attention_models_keep_packed_documents_apart(name):
    check_packing_support(name, ARCHITECTURES[name](), 64)


@pytest.mark.parametrize("ignored", ["attention_mask", "position_ids"])
def test_a_model_that_does_not_keep_them_apart_is_noticed(ignored):
    model = gpt2()  # with learned positions, which are not relative
    forward = model.forward

    def forgetful(input_ids, **given):
        plain = {"attention_mask": torch.ones_like(input_ids), "position_ids": None}[ignored]
        return forward(input_ids, **{**given, **({ignored: plain} if ignored in given else {})})

    model.forward = forgetful
    with pytest.raises(StageError) as stopped:
        check_packing_support("here", model, 64)
    assert str(stopped.value) == (
        "here: model type gpt2: a document has other probabilities behind another one in a row than alone; "
        "expected sft.packing false"
    )


def test_a_window_of_attention_has_to_hold_a_packed_row():
    """A window smaller than the row cannot be kept to under a mask of our own, since models apply theirs to ordinary
    masks only.
    """
    torch.manual_seed(0)
    sizes = {name: value for name, value in SIZES.items() if value is not None}
    model = MistralForCausalLM(MistralConfig(**sizes, sliding_window=16)).eval()
    with pytest.raises(StageError) as stopped:
        check_packing_support("here", model, 17)
    assert str(stopped.value) == (
        "here: the model attends to 16 tokens at most (config.json: sliding_window), which rows of 17 packed "
        "tokens would not "
        "keep to; expected sft.packing false, or sft.max_length at most 16"
    )
    check_packing_support("here", model, 16)


def test_attention_in_chunks_has_to_hold_a_packed_row():
    """Llama 4's layers see the tokens of their own chunk only; under a mask of our own they would see the whole
    document.
    """
    torch.manual_seed(0)
    experts = {"num_local_experts": 2, "intermediate_size_mlp": 64, "head_dim": 8}
    model = Llama4ForCausalLM(Llama4TextConfig(**SIZES, **experts, attention_chunk_size=8)).eval()
    with pytest.raises(StageError) as stopped:
        check_packing_support("here", model, 9)
    assert str(stopped.value) == (
        "here: the model attends to 8 tokens at most (config.json: attention_chunk_size), which rows of 9 packed "
        "tokens would "
        "not keep to; expected sft.packing false, or sft.max_length at most 8"
    )
    check_packing_support("here", model, 8)


def test_a_model_that_takes_no_such_mask_is_one_line():
    """Bloom tells positions by its mask, which it expects to be one number a token."""
    model = BloomForCausalLM(BloomConfig(vocab_size=16, hidden_size=32, n_layer=1, n_head=4)).eval()
    with pytest.raises(StageError) as stopped:
        check_packing_support("here", model, 64)
    assert str(stopped.value) == (
        "here: model type bloom takes no mask that keeps packed documents apart (ValueError: too many values to unpack "
        "(expected 2)); expected sft.packing false"
    )


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"model_type": "nothing_known"}, "config.json: The checkpoint you are trying to load has model type"),
        ({"model_type": "vit"}, "model type vit is no causal language model, but one is expected"),
    ],
)
def test_what_is_no_causal_language_model_is_one_line(tmp_path, config, line):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(StageError) as stopped:
        check_architecture_config({"pretrained_model_name_or_path": tmp_path, "local_files_only": True})
    assert str(stopped.value).startswith(f"{tmp_path}: {line}")
    assert "\n" not in str(stopped.value)

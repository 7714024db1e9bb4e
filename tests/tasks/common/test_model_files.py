"""Models and tokenizers from strangers: each fault gives a line that names the file, before any training."""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.chat import conversation
from tasks.common import model_files, models
from tasks.common.errors import DataError, StageError
from tasks.language import pretrained
from tasks.language.rewards import reward_model_files
from tests.conftest import tiny


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    """A sound model of two layers in a folder of its own."""
    return Path(shutil.copytree(made / "pretrained", tmp_path / "model"))


def edit_json(file: Path, **changes: object) -> None:
    content = json.loads(file.read_text())
    content.update(changes)
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def more_layers(folder: Path) -> None:
    edit_json(folder / "config.json", num_hidden_layers=3, layer_types=None)


def fewer_layers(folder: Path) -> None:
    edit_json(folder / "config.json", num_hidden_layers=1, layer_types=None)


def a_million_layers(folder: Path) -> None:
    edit_json(folder / "config.json", num_hidden_layers=10**6, layer_types=None)


def a_commanding_name(folder: Path) -> None:
    edit_weights(folder, lambda weights: weights.update({"\x1b]0;title\x07a\nb": torch.zeros(1)}))


def a_pickled_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "target_modules": ["q_proj"]}')
    (folder / "adapter_model.bin").touch()


def another_architecture(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="gpt2", architectures=["GPT2LMHeadModel"])


def another_width(folder: Path) -> None:
    edit_json(folder / "config.json", intermediate_size=48)


def not_a_number(folder: Path) -> None:
    edit_weights(folder, lambda weights: weights["model.norm.weight"].fill_(torch.nan))


def a_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def torn_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)


def a_lone_adapter(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "some/base"}')
    save_file({"base_model.model.lm_head.lora_A.weight": torch.zeros(1)}, folder / "adapter_model.safetensors")


def a_lone_adapter_without_config(folder: Path) -> None:
    a_lone_adapter(folder)
    (folder / "config.json").unlink()


def an_adapter_of_no_name(folder: Path) -> None:
    a_lone_adapter_without_config(folder)
    (folder / "adapter_config.json").write_text("[]")


def an_end_that_is_no_token(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": ["</s>"]}')


def settings_in_a_list(folder: Path) -> None:
    (folder / "generation_config.json").write_text("[]")


def config_of_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[1, 2]")


def torn_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ')


def odd_sizes(folder: Path) -> None:
    edit_json(folder / "config.json", hidden_size=-1)


def torn_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


def no_tokenizer(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()
    for file in folder.glob("*.jinja"):
        file.unlink()


def no_end_token(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", eos_token=None)


def larger_vocabulary(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 5000, "content": "<|late|>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))


def template(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "chat_template.jinja").write_text(text)

    change.__name__ = f"template {text[:30]}"
    return change


WHOLE = "{{ messages[0].content }}{% if messages|length > 1 %}{{ messages[1].content }}{% endif %}"
BESIDE = (
    "expected a copy of the base model's folder, with the two files of the adapter in it: they are merged "
    "when it is loaded"
)
FAULTS: dict[Callable[[Path], None], str] = {
    more_layers: r"lacks weights of the model that config.json describes: model.layers.2.\S+, .* and \d+ more",
    fewer_layers: r"has weights that the model of config.json does not: model.layers.1.\S+, .* and \d+ more",
    another_architecture: ".*",
    another_width: "has weights of other shapes than config.json says",
    a_million_layers: r"config.json describes 1000000 layers, and the folder holds \d+ weights",
    a_commanding_name: r"has weights that the model of config.json does not: \\x1b\]0;title\\x07a b",
    a_pickled_adapter: "holds adapter_config.json, but no adapter_model.safetensors, as which an adapter is expected",
    a_lone_adapter: rf"holds a LORA adapter alone \(adapter_config.json\); its base model is some/base; {BESIDE}",
    a_lone_adapter_without_config: r"holds a LORA adapter alone \(adapter_config.json\); its base model is "
    rf"some/base; {BESIDE}",
    an_adapter_of_no_name: r"holds an adapter alone \(adapter_config.json\); adapter_config.json does not name its "
    r"base model; .*",
    an_end_that_is_no_token: r"generation_config.json: eos_token_id is \"\['</s>'\]\"; expected a token, or several",
    settings_in_a_list: r"generation_config.json: cannot be loaded \(.*",
    not_a_number: "has weights that are not finite numbers: model.norm.weight",
    a_pickle: "has its weights in pytorch_model.bin, a pickle, which can run any code; expected model.safetensors",
    no_weights: "holds no weights; expected model.safetensors",
    torn_weights: r"cannot be loaded \(.*",
    huge_header: r"cannot be loaded \(.*",
    config_of_a_list: ".*",
    torn_config: ".*",
    odd_sizes: ".*",
    torn_tokenizer: r"cannot be loaded \(.*",
    no_tokenizer: r"cannot be loaded \(.*",
    no_end_token: "the tokenizer has no end token; .*",
    larger_vocabulary: r"the tokenizer's token 400 \('<\|late\|>'\) is beyond the model's \d+ embeddings; .*",
    template("{{ messages[1].content }}"): "its chat template .*",
    template("Answer this:"): "its chat template drops the question or the answer",
    template("{{ messages[0].content }}"): "its chat template drops the question or the answer",
    template("{% for"): r"its chat template cannot be rendered \(.*",
    template("{{ raise_exception('no\x1b[2J') }}" + WHOLE): r"its chat template cannot be rendered \(.*no\\x1b\[2J\)",
    template(
        "{% for i in range(1000) %}{{ 'x' * 100000 }}{% endfor %}" + WHOLE
    ): r".*it makes 100000035 characters of a question of 35\)",
    template(
        "{% set a = 'a' * 4000000000 %}" + WHOLE
    ): r"its chat template (cannot be rendered \(MemoryError|takes more).*",
    template("{{ ().__class__.__bases__[0].__subclasses__() }}" + WHOLE): r"its chat template cannot be rendered \(.*",
}


def start_from(folder: Path, made: Path, out: Path) -> None:
    config = tiny(pretrained.PretrainedConfig, "pretrained").model_copy(update={"init": "directory"})
    pretrained.run(config, made / "corpus", made / "tokenizer", folder, out, out.with_suffix(".csv"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_faulty_model_is_one_line(model: Path, made: Path, tmp_path: Path, fault: Callable[[Path], None]) -> None:
    fault(model)
    with pytest.raises(StageError) as caught:
        start_from(model, made, tmp_path / "out")
    line = str(caught.value)
    assert re.fullmatch(rf"(params.yaml: pretrained.path: )?{re.escape(str(model))}:? {FAULTS[fault]}", line), line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("templates_in_a_process")
def test_a_template_without_an_end_is_stopped(
    model: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jinja limits a single range, but not nested ranges."""
    monkeypatch.setattr(model_files, "SECONDS", 4)
    endless = (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% "
        "endfor %}{% endfor %}"
    )
    (model / "chat_template.jinja").write_text(endless + WHOLE)
    began = time.monotonic()
    with pytest.raises(StageError, match=r"its chat template (does not come to an end|takes more than)"):
        start_from(model, made, tmp_path / "out")
    assert time.monotonic() - began < 60


def test_a_sound_one_is_taken(model: Path, made: Path, tmp_path: Path) -> None:
    start_from(model, made, tmp_path / "out")
    assert load_file(tmp_path / "out/model.safetensors").keys() == load_file(model / "model.safetensors").keys()


SAMPLING = {"do_sample": False, "temperature": 0.6, "top_p": 0.9, "top_k": 20}
SETTINGS: dict[
    str, tuple[dict[str, object], dict[str, object]]
] = {  # of generation_config.json, and what is kept of them
    "as Llama 2 had it": ({**SAMPLING, "pad_token_id": 0}, {"do_sample": False, "pad_token_id": 0}),
    "as Vicuna had it": ({"temperature": 0.9, "top_p": 0.6, "max_length": 4096}, {"max_length": 4096}),
    "beams that are none": ({"num_beams": 1, "length_penalty": 0.6}, {}),
    "several greedy answers": ({"num_return_sequences": 3, "max_new_tokens": 9}, {"max_new_tokens": 9}),
    "no answer": ({"max_new_tokens": 0, "pad_token_id": 1}, {"pad_token_id": 1}),
    "no padding": ({"pad_token_id": -1}, {}),
    "sound ones": ({"do_sample": True, "temperature": 0.6}, {"do_sample": True, "temperature": 0.6}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_do_not_fit_together_are_left_out(
    name: str, model: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is taken, what ends an answer is kept, and a line says what is not; the written model can be written
    again.
    """
    given, kept = SETTINGS[name]
    ends = sorted({0, model_files.load_tokenizer(model).eos_token_id, 5})
    (model / "generation_config.json").write_text(json.dumps({**given, "eos_token_id": ends}))
    start_from(model, made, tmp_path / "out")
    written = json.loads((tmp_path / "out/generation_config.json").read_text())
    del written["transformers_version"]
    assert written == {**kept, "eos_token_id": ends}
    left = sorted({*given} - {*kept})
    line = f"{model}: generation_config.json: settings that do not fit together are left out: {', '.join(left)}\n"
    assert (line if left else "not read") in capsys.readouterr().err or not left
    again = models.load_model(tmp_path / "out")
    again.generation_config.eos_token_id = 5
    again.save_pretrained(tmp_path / "again")


def test_settings_in_an_old_models_config_are_read_as_well(model: Path, made: Path, tmp_path: Path) -> None:
    (model / "generation_config.json").unlink()
    edit_json(model / "config.json", temperature=0.6, eos_token_id=[1, 5], do_sample=False)
    start_from(model, made, tmp_path / "out")
    written = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert written["eos_token_id"][-1] == 5
    assert "temperature" not in written


def test_rows_without_a_token_are_never_sampled(model: Path, made: Path, tmp_path: Path) -> None:
    """Qwen's models have hundreds of them. Every way to load a model knows them, and writing it keeps them."""
    tokens = len(model_files.load_tokenizer(model))
    wide = models.load_model(model)
    wide.resize_token_embeddings(tokens + 3)
    with torch.no_grad():
        wide.get_output_embeddings().weight[tokens:] = 9.0
    wide.save_pretrained(model)
    start_from(model, made, tmp_path / "out")
    loaded = models.load_model(tmp_path / "out")
    judge = shutil.copytree(tmp_path / "out", tmp_path / "judge")
    edit_json(judge / "config.json", reward_beta=1.0)
    talk = conversation.start_model_conversation(model, conversation.ChatSampling(0, 4, 1.0)).model
    words = model_files.load_tokenizer(model)
    for one in (loaded, talk, reward_model_files.load_reward_model(judge)):
        logits = one(input_ids=torch.tensor([[1, 2]]), use_cache=False).logits
        assert logits.shape[-1] == tokens + 3
        assert logits[..., tokens:].eq(-torch.inf).all()
        assert logits[..., :tokens].isfinite().all()
    models.save_model(loaded, words, tmp_path / "again")
    for folder in (tmp_path / "out", tmp_path / "again"):
        weights = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
        assert weights.shape[0] == tokens + 3
        assert weights[tokens:].eq(9.0).all()


def test_nobody_is_asked_whether_remote_code_may_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    edit_json(
        model / "tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.Own", "own.Own"]}
    )
    edit_json(
        model / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}
    )
    monkeypatch.setattr("builtins.input", lambda _: "y")
    for load in (models.load_tokenizer, models.load_model):
        with pytest.raises(ValueError, match="trust_remote_code"):
            load(model)
    for read in (model_files.load_tokenizer, model_files.load_model_config, reward_model_files.load_reward_model):
        with pytest.raises(DataError, match=r"cannot be loaded \(ValueError: "):
            read(model)
    assert not (tmp_path / "ran").exists()


def test_a_template_is_rendered_in_a_process_of_its_own(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here in a fork that ends as the process of this command would; the slow test above starts it."""
    tokenizer, started = model_files.load_tokenizer(model), []
    tokenizer.chat_template = "{{ raise_exception('no') }}" + WHOLE
    run = model_files.subprocess.run

    def noted(command: list[str], **options: Any) -> Any:
        started.append((command, options["timeout"], options["capture_output"], options["text"], options["check"]))
        return run(command, **options)

    monkeypatch.setattr(model_files.subprocess, "run", noted)
    with pytest.raises(DataError, match=r"its chat template cannot be rendered \(TemplateError: no\)$"):
        model_files.check_tokenizer(model, tokenizer, len(tokenizer))
    command = [sys.executable, "-m", "tasks.common.model_files"]
    assert started == [(command, 3 * model_files.SECONDS, True, True, False)]


def test_of_several_templates_the_default_is_taken(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    given = [{"name": "tools", "template": "T"}, {"name": "default", "template": WHOLE}]
    edit_json(model / "tokenizer_config.json", chat_template=given)
    tokenizer = model_files.load_tokenizer(model)
    assert tokenizer.chat_template == WHOLE
    model_files.check_tokenizer(model, tokenizer, len(tokenizer))
    edit_json(model / "tokenizer_config.json", chat_template=given[:1])
    with pytest.raises(DataError, match="cannot be loaded"):
        model_files.load_tokenizer(model)

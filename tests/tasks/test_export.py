"""`python -m tasks.export`: what is copied, what is refused, and that it loads as others load it."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, GenerationConfig, LlamaForCausalLM

from tasks import export, metrics
from tasks.common import adapters, models
from tasks.common.errors import DataError
from tasks.language.rewards import reward_model_files
from tests.tasks import forks
from tests.tasks.chats import chat_tokenizer
from tests.tasks.tiny import llama


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A folder to export to; chat templates are rendered without a fresh process."""
    forks.render_templates(monkeypatch)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_reward_model_loads_as_a_classifier_and_scores_as_before(ready, out):
    facts = export.export_model(ready / "reward_model", out)
    assert (facts["kind"], facts["architecture"]) == ("classifier", "LlamaForSequenceClassification")
    tokens = torch.tensor([AutoTokenizer.from_pretrained(out).encode("Question? Answer.")])
    found = [
        AutoModelForSequenceClassification.from_pretrained(path)(tokens).logits
        for path in (ready / "reward_model", out)
    ]
    assert found[0].shape == (1, 1)
    assert torch.equal(*found)


def test_a_reward_model_of_steps_keeps_its_three_outputs(made, tmp_path, out):
    folder, words = tmp_path / "model", models.load_tokenizer(made / "pretrained")
    scorer = reward_model_files.load_classifier(made / "pretrained", new=["score.weight"], outputs=3)
    reward_model_files.set_reward_config(scorer, "process", "minimum", words)
    models.save_model(scorer, words, folder)
    facts = export.export_model(folder, out)
    assert (facts["kind"], facts["objective"]) == ("classifier", "process")
    assert reward_model_files.load_reward_model(out).score.weight.shape[0] == 3


def test_code_pickles_and_other_files_stay_behind(made, tmp_path, out):
    folder = shutil.copytree(made / "pretrained", tmp_path / "model")
    for name in ("evil.py", "optimizer.pt", "pytorch_model.bin", "calibration.csv", "README.md"):
        (folder / name).write_text("x")
    export.export_model(folder, out)
    kept = {"chat_template.jinja", "config.json", "generation_config.json", "model.safetensors"}
    assert {file.name for file in out.iterdir()} == {*kept, "tokenizer.json", "tokenizer_config.json"}


def test_generate_stops_where_an_answer_ends(tmp_path, out):
    """The tokenizer's end token ends documents; the chat template's ends answers, and generation_config.json has to
    name it.
    """
    words = chat_tokenizer("ChatML")
    models.save_model(llama(vocab_size=len(words)), words, tmp_path / "model")
    assert GenerationConfig.from_pretrained(tmp_path / "model").eos_token_id is None
    assert export.export_model(tmp_path / "model", out)["kind"] == "policy"
    ends = [words.convert_tokens_to_ids(token) for token in ("<|endoftext|>", "<|im_end|>")]
    assert GenerationConfig.from_pretrained(out).eos_token_id == sorted(ends)


def test_an_adapter_is_merged_into_the_weights(tmp_path, out):
    words = chat_tokenizer("ChatML")
    model = llama(vocab_size=len(words))
    models.save_model(model, words, tmp_path / "model")
    adapters.add_adapter(model, rank=2, alpha=4.0, dropout=0.0, targets="all-linear")
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(generator=torch.Generator().manual_seed(0))
    adapters.save_adapter(model, tmp_path / "model")
    export.export_model(tmp_path / "model", out)
    assert not [file for file in out.iterdir() if file.name.startswith("adapter")]
    tokens = torch.tensor([words.encode("How many apples?")])
    exported, base = (llama_of(path)(tokens).logits for path in (out, tmp_path / "model"))
    torch.testing.assert_close(exported, model(tokens).logits, rtol=0.0, atol=1e-3)
    assert (exported - base).abs().max() > 0.1, "the adapter matters"


def llama_of(folder):
    return LlamaForCausalLM.from_pretrained(folder, **adapters.NONE).eval()


def test_what_is_no_model_is_refused(made, out):
    with pytest.raises(DataError, match=r"holds no config\.json"):
        export.export_model(made / "problems", out)


def test_numbers_are_explained_by_their_stage(tmp_path):
    (tmp_path / "evaluate@sft.json").write_text(
        json.dumps({"best_temperature": 1, "strict_mean_at_8_t0.5": {"mean": 1}})
    )
    found = metrics.read_metric_meanings(tmp_path / "evaluate@sft.json", "language")
    assert found["best_temperature"].startswith("The policy's best temperature")
    assert found["strict_mean_at_8_t0.5/mean"].startswith("The share of the K answers to a problem")
    (tmp_path / "nosuch.json").write_text("{}")
    assert metrics.read_metric_meanings(tmp_path / "nosuch.json", "language") == {}

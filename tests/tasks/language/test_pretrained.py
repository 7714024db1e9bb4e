import json
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from tasks.common import models, tables
from tasks.common.documents import Documents
from tasks.common.errors import StageError
from tasks.language.configs.pretrained import PretrainedConfig
from tasks.language.data import chat
from tasks.language.pretrained import iterate_packed_batches, run
from tests import repository
from tests.conftest import changed, tiny
from tests.tasks.tiny import llama

CONFIG = tiny(PretrainedConfig, "pretrained")
STORIES = Path(__file__).parents[4] / "shared/models/stories260K"


def pretrain(made, out, raw=None, **changes):
    config = changed(CONFIG, **changes)
    return run(config, made / "corpus", made / "tokenizer", raw or made, out / "model", out / "curve.csv")


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def test_rows_hold_every_document_end_to_end(words):
    texts = [f"{n} + 1 = {n + 1}." for n in range(40)]
    config = CONFIG.model_copy(update={"context": 32, "batch_size": 1, "steps": 40})
    stream = [token for text in texts for token in [words.bos_token_id, *words(text)["input_ids"]]]
    rows = {tuple(batch.tokens[0].tolist()) for batch in iterate_packed_batches(texts, words, config)}
    whole = len(stream) // 32
    assert rows == {tuple(stream[32 * n : 32 * n + 32]) for n in range(whole)}
    first = next(iterate_packed_batches(texts, words, config))
    assert first.response.all()
    assert first.attention.all()


def test_each_row_is_read_before_any_is_read_again(words):
    texts = [f"{n} + 1 = {n + 1}." for n in range(40)]
    config = CONFIG.model_copy(update={"context": 32, "batch_size": 2, "steps": 1000})
    rows = [
        tuple(row)
        for batch in islice(iterate_packed_batches(texts, words, config), 50)
        for row in batch.tokens.tolist()
    ]
    count = len(set(rows))
    assert len(set(rows[:count])) == len(set(rows[count : 2 * count])) == count
    assert rows[:count] != rows[count : 2 * count]


def test_training_that_goes_on_reads_the_batches_that_are_left(words):
    texts = [f"{n} + 1 = {n + 1}." for n in range(40)]
    config = CONFIG.model_copy(update={"context": 32, "batch_size": 2, "steps": 9})
    whole, left = (
        [batch.tokens.tolist() for batch in iterate_packed_batches(texts, words, config, *start)]
        for start in ((), (5,))
    )
    assert len(whole) == 9
    assert left == whole[5:]


def test_a_corpus_too_short_is_named(words):
    with pytest.raises(StageError, match=r"data/corpus: \d+ tokens do not fill one row of pretrained.context = 192"):
        next(iterate_packed_batches(["1 + 1 = 2."], words, CONFIG))


def test_a_new_model_has_the_sizes_asked_for(made):
    model = AutoModelForCausalLM.from_pretrained(made / "pretrained")
    words = models.load_tokenizer(made / "pretrained")
    config = model.config
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (32, 2, 2)
    assert config.vocab_size == len(words)
    assert (config.eos_token_id, config.pad_token_id) == (words.eos_token_id, words.pad_token_id)
    assert chat.end_tokens(model, words) == {words.eos_token_id}
    curve = pd.read_csv(made / "pretrained.csv")
    assert curve["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert curve["loss"].iloc[-1] < curve["loss"].iloc[0]


def test_the_same_seed_gives_the_same_bytes(made, tmp_path):
    for name, seed in (("one", 0), ("two", 1)):
        pretrain(made, tmp_path / name, seed=seed)
    files = [
        folder / "model.safetensors" for folder in (made / "pretrained", tmp_path / "one/model", tmp_path / "two/model")
    ]
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()


def test_it_learns_the_text(made, tmp_path):
    """It is better than the best guess without context, the corpus's own token frequencies."""
    pretrain(made, tmp_path, steps=18, learning_rate=0.03)
    words = models.load_tokenizer(made / "tokenizer")
    texts = tables.read_table(Documents, made / "corpus" / "corpus.parquet")["text"].tolist()
    counts = torch.bincount(torch.tensor([token for text in texts for token in words(text)["input_ids"]])).double()
    share = counts[counts > 0] / counts.sum()
    entropy = -(share * share.log()).sum().item()
    loss = pd.read_csv(tmp_path / "curve.csv")["loss"]
    assert loss.iloc[-5:].mean() < entropy - 0.5 < loss.iloc[0]


@pytest.fixture
def base(words, tmp_path):
    """A base model without a chat template and without a padding token."""
    words = models.load_tokenizer(words.name_or_path)
    words.chat_template = None
    words.pad_token = None
    models.save_model(llama(vocab_size=len(words)), words, tmp_path / "base")
    return tmp_path / "base"


def test_an_existing_model_gets_what_it_lacks(made, base, tmp_path):
    metrics = pretrain(made, tmp_path, init="directory", raw=base)
    words = models.load_tokenizer(tmp_path / "model")
    assert words.chat_template == chat.PLAIN_TEMPLATE
    assert words.pad_token == words.eos_token
    model, given = (AutoModelForCausalLM.from_pretrained(path) for path in (tmp_path / "model", base))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), given.parameters(), strict=True))
    assert metrics["weights"] == sum(p.numel() for p in given.parameters())
    assert pd.read_csv(tmp_path / "curve.csv").empty, "no steps, and still a curve for dvc.yaml"


def test_a_directory_without_a_model_is_named(made, tmp_path):
    with pytest.raises(
        StageError, match=r"pretrained\.path: .* holds no config\.json; expected a model in Hugging Face"
    ):
        pretrain(made, tmp_path / "out", init="directory", raw=tmp_path)


@pytest.mark.skipif(not STORIES.is_dir(), reason=repository.needs("models/stories260K"))
def test_a_real_model(made, tmp_path):
    pretrain(made, tmp_path, init="directory", raw=STORIES)
    model, words = models.load_model(tmp_path / "model"), models.load_tokenizer(tmp_path / "model")
    tokens = words("Once upon a time, there was a little", return_tensors="pt", add_special_tokens=True)
    with torch.no_grad():
        out = model.generate(**tokens, max_new_tokens=4, do_sample=False, pad_token_id=words.pad_token_id)
    assert words.decode(out[0], skip_special_tokens=True).startswith("Once upon a time, there was a little girl")
    assert json.loads((tmp_path / "model/config.json").read_text())["model_type"] == "llama"

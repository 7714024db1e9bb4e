import os

import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from tasks.common import models, tables
from tasks.common.errors import StageError
from tasks.language.rewards import reward_model_files
from tasks.language.tables.problems import Problems

PROBLEM = {"problem_id": "a", "question": "3 + 4?", "solution": "3 + 4 = 7\n#### 7", "answer": "7", "steps": 1}
TINY = LlamaConfig(
    vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, pad_token_id=0
)


class NoTokenizer:
    def save_pretrained(self, path):
        (path / "tokenizer.json").write_text("{}")


def test_tables_round_trip(tmp_path):
    frame = pd.DataFrame([PROBLEM, PROBLEM | {"problem_id": "b"}])
    path = tmp_path / "new" / "problems.parquet"
    tables.write_table(Problems, frame.set_index(pd.Index([7, 9])), path)
    pd.testing.assert_frame_equal(tables.read_table(Problems, path), frame)


def test_equal_tables_are_equal_bytes(tmp_path):
    for name in ("one", "two"):
        tables.write_table(Problems, pd.DataFrame([PROBLEM]), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_bad_table_is_not_written(tmp_path):
    path = tmp_path / "problems.parquet"
    with pytest.raises(StageError, match=r"problems\.parquet: not a Problems table: column steps, row 0: .*-1"):
        tables.write_table(Problems, pd.DataFrame([PROBLEM | {"steps": -1}]), path)
    assert not path.exists()


def test_a_bad_table_is_not_read(tmp_path):
    path = tmp_path / "problems.parquet"
    pd.DataFrame([PROBLEM | {"answer": "8"}]).to_parquet(path)
    with pytest.raises(StageError, match=r"not a Problems table: .*a solution's last line"):
        tables.read_table(Problems, path)


def test_curves_are_numbered_from_one(tmp_path):
    tables.write_curves([{"loss": 2.0}, {"loss": 1.5}], tmp_path / "curves" / "sft.csv")
    assert (tmp_path / "curves" / "sft.csv").read_text() == "step,loss\n1,2.0\n2,1.5\n"


@pytest.mark.parametrize(
    ("kind", "load"),
    [(LlamaForCausalLM, models.load_model), (LlamaForSequenceClassification, reward_model_files.load_reward_model)],
)
def test_models_round_trip(tmp_path, kind, load):
    torch.manual_seed(0)
    model = kind(LlamaConfig(**TINY.to_diff_dict() | {"num_labels": 1})).eval()
    models.save_model(model, NoTokenizer(), tmp_path)
    loaded = load(tmp_path)
    assert not loaded.training
    tokens = torch.arange(1, 7).unsqueeze(0)
    torch.testing.assert_close(loaded(tokens).logits, model(tokens).logits)
    assert not [file for file in tmp_path.iterdir() if file.suffix not in (".json", ".safetensors")]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_every_file_of_a_model_obeys_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        models.save_model(LlamaForCausalLM(TINY), NoTokenizer(), tmp_path)
    finally:
        os.umask(before)
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(modes, oct(mode))
    assert "model.safetensors" in modes

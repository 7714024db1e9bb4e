"""Rollouts that are read again: the trained policy's and the reference's log-probabilities of the same tokens."""

import pandas as pd
import pytest
import torch

from tasks.common import models, tables
from tasks.common.errors import DataError
from tasks.language.reporting import rescored_rollouts
from tasks.language.tables.rollouts import RolloutTable


def rollouts(folder, prompts, answers, temperature=0.5):
    frame = pd.DataFrame(
        {
            "step": 1,
            "group": [*range(len(prompts))],
            "sample": 0,
            "temperature": temperature,
            "prompt_tokens": prompts,
            "tokens": answers,
            "length": [len(answer) for answer in answers],
            "ended": True,
            "reward": 0.0,
            "parts": "{}",
            "logps": [[-1.0] * len(answer) for answer in answers],
            "advantages": [[0.0] * len(answer) for answer in answers],
        }
    )
    tables.write_table(RolloutTable, frame, folder / "rollouts.parquet")


def test_log_probabilities_are_those_of_whole_sequences(made, tmp_path):
    """By transformers, one sequence at a time without padding, at the temperature of the sampling."""
    model, tokenizer = models.load_model(made / "pretrained"), models.load_tokenizer(made / "pretrained")
    prompts, answers = [tokenizer.encode("3 + 4 ="), tokenizer.encode("Ada has 3 pens.")], [[5, 6, 7], [8, 9]]
    rollouts(tmp_path, prompts, answers)
    rescored_rollouts.write_rescored_rollouts(tmp_path, model, None, tokenizer, tmp_path / "out")
    found = tables.read_table(RolloutTable, tmp_path / "out/rollouts.parquet")
    for prompt, answer, logps in zip(prompts, answers, found["final_logps"], strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1] / 0.5
        wanted = torch.log_softmax(logits, -1)[range(len(answer)), answer]
        assert [*logps] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert "reference_logps" not in found
    assert found["prompt"].tolist() == [tokenizer.decode(prompt) for prompt in prompts]


def test_the_pieces_of_an_answer_are_its_text(made):
    tokenizer = models.load_tokenizer(made / "pretrained")
    text = "Ada has 3 pens.\n3 + 4 = 7\n#### 7"
    tokens = tokenizer.encode(text)
    found = rescored_rollouts.decode_token_texts(tokenizer, tokens)
    assert len(found) == len(tokens) > 5
    assert "".join(found) == tokenizer.decode(tokens)


def test_a_strangers_tokens_are_refused_in_one_line(made, tmp_path):
    model, tokenizer = models.load_model(made / "pretrained"), models.load_tokenizer(made / "pretrained")
    rollouts(tmp_path, [[1]], [[10**6]])
    with pytest.raises(DataError, match=r"column tokens: expected tokens from 0 to \d+"):
        rescored_rollouts.write_rescored_rollouts(tmp_path, model, None, tokenizer, tmp_path / "out")


def test_a_folder_without_rollouts_leaves_none(made, tmp_path):
    rescored_rollouts.write_rescored_rollouts(
        tmp_path,
        models.load_model(made / "pretrained"),
        None,
        models.load_tokenizer(made / "pretrained"),
        tmp_path / "out",
    )
    assert not (tmp_path / "out").exists()

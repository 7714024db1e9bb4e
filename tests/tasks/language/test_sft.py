import shutil

import pandas as pd
import pytest
from transformers import AutoModelForCausalLM

from tasks.algorithms.language import sft
from tasks.common import models, tables
from tasks.language.configs.sft import SftConfig
from tasks.language.data import chat
from tasks.language.sft import Encoded, run
from tasks.language.tables.problems import Demonstrations, Problems
from tests.conftest import changed, tiny
from tests.tasks.chats import CHATS, chat_tokenizer

CONFIG = tiny(SftConfig, "sft")


def tune(made, out, **changes):
    config = changed(CONFIG, **changes)
    return run(config, made / "pretrained", made / "demonstrations", out / "model", out / "curve.csv")


def validation(made):
    return tables.read(Demonstrations, made / "demonstrations" / "validation.parquet")


def batches(table, words, size, config=CONFIG):
    """One epoch of the table's rows."""
    encoded = Encoded(table, words, config)
    return [encoded.batch(rows) for rows in encoded.batches(size, 1, seed=0)]


def test_the_loss_is_on_the_solution_and_its_end_token(made):
    words = models.load_tokenizer(made / "pretrained")
    seen = {}
    for batch in batches(validation(made), words, 3):
        for tokens, attention, response in zip(batch.tokens, batch.attention, batch.response, strict=True):
            seen[words.decode(tokens[attention & ~response])] = words.decode(tokens[response])
    problems = tables.read(Problems, made / "problems" / "validation.parquet")
    template = {f"<|user|>{row.question}<|assistant|>": row.solution + "<|end|>" for row in problems.itertuples()}
    assert seen == template


@pytest.mark.parametrize("name", CHATS)
def test_the_loss_has_the_token_by_which_the_template_ends_an_answer(made, name):
    words, end = chat_tokenizer(name), CHATS[name][2]
    for batch in batches(validation(made), words, 3):
        for tokens, attention, response in zip(batch.tokens, batch.attention, batch.response, strict=True):
            assert words.convert_ids_to_tokens(int(tokens[response][-1])) == end
            assert int(attention.sum()) == int(response.nonzero()[-1]) + 1, "nothing follows it"


def test_it_beats_the_model_it_started_from(made, tmp_path):
    """It does so on problems that it was not trained on."""
    words, table = models.load_tokenizer(made / "pretrained"), validation(made)
    before = sft.evaluate(models.load_model(made / "pretrained"), batches(table, words, 8))
    after = tune(made, tmp_path, demonstrations=60, epochs=5, learning_rate=0.02)
    assert after["eval_loss"] < before["eval_loss"] - 1
    assert after["eval_mean_token_accuracy"] > before["eval_mean_token_accuracy"] + 0.2
    again = sft.evaluate(AutoModelForCausalLM.from_pretrained(tmp_path / "model"), batches(table, words, 8))
    assert {**again, "truncated": 0, "dropped": 0} == pytest.approx(after, rel=1e-5), (
        "what was saved is what was measured"
    )


def test_steps_and_bytes(made, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        tune(made, tmp_path / name, seed=seed, epochs=2, batch_size=10)
    curve = pd.read_csv(tmp_path / "one/curve.csv")
    assert len(curve) == 2 * 4, "32 demonstrations make 4 batches of at most 10"
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("one", "same", "other")]
    assert weights[0] == weights[1] != weights[2]


def test_no_more_demonstrations_than_asked_for(made, tmp_path):
    """They are those of the first training problems, which `responses.skip` passes over later."""
    few = tmp_path / "demonstrations"
    table = tables.read(Demonstrations, made / "demonstrations" / "train.parquet")
    tables.write(Demonstrations, table.head(32), few / "train.parquet")
    shutil.copy(made / "demonstrations" / "validation.parquet", few)
    tune(made, tmp_path / "all")
    run(CONFIG, made / "pretrained", few, tmp_path / "few/model", tmp_path / "few/curve.csv")
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("all", "few")]
    assert weights[0] == weights[1]


def test_the_template_travels_with_the_model(made, tmp_path):
    tune(made, tmp_path)
    words = models.load_tokenizer(tmp_path / "model")
    assert chat.encode_prompt(words, "Why?") == chat.encode_prompt(models.load_tokenizer(made / "tokenizer"), "Why?")

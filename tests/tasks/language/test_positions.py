"""A sequence longer than the model's positions gives a one-line error, before anything is sampled or trained."""

import pandas as pd
import pytest

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language.data import chat
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Demonstrations, Problems
from tests.tasks import policies
from tests.tasks.language import test_dpo, test_responses, test_reward_model, test_sft
from tests.tasks.tiny import llama

LONG = " ".join(["3 + 4 = 7"] * 80)


def told(train, home):
    with pytest.raises(StageError) as stopped:
        train()
    line = str(stopped.value)
    assert line.startswith(
        f"{home}: the model has 192 positions (config.json: max_position_embeddings), but the longest of "
    )
    assert line.endswith("; expected at most 192")
    assert "\n" not in line
    return line


def test_by_hand():
    model = llama(max_position_embeddings=8)
    chat.check_positions(model, [3, 8, 1], "the prompts")
    chat.check_positions(model, [3, 5], "the prompts", 3, "max_new_tokens")
    for lengths, more, line in (
        ([3, 9, 1], 0, "the prompts has 9 tokens; expected at most 8"),
        ([3, 6], 3, "the prompts has 6 tokens and max_new_tokens = 3 make 9; expected at most 8"),
    ):
        with pytest.raises(StageError, match=f"the longest of {line}$"):
            chat.check_positions(model, lengths, "the prompts", more, "max_new_tokens")
    del model.config.max_position_embeddings
    chat.check_positions(model, [900], "a model without a limit's prompts")


@pytest.mark.parametrize("stage", policies.STAGES)
def test_sampling_for_a_policy(ready, tmp_path, stage):
    line = told(lambda: policies.train(stage, ready, tmp_path, max_new_tokens=180), ready / "pretrained")
    assert "and max_new_tokens = 180 make" in line
    assert not list(tmp_path.iterdir())


def test_sampled_responses(made, tmp_path):
    line = told(lambda: test_responses.respond(made, tmp_path, max_new_tokens=180), made / "pretrained")
    assert "the prompts has" in line
    assert not list(tmp_path.iterdir())


def test_demonstrations(made, tmp_path):
    for file in ("demonstrations", "validation"):
        schema = Demonstrations if file == "demonstrations" else Problems
        tables.write(
            schema, tables.read(schema, made / f"problems/{file}.parquet"), tmp_path / f"problems/{file}.parquet"
        )
    table = tables.read(Demonstrations, tmp_path / "problems/demonstrations.parquet")
    table.loc[3, "response"] = LONG
    tables.write(Demonstrations, table, tmp_path / "problems/demonstrations.parquet")
    config, out = test_sft.CONFIG, tmp_path / "out"
    line = told(
        lambda: test_sft.run(config, made / "pretrained", tmp_path / "problems", out / "model", out / "curve.csv"),
        made / "pretrained",
    )
    assert "the demonstrations with their prompts has" in line
    assert not out.exists()


@pytest.mark.parametrize("stage", [test_dpo, test_reward_model], ids=lambda stage: stage.__name__.rpartition("_")[2])
def test_comparisons(made, preferences, tmp_path, stage):
    for split in ("train", "test"):
        table = pd.read_parquet(preferences / f"{split}.parquet")
        table.loc[0, "rejected"] = LONG
        tables.write(Comparisons, table, tmp_path / f"preferences/{split}.parquet")
    line = told(lambda: stage.fit(made, tmp_path / "preferences", tmp_path / "out"), made / "pretrained")
    assert "the prompts with their responses has" in line
    assert not (tmp_path / "out").exists()

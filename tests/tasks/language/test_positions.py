"""A sequence longer than the model's positions gives a one-line error, before anything is sampled or trained."""

import pandas as pd
import pytest

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language.data import chat, forms
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Demonstrations
from tests.tasks import policies
from tests.tasks.language import test_dpo, test_responses, test_reward_model, test_sft
from tests.tasks.tiny import llama

LONG = " ".join(["3 + 4 = 7"] * 80)


def told(train, home, key=""):
    with pytest.raises(StageError) as stopped:
        train()
    line = str(stopped.value)
    assert line.startswith(
        f"{home}: the model has 192 positions (config.json: max_position_embeddings), but the longest of "
    )
    assert line.endswith("; expected at most 192" + (f": set {key}" if key else ""))
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
    for changed, what in (("train", "demonstrations"), ("validation", "held-out demonstrations")):
        home = tmp_path / changed
        for part in ("train", "validation"):
            table = tables.read_table(Demonstrations, made / f"demonstrations/{part}.parquet").head(8)
            if part == changed:
                turns = forms.parse_messages_json(table.loc[3, "messages"])
                table.loc[3, "messages"] = forms.dump_messages_json([*turns[:-1], {**turns[-1], "content": LONG}])
            tables.write_table(Demonstrations, table, home / f"demonstrations/{part}.parquet")
        (home / "pretrained").symlink_to(made / "pretrained")
        line = told(lambda home=home: test_sft.tune(home, home / "out"), home / "pretrained", "sft.max_length")
        assert f"the {what} has" in line
        assert not (home / "out").exists()
        assert test_sft.tune(home, home / "out", max_length=192)["truncated"] == (changed == "train")


@pytest.mark.parametrize("stage", [test_dpo, test_reward_model], ids=lambda stage: stage.__name__.rpartition("_")[2])
def test_comparisons(easy_sums, tmp_path, stage):
    for split in ("train", "test"):
        table = pd.read_parquet(easy_sums / f"preferences/{split}.parquet").head(6)
        table.loc[0, "rejected"] = LONG
        tables.write_table(Comparisons, table, tmp_path / f"preferences/{split}.parquet")
    name = stage.__name__.rpartition("test_")[2]
    line = told(
        lambda: stage.fit(easy_sums, tmp_path / "preferences", tmp_path / "out"),
        easy_sums / "pretrained",
        f"{name}.max_length",
    )
    assert "the prompts with their responses has" in line
    assert not (tmp_path / "out").exists()
    for truncation, count in (("right", "truncated"), ("drop", "dropped")):
        limit = {"max_length": 192, "truncation": truncation, "epochs": 1}
        assert stage.fit(easy_sums, tmp_path / "preferences", tmp_path / truncation, **limit)[count] >= 1

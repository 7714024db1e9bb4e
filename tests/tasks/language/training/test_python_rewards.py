"""Rewards in Python as policies are trained by them: what reaches the function, and how its reward counts."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.experience import Experience
from tasks.common import models, tables
from tasks.common.errors import DataError, StageError
from tasks.language.configs.parts.policies import SamplingConfig
from tasks.language.data import chat
from tasks.language.tables.problems import Prompts
from tasks.language.training.environment import SamplingEnvironment
from tasks.language.training.judge import open_judge
from tests.conftest import PARAMS
from tests.tasks.policies import marked, train

MINE = """
def length(responses, **columns):
    return [float(len(one)) for one in responses]

def level(prompts, responses, level, **columns):
    return [None if one is None else one + len(columns['solution'][at]) / 1000 for at, one in enumerate(level)]

def none(responses):
    return [None] * len(responses)
"""
LENGTH, LEVEL, NONE = (f"rewards/mine.py:{name}" for name in ("length", "level", "none"))
TEXTS = ["#### 12", "no idea", "<think>#### 12</think>so", "<think>#### 12"]


def config(**changes):
    own = {name: PARAMS["grpo"][name] for name in SamplingConfig.model_fields}
    return SamplingConfig.model_validate({**own, "reward_files": "rewards/mine.py", "max_new_tokens": 6, **changes})


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """The file of functions, in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("rewards").mkdir()
    Path("rewards/mine.py").write_text(MINE)


@pytest.fixture
def words(ready):
    return models.load_tokenizer(ready / "pretrained")


@pytest.fixture
def rows(ready):
    """Two prompts with columns of their own, of two data sets."""
    table = tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(2)
    return table.assign(answer="12", columns=[json.dumps({"level": 3, "source": "x"}), ""])


def judged(ready, words, rows, **changes):
    """The judge's reward of each of TEXTS to the first row and then to the second, and its parts."""
    asked = [chat.encode_prompt(words, question) for question in rows["question"]]
    owner = [place for place in range(2) for _ in TEXTS]
    tokens = [chat.encode_response(words, text) for text in TEXTS] * 2
    records = tables.list_records(rows)
    own = config(**changes)
    with open_judge(own, {*rows["reward"]}, words, ready / "reward_model", Path(own.reward_files)) as judge:
        judge.check(records)
        responses = make_completions(asked, owner, tokens, words.pad_token_id)
        return judge([records[place] for place in owner], responses, [True] * len(owner))


def test_the_weighted_sum_by_hand(ready, words, rows):
    found = judged(ready, words, rows, reward={LENGTH: 0.5, LEVEL: 0.0, NONE: 3.0, "verifiable": 2.0})
    lengths = [7.0, 7.0, 24.0, 14.0] * 2
    right = [1.0, 0.0, 1.0, 1.0] * 2  # with its thinking the last marked answer counts
    assert found.parts[LENGTH].tolist() == lengths
    assert found.total.isnan().all(), "a reward that counts is missing"
    assert found.parts[NONE].isnan().all()
    there = judged(ready, words, rows, reward={LENGTH: 0.5, LEVEL: 0.0, NONE: 0.0, "verifiable": 2.0})
    assert there.total.tolist() == [0.5 * n + 2.0 * r for n, r in zip(lengths, right, strict=True)]
    assert LEVEL not in found.parts, "a weight of 0 calls nothing"


def test_rewards_read_answers_without_thinking_where_that_is_asked_for(ready, words, rows):
    found = judged(ready, words, rows, reward={LENGTH: 1.0, "verifiable": 1.0, "rubric": 1.0}, strip_thinking=True)
    assert found.parts[LENGTH].tolist() == [7.0, 7.0, 2.0, 0.0] * 2
    assert found.parts["verifiable"].tolist() == [1.0, 0.0, 0.0, 0.0] * 2
    plain = judged(ready, words, rows, reward={"rubric": 1.0})
    assert found.parts["rubric"][0] == plain.parts["rubric"][0]
    assert found.parts["rubric"][3] < plain.parts["rubric"][3]


def test_columns_reach_the_function_and_none_is_no_reward(ready, words, rows):
    found = judged(ready, words, rows, reward={LEVEL: 2.0, "verifiable": 1.0})
    expected = 3 + len(rows["solution"].iloc[0]) / 1000
    assert found.parts[LEVEL].tolist() == pytest.approx([expected] * 4 + [torch.nan] * 4, nan_ok=True)
    sums = [2 * expected + 1, 2 * expected, *[2 * expected + 1] * 2]
    assert found.total.tolist() == pytest.approx([*sums, *[torch.nan] * 4], nan_ok=True)


def test_each_data_set_may_name_a_function(ready, words, rows):
    found = judged(ready, words, rows.assign(reward=[LENGTH, "verifiable"]), reward={"rubric": 1.0})
    assert found.total.tolist() == [7.0, 7.0, 24.0, 14.0, 1.0, 0.0, 1.0, 1.0]
    assert found.parts[LENGTH].isnan().tolist() == [False] * 4 + [True] * 4


def test_what_is_logged_by_hand(ready, words, rows):
    own = config(reward={LENGTH: 1.0, NONE: 1.0, "verifiable": 0.0})
    table = rows.assign(reward=["policy", "verifiable"])
    with open_judge(own, {"policy", "verifiable"}, words, ready / "reward_model", Path("rewards")) as judge:
        world = SamplingEnvironment(models.load_model(ready / "pretrained"), words, table, judge, own)
        found = world.sample([0, 1], 3, 1)
        texts = [
            chat.decode_response(words, row[kept], ended)
            for row, kept, ended in zip(
                found.completions.tokens, found.completions.mask, found.ended.tolist(), strict=True
            )
        ]
        only = world.sample([1], 3, 1)
        assert judge.seconds().keys() == {f"{LENGTH}/seconds", f"{NONE}/seconds"}
        assert not any(judge.seconds().values()), "what was told is not told again"
    assert found.logged.keys() == {
        *("rewards/verifiable", "rewards/format"),
        *(f"{name}{part}" for name in (LENGTH, NONE) for part in ("", "/none", "/failed")),
    }
    assert found.logged[LENGTH] == pytest.approx(sum(map(len, texts[:3])) / 3)
    assert found.logged[f"{LENGTH}/none"] == 0.5
    assert (found.logged[NONE], found.logged[f"{NONE}/none"], found.logged[f"{NONE}/failed"]) == (0.0, 1.0, 0.0)
    assert only.logged.keys() == found.logged.keys(), "each step logs the same"
    assert only.logged[f"{LENGTH}/none"] == 1.0


def sampled(ready, words, rows, limit):
    """What becomes of three samples to each prompt, of which only those to the first have a level."""
    own = config(reward={LEVEL: 1.0, "verifiable": 1.0}, reward_none_limit=limit)
    with open_judge(own, {"policy"}, words, ready / "reward_model", Path("rewards"), ("level",)) as judge:
        world = SamplingEnvironment(models.load_model(ready / "pretrained"), words, rows, judge, own)
        found = world.sample([0, 1], 3, 1)
        world.check_unjudged_share([0, 1], found)
        return found


def test_a_step_of_which_too_much_has_no_reward_stops_in_a_line(ready, words, rows):
    assert sampled(ready, words, rows, 0.5).rewards.isnan().tolist() == [False] * 3 + [True] * 3
    with pytest.raises(TrainingError) as stopped:
        sampled(ready, words, rows, 0.49)
    assert str(stopped.value) == (
        f"3 of 6 responses (50%) have no reward, 3 of them none by {LEVEL}; expected a share of at most "
        "reward_none_limit = 0.49. Let "
        f"{LEVEL} return a number where it can, or raise reward_none_limit (1 never stops)"
    )
    assert sampled(ready, words, rows.assign(columns=""), 1.0).rewards.isnan().all()


def test_calls_that_fail_are_told_apart_where_too_many_do(ready, words, rows):
    Path("rewards/mine.py").write_text(
        (
            "import os\ndef level(prompts, **columns):\n if len(prompts) > 1 or prompts[0] != FIRST: "
            "os._exit(1)\n return [1]"
        ).replace("FIRST", repr(rows["question"].iloc[0]))
    )
    with pytest.raises(
        TrainingError, match=rf"^3 of 6 .* none by {LEVEL} \(3 calls took too long or ended its process\)"
    ):
        sampled(ready, words, rows, 0.4)


def test_a_line_that_nobody_can_judge_is_paid_by_the_next(ready, words, rows):
    """A text of one line has no reward: the second line, `a` and `b`, pays for both, 3 characters.

    Where the whole has none, nothing is paid.
    """
    Path("rewards/mine.py").write_text(
        "def length(responses): return [None if len(one.split('\\n')) < 2 or '!' in one else len(one) "
        "for one in responses]"
    )
    own, texts = config(reward={LENGTH: 1.0}), ["a\nb\nc", "a\nb\n!"]
    tokens = [chat.encode_response(words, text) for text in texts]
    with open_judge(own, {"policy"}, words, ready / "reward_model", Path("rewards")) as judge:
        world = SamplingEnvironment(None, words, rows.assign(reward="policy"), judge, own)
        batch = make_completions([world.encoded[0]], [0, 0], tokens, words.pad_token_id)
        records, ended = [world.rows[0]] * 2, [True, True]
        earned = judge(records, batch, ended).total
        assert earned.tolist() == pytest.approx([5.0, torch.nan], nan_ok=True)
        found = world.add_line_rewards(
            [0], Experience(batch, torch.zeros(batch.mask.shape), earned, torch.tensor(ended))
        )
    assert found.paid[0][found.paid[0] != 0].tolist() == [3.0, 2.0]
    assert not found.paid[1].any()


def test_a_step_whose_calls_fail_is_counted(ready, words, rows):
    Path("rewards/mine.py").write_text(
        "import os\ndef length(responses):\n if 'no idea' in responses: os._exit(1)\n return [1] * len(responses)"
    )
    found = judged(ready, words, rows, reward={LENGTH: 1.0})
    assert found.total.tolist() == pytest.approx([1, torch.nan, 1, 1] * 2, nan_ok=True)
    assert found.parts[f"{LENGTH}/failed"].tolist() == [0, 1, 0, 0] * 2


def test_a_column_of_a_name_that_is_taken_is_one_line(ready, words, rows):
    table = rows.assign(columns=json.dumps({"completions": "x"}))
    with pytest.raises(
        DataError, match=r"^prompts: problems/train-48: a column is called completions; expected another name"
    ):
        judged(ready, words, table, reward={LENGTH: 1.0})


def test_files_that_do_not_hold_the_function_are_refused_under_plain_dvc_repro_too(ready, words, rows):
    with pytest.raises(
        StageError, match=r"^params.yaml: reward_files: expected rewards/mine.py or a folder that holds it"
    ):
        judged(ready, words, rows.assign(reward=LENGTH), reward={"verifiable": 1.0}, reward_files="rewards/none")


@pytest.mark.parametrize("stage", ["rejection_sft", "grpo"])
def test_a_column_that_some_prompts_lack_is_none_there(ready, tmp_path, stage):
    """Of the mixture's prompts only the last has it, validation problems never have."""
    table = tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(2)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("pretrained", "problems", "reward_model"):
        (home / name).symlink_to(ready / name)
    tables.write_table(Prompts, table.assign(columns=["", '{"level": 3}']), home / "mixture/prompts.parquet")
    shutil.copy(ready / "mixture/validation.parquet", home / "mixture")
    own = (
        {"minimum_reward": 0.0, "prompts_per_batch": 1}
        if stage == "rejection_sft"
        else {"prompts_per_step": 1, "steps": 2}
    )
    metrics = train(
        stage, home, tmp_path, reward=LEVEL, reward_files="rewards", reward_none_limit=1.0, max_new_tokens=2, **own
    )
    expected = 3 + len(table["solution"].iloc[1]) / 1000
    if stage == "rejection_sft":
        assert metrics["reward"] == pytest.approx(expected)
        assert (metrics["reward/none"], metrics["unjudged"]) == (0.5, 1)
    else:
        curve = pd.read_csv(tmp_path / "curve.csv")
        assert sorted(curve[f"{LEVEL}/none"]) == [0, 1]
        assert sorted(curve[LEVEL]) == pytest.approx([0, expected])
        assert curve["reward/none"].tolist() == curve[f"{LEVEL}/none"].tolist()
        assert (curve["eval_reward"] == 0).all()
        assert (curve["eval_reward/none"] == 1).all()
        assert curve.notna().all().all()


@pytest.mark.parametrize("stage", marked(["rejection_sft", "reinforce", "ppo", "grpo"], ["grpo"]))
def test_every_policy_can_be_trained_by_one(ready, tmp_path, stage):
    changes = {
        "reward": LENGTH,
        "reward_files": "rewards/mine.py",
        **(
            {"minimum_reward": 0.0}
            if stage == "rejection_sft"
            else {"steps": 1, "prompts_per_step": 2, "max_new_tokens": 3, "evaluate_every": 0}
        ),
    }
    metrics = train(stage, ready, tmp_path / "one", **changes)
    assert train(stage, ready, tmp_path / "two", **changes) == metrics
    for name in ("model/model.safetensors", "curve.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    curve = pd.read_csv(tmp_path / "one/curve.csv")
    if stage != "rejection_sft":
        assert curve["reward"].tolist() == pytest.approx(curve[LENGTH].tolist())
        assert not [name for name in curve if "seconds" in name], "no out holds a time"

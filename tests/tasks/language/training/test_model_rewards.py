"""What outcome and process reward models pay a policy, and the rewards of steps."""

import math
from contextlib import ExitStack

import pytest
import torch

from tasks.algorithms.language import reward_model, step_rewards
from tasks.algorithms.language.completions import make_completions
from tasks.common import models, tables
from tasks.common.errors import ConfigError
from tasks.language.data import chat
from tasks.language.rewards import reward_model_files
from tasks.language.steps.cutting import locate_step_ends
from tasks.language.tables.problems import Prompts
from tasks.language.training import judge as judging_module
from tasks.language.training.environment import SamplingEnvironment
from tasks.language.training.judge import open_judge
from tests.tasks.language.training.test_environment import config
from tests.tasks.policies import NO_FILES, train
from tests.tasks.ranks import in_ranks

ANSWERS = ("3 + 4 = 7\n7 + 5 = 12\n#### 12", "#### 12", "3 + 4 = 9\n\n#### 9\n")


@pytest.fixture(scope="module")
def scorers(ready, tmp_path_factory):
    """An untrained reward model of each objective, beside the folders of `ready`."""
    words, home = models.load_tokenizer(ready / "pretrained"), tmp_path_factory.mktemp("scorers")
    for objective, outputs in reward_model_files.OUTPUTS.items():
        scorer = reward_model_files.load_classifier(ready / "pretrained", new=["score.weight"], outputs=outputs)
        reward_model_files.set_reward_config(scorer, objective, "product", words)
        scorer.config.pad_token_id = words.pad_token_id
        reward_model.initialise_score_head(scorer, torch.Generator().manual_seed(1))
        models.save_model(scorer, words, home / objective / "reward_model")
        for name in ("pretrained", "mixture"):
            (home / objective / name).symlink_to(ready / name)
    speaker = models.load_model(ready / "pretrained", "float32")
    reward_model_files.set_reward_config(speaker, "process", "product", words)
    speaker.config.reward_beta, speaker.config.reward_threshold = 2.0, 3.0
    models.save_model(speaker, words, home / "by_log_probabilities/reward_model")
    return home


@pytest.fixture
def words(ready):
    return models.load_tokenizer(ready / "pretrained")


@pytest.fixture
def rows(ready):
    return tables.list_records(tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(3))


def answers(words, rows):
    """All of ANSWERS to each prompt."""
    asked = [chat.encode_prompt(words, row["question"]) for row in rows]
    owner = [place for place in range(len(rows)) for _ in ANSWERS]
    return make_completions(
        asked, owner, [chat.encode_response(words, text) for text in ANSWERS] * len(rows), words.pad_token_id
    )


def judged(scorers, words, rows, objective, **weights):
    path = scorers / objective / "reward_model"
    kinds, batch = {row["reward"] for row in rows}, answers(words, rows)
    with open_judge(config(reward=weights), kinds, words, path, NO_FILES) as judge:
        asked = [rows[place] for place in batch.owner.tolist()]
        return batch, reward_model_files.load_reward_model(path), judge(asked, batch, [True] * len(batch))


@pytest.mark.parametrize("objective", ["outcome", "process"])
def test_the_reward_is_the_model_s_score(scorers, words, rows, objective):
    batch, model, found = judged(scorers, words, rows, objective, **{objective: 2.0, "format": 0.5})
    with torch.no_grad():
        expected = reward_model.score_responses(model, batch)
    torch.testing.assert_close(found.parts[objective], expected)
    torch.testing.assert_close(found.total, 2 * expected + 0.5)
    assert "reward_model" not in found.parts
    _, _, plain = judged(scorers, words, rows, objective, reward_model=1.0)
    torch.testing.assert_close(plain.total, expected)
    assert objective not in plain.parts


@pytest.mark.parametrize("scorer", ["process", "by_log_probabilities"])
def test_a_step_s_reward_stands_at_its_last_token(scorers, words, rows, scorer):
    batch, model, found = judged(scorers, words, rows, scorer, process=2.0, format=0.5, verifiable=1.0)
    with torch.no_grad():
        scores, ends = step_rewards.score_steps(model, batch), step_rewards.find_model_step_ends(model, batch)
    at_ends = found.steps.at_ends
    assert torch.equal(~at_ends.isnan(), ends)
    assert [[row.nonzero().flatten().tolist()] for row in ends][:3] == [
        [ends] for ends in locate_step_ends(words, [chat.encode_response(words, text) for text in ANSWERS])
    ]
    torch.testing.assert_close(at_ends[ends], scores[ends])
    torch.testing.assert_close(at_ends.nan_to_num(1.0).prod(1), found.parts["process"])
    assert found.steps.weight.tolist() == [2.0] * 9
    assert found.steps.others_weight.tolist() == [1.5] * 9
    assert torch.equal(found.steps.others, found.parts["verifiable"] + 0.5)


def test_prompts_of_a_data_set_with_another_reward_have_no_process_reward(scorers, words, rows):
    rows[1] = {**rows[1], "reward": "verifiable"}
    _, _, found = judged(scorers, words, rows, "process", process=0.5)
    assert found.steps.weight.tolist() == [0.5] * 3 + [0.0] * 3 + [0.5] * 3
    assert found.steps.others_weight.tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 3
    assert torch.equal(found.total[3:6], found.parts["verifiable"][3:6])


@pytest.mark.parametrize(("objective", "asked"), [("outcome", "process"), ("process", "outcome"), ("pairs", "process")])
def test_a_model_of_another_objective_is_refused(scorers, ready, words, objective, asked):
    path = ready / "reward_model" if objective == "pairs" else scorers / objective / "reward_model"
    line = f"is a reward model of objective {objective}, but the reward {asked} asks for one of objective {asked}"
    with (
        pytest.raises(ConfigError, match=line),
        open_judge(config(reward={asked: 1.0, "format": 1.0}), {"policy"}, words, path, NO_FILES),
    ):
        pass


def test_ranks_have_the_rewards_of_steps_of_one_process(scorers, ready, words):
    """With two prompts one rank of three has none."""
    ranks = 3
    table = tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(2)
    own, path = config(reward={"process": 1.0}, max_new_tokens=12), scorers / "process/reward_model"

    with ExitStack() as ending:
        judges = [ending.enter_context(open_judge(own, {"policy"}, words, path, NO_FILES)) for _ in range(ranks + 1)]
        worlds = [
            SamplingEnvironment(models.load_model(ready / "pretrained"), words, table, judge, own) for judge in judges
        ]
        alone = worlds.pop().sample(range(2), 2, 1)
        assert alone.steps is not None
        every = in_ranks(ranks, lambda rank: worlds[rank].sample(range(2), 2, 1))
    for found in every:
        for name in ("at_ends", "weight", "others", "others_weight"):
            torch.testing.assert_close(
                getattr(found.steps, name), getattr(alone.steps, name), rtol=1e-4, atol=1e-6, equal_nan=True
            )


@pytest.mark.parametrize(
    ("stage", "objective"),
    [
        ("grpo", "process"),
        pytest.param("grpo", "outcome", marks=pytest.mark.slow),
        pytest.param("ppo", "outcome", marks=pytest.mark.slow),
        pytest.param("ppo", "process", marks=pytest.mark.slow),
        pytest.param("reinforce", "process", marks=pytest.mark.slow),
        pytest.param("rejection_sft", "process", marks=pytest.mark.slow),
    ],
)
def test_every_policy_can_be_paid_by_it(scorers, tmp_path, stage, objective):
    changes = {"minimum_reward": 0.0} if stage == "rejection_sft" else {"steps": 2, "max_new_tokens": 4}
    metrics = train(stage, scorers / objective, tmp_path, reward=objective, **changes)
    assert all(math.isfinite(value) for value in metrics.values())
    assert 0 < metrics["reward"] < 1
    assert stage == "rejection_sft" or metrics[f"rewards/{objective}"] == metrics["reward"]


def test_supervision_decides_what_grpo_learns(scorers, ready, tmp_path):
    long = {"max_new_tokens": 64, "steps": 1, "evaluate_every": 0, "prompts_per_step": 8, "samples": 8}
    for supervision in ("process", "outcome"):
        train("grpo", scorers / "process", tmp_path / supervision, reward="process", supervision=supervision, **long)
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("process", "outcome")]
    assert weights[0] != weights[1]
    with pytest.raises(ConfigError, match=r"^params.yaml: grpo.supervision: expected outcome where reward does not"):
        train("grpo", ready, tmp_path / "none", reward="reward_model", supervision="process")


def test_a_process_reward_model_is_read_once(scorers, words, rows, monkeypatch):
    monkeypatch.setattr(judging_module.reward_model, "score_responses", lambda *_: pytest.fail("a second pass"))
    judged(scorers, words, rows, "process", process=1.0)

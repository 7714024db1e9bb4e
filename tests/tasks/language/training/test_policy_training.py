"""The common behaviour of all stages that train a policy by reward, on tiny models."""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language import rollouts
from tasks.algorithms.language.completions import Completions
from tasks.algorithms.language.experience import Experience
from tasks.check import find_file_problems
from tasks.common import models, tables, tracking
from tasks.common.errors import StageError
from tasks.language.data import chat
from tasks.language.rewards.by_name.rubric import rubric
from tasks.language.rewards.reward import AnsweredProblem
from tasks.language.tables.problems import Prompts
from tasks.language.tables.rollouts import RolloutTable
from tasks.language.training import policy_training, trained_model
from tasks.language.training.environment import SamplingEnvironment
from tasks.language.training.judge import Judge, open_judge
from tasks.language.training.policy_training import Trainee, compute_mean_lengths_by_correctness
from tests.tasks.policies import NO_FILES, configured, judge_that_fails_at, marked, train

POLICIES = ("reinforce", "ppo", "grpo")
SAMPLES = {"reward", "reward_std", "completions/mean_length", "completions/clipped_ratio"}
FROM_HERE = {"minimum_reward": -99.0}
ONE_STEP = {"steps": 1, "evaluate_every": 1, "max_new_tokens": 3}
FEW = {  # passes over a batch, and prompts that are evaluated
    "reinforce": {"critic_updates": 1, "variance_every": 0, "evaluate_prompts": 3, "max_new_tokens": 4},
    "ppo": {"epochs": 2, "minibatches": 1, "evaluate_prompts": 3, "max_new_tokens": 4},
    "grpo": {"evaluate_prompts": 3, "max_new_tokens": 4},
}
ENTROPY = {"ppo": "policy/entropy"}  # as TRL's users know it; elsewhere "entropy"


def weights(out):
    return models.load_model(out / "model").state_dict()


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_lengths_of_right_and_of_wrong_answers():
    def told(right):
        mask = torch.arange(4) < torch.tensor([[2], [4], [3]])
        parts = {"verifiable": torch.tensor(right)}
        nothing = torch.zeros(3)
        responses = Completions(mask, mask, torch.arange(3), mask.long(), mask)
        return [
            *compute_mean_lengths_by_correctness(Experience(responses, nothing, nothing, nothing, {}, parts)).values()
        ]

    assert told([1.0, 0.0, 0.0]) == [2.0, 3.5]
    assert told([1.0, 1.0, 1.0]) == [3.0, 0.0]
    assert told([float("nan"), 0.0, 1.0]) == [3.0, 3.0]  # what cannot be judged is not right


@dataclass
class Trained:
    """One training, with what it drew by which seeds, and what it showed people of its samples."""

    metrics: dict[str, float]
    out: Path
    seeds: dict[str, list[tuple[int, int]]]
    shown: dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def trained(ready, tmp_path_factory):
    """Every policy, trained once, by stage."""
    return {stage: watched(stage, ready, tmp_path_factory.mktemp(stage)) for stage in POLICIES}


def watched(stage, home, out):
    seeds, shown, sample = {"step": [], "validation": []}, {}, SamplingEnvironment.sample

    def noted(self, places, samples, draw, *more):
        seeds["step" if self.rows[0]["dataset"] else "validation"].append((self.config.seed, draw))
        return sample(self, places, samples, draw, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SamplingEnvironment, "sample", noted)
        patch.setattr(tracking, "record_table", lambda frame, name: shown.update({name: frame}))
        return Trained(train(stage, home, out, **FEW[stage]), out, seeds, shown)


@pytest.mark.parametrize("stage", POLICIES)
def test_some_samples_are_kept_beside_the_policy(trained, stage):
    """Every step is kept where there are few; of one reward that counts an answer earns just that part."""
    out = trained[stage].out
    found = tables.read_table(RolloutTable, out / "model/rollouts.parquet")
    config, curve = configured(stage), pd.read_csv(out / "curve.csv").set_index("step")
    assert found["step"].unique().tolist() == [*curve.index] == [*range(1, config.steps + 1)]
    assert (found["group"].max(), found["sample"].max()) == (
        min(2, config.prompts_per_step) - 1,
        min(8, config.samples) - 1,
    )
    counted = [name for name, weight in config.reward.items() if weight]
    parts = found["parts"].map(json.loads)
    assert [part[counted[0]] for part in parts] == pytest.approx(found["reward"].tolist(), abs=1e-6)
    assert not [*find_file_problems(out / "model")]
    assert (curve["sampling/logp_difference"] < 1e-4).all()


@pytest.mark.parametrize("stage", POLICIES)
def test_the_out_is_a_model_that_moved(ready, trained, stage):
    out = trained[stage].out / "model"
    model, words = AutoModelForCausalLM.from_pretrained(out), models.load_tokenizer(out)
    assert words.get_vocab() == models.load_tokenizer(ready / "pretrained").get_vocab()
    before = AutoModelForCausalLM.from_pretrained(ready / "pretrained").state_dict()
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert not same(before, after)
    assert all(weight.isfinite().all() for weight in after.values())


@pytest.mark.parametrize("stage", POLICIES)
def test_the_curve_has_a_finite_row_a_step(trained, stage):
    metrics, out = trained[stage].metrics, trained[stage].out
    curve = pd.read_csv(out / "curve.csv")
    assert curve["step"].tolist() == [1, 2, 3, 4]
    assert torch.tensor(curve.to_numpy()).isfinite().all()
    assert list(find_file_problems(out)) == [], "what every out is held against"
    assert {*curve.columns} - {"step"} == metrics.keys()
    expected = {*SAMPLES, ENTROPY.get(stage, "entropy"), "rewards/reward_model", "rewards/verifiable"}
    assert {*expected, "eval_reward", "eval_accuracy", "eval_rubric", "grad_norm"} <= metrics.keys()
    assert "rewards/rubric" not in metrics, "of the training samples only what counts"
    for name, value in metrics.items():
        assert value == pytest.approx(curve[name].iloc[-1], rel=1e-6), "of the last tenth of the steps"


@pytest.mark.parametrize("stage", marked(POLICIES, ["grpo"]))
def test_the_seed_decides(ready, trained, tmp_path, stage):
    train(stage, ready, tmp_path / "same", **FEW[stage])
    for file in ("model/model.safetensors", "curve.csv"):
        assert (tmp_path / "same" / file).read_bytes() == (trained[stage].out / file).read_bytes()
    train(stage, ready, tmp_path / "other", **{**FEW[stage], "seed": 1, "steps": 1, "evaluate_every": 0})
    first, other = (pd.read_csv(out / "curve.csv").iloc[0] for out in (trained[stage].out, tmp_path / "other"))
    assert first["reward"] != other["reward"]
    assert first["grad_norm"] != other["grad_norm"]


@pytest.mark.parametrize(
    ("stage", "keep", "scores", "kept"),
    [("ppo", "best", (1, 3, 2), 1), ("grpo", "best", (3, 1, 2), 0), ("reinforce", "last", (3, 2, 1), 2)],
)
def test_what_is_kept(ready, tmp_path, monkeypatch, stage, keep, scores, kept):
    """The policy is evaluated before step 1 and after steps 2 and 4, with prescribed results."""
    seen = []

    def evaluate(trainee):
        seen.append({name: weight.detach().clone() for name, weight in trainee.policy.state_dict().items()})
        return {"eval_reward": float(scores[len(seen) - 1])}

    monkeypatch.setattr(Trainee, "evaluate", evaluate)
    few = {"ppo": {"epochs": 1, "minibatches": 1}, "reinforce": {"baseline": "running_mean", "variance_every": 0}}
    train(stage, ready, tmp_path, keep=keep, prompts_per_step=2, max_new_tokens=2, **few.get(stage, {}))
    assert [same(weights(tmp_path), there) for there in seen] == [place == kept for place in range(3)]
    expected = [scores[0], scores[1], scores[1], scores[2]]
    assert pd.read_csv(tmp_path / "curve.csv")["eval_reward"].tolist() == expected


def test_the_best_is_as_good_as_the_curve_says(ready, tmp_path):
    """The saved model alone is judged again."""
    few = {"max_new_tokens": 4, "prompts_per_step": 2}
    train("grpo", ready, tmp_path, keep="best", steps=3, evaluate_every=1, learning_rate=0.02, **few)
    curve, config = pd.read_csv(tmp_path / "curve.csv"), configured("grpo", **few)
    found = {}
    for name in ("before", "after"):
        path = ready / "pretrained" if name == "before" else tmp_path / "model"
        trained, words = trained_model.load_trainable_model(path, config.training), models.load_tokenizer(path)
        table = tables.read_table(Prompts, ready / "mixture/validation.parquet").head(config.evaluate_prompts)
        with open_judge(config, {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
            held_out = SamplingEnvironment(trained.model, words, table, judge.copy_with_rubric(), config)
            found[name] = Trainee(config, trained, words, held_out, held_out).evaluate()["eval_reward"]
    assert found["after"] == pytest.approx(max(found["before"], *curve["eval_reward"]), rel=1e-6)
    assert curve["eval_reward"].nunique() == 3


@pytest.mark.parametrize("stage", POLICIES)
def test_validation_draws_by_a_seed_that_no_step_has(trained, stage):
    """Otherwise the samples of a step would also measure it."""
    seeds = trained[stage].seeds
    assert len(set(seeds["step"])) == 4
    assert len(set(seeds["validation"])) == 1
    assert not {*seeds["step"]} & {*seeds["validation"]}


def test_gold_stands_beside_the_reward_on_the_same_answers(ready, tmp_path, monkeypatch):
    """Answers to validation problems are right, wrong but with steps, or empty; the reward is the reward model's."""
    config, words = configured("ppo"), models.load_tokenizer(ready / "pretrained")
    trained = trained_model.load_trainable_model(ready / "pretrained", config.training)
    table = tables.read_table(Prompts, ready / "mixture/validation.parquet").head(3)
    first, second = table["solution"].iloc[0], table["solution"].iloc[1]
    texts = [first, second.replace(f"#### {table['answer'].iloc[1]}", "#### 0"), "no"]
    encoded = [chat.encode_response(words, text) for text in texts]

    def drawn(*_, **__):
        longest = max(map(len, encoded))
        mask = torch.tensor([[at < len(row) for at in range(longest)] for row in encoded])
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in encoded])
        yield rollouts.Rollouts(tokens, mask, -mask.float(), torch.ones(3, dtype=torch.bool))

    monkeypatch.setattr(rollouts, "sample_rollouts", drawn)
    with open_judge(config, {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
        held_out = SamplingEnvironment(trained.model, words, table, judge.copy_with_rubric(), config)
        found = Trainee(config, trained, words, held_out, held_out).evaluate()
        answered = [
            AnsweredProblem(row.question, row.solution, row.answer, text, True)
            for row, text in zip(table.itertuples(), texts, strict=True)
        ]
        expected = sum(map(rubric, answered)) / 3
        assert found["eval_reward"] == pytest.approx(held_out.sample(range(3), 1, 0).rewards.mean().item())
    assert found["eval_accuracy"] == pytest.approx(1 / 3)
    assert found["eval_rubric"] == pytest.approx(expected)
    assert rubric(answered[0]) == 1 > rubric(answered[1]) > rubric(answered[2])


@pytest.mark.parametrize("stage", POLICIES)
def test_keep_best_without_evaluations_is_refused(stage):
    with pytest.raises(ValidationError, match=r"evaluate_every\n.*expected at least 1 with keep best"):
        configured(stage, keep="best", evaluate_every=0)
    configured(stage, keep="last", evaluate_every=0)


def test_a_reward_that_few_prompts_ask_for_is_in_every_row(ready, tmp_path):
    """A step has one prompt, and one of four prompts is from a data set with its own reward."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("pretrained", "reward_model"):
        (home / name).symlink_to(ready / name)
    table = tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(4)
    mixed = table.assign(reward=["rubric", "policy", "policy", "policy"])
    tables.write_table(Prompts, mixed, home / "mixture/prompts.parquet")
    shutil.copy(ready / "mixture/validation.parquet", home / "mixture")
    metrics = train("grpo", home, tmp_path, prompts_per_step=1, max_new_tokens=2, evaluate_every=0)
    curve = pd.read_csv(tmp_path / "curve.csv")
    gap = {name: (curve["reward"] - curve[f"rewards/{name}"]).abs() < 1e-5 for name in ("rubric", "reward_model")}
    assert (gap["rubric"].sum(), gap["reward_model"].sum()) == (1, 3)
    assert metrics["rewards/rubric"] == pytest.approx(curve["rewards/rubric"].iloc[-1])
    assert list(find_file_problems(tmp_path)) == []


@pytest.fixture
def without_answers(ready, tmp_path):
    """`ready` with prompts that have no reference, as those of UltraFeedback."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("pretrained", "reward_model"):
        (home / name).symlink_to(ready / name)
    for part in ("prompts", "validation"):
        table = tables.read_table(Prompts, ready / f"mixture/{part}.parquet").assign(answer="", solution="")
        tables.write_table(Prompts, table, home / f"mixture/{part}.parquet")
    return home


@pytest.mark.parametrize("stage", marked([*POLICIES, "rejection_sft"], ["grpo"]))
def test_prompts_without_answers_are_learned_from_by_the_reward_model_alone(without_answers, tmp_path, stage):
    """All that is logged is a number; a reward that needs an answer is refused before anything is sampled."""
    metrics = train(stage, without_answers, tmp_path / "out", **FROM_HERE if stage == "rejection_sft" else ONE_STEP)
    assert list(find_file_problems(tmp_path / "out")) == []
    if stage != "rejection_sft":
        assert metrics["rewards/verifiable"] == 0
        assert metrics.keys() & {"eval_reward", "eval_accuracy", "eval_rubric"} == {"eval_reward"}
    for reward in ("verifiable", "rubric"):
        with pytest.raises(StageError) as stopped:
            train(stage, without_answers, tmp_path / reward, reward=reward)
        assert str(stopped.value).endswith(f": there is no answer, which the reward {reward} needs")
        assert str(stopped.value).startswith("prompts: problems/train-")
        assert not (tmp_path / reward).exists()


@pytest.mark.parametrize(
    ("earned", "mean", "none"),
    [
        ([1.0, 0.5, 0.0], 0.5, 0),
        ([1.0, 0.5, math.nan], 0.5, 1 / 3),  # 0: not right
        ([-1.0, -3.0, math.nan, math.nan], -2.5, 0.5),  # -3: not better than the worst
        ([math.nan] * 3, 0.0, 1),
    ],
)
def test_in_an_evaluation_an_answer_without_a_reward_is_not_right(earned, mean, none):
    found = policy_training.compute_eval_reward_metrics(torch.tensor(earned))
    assert found == {"eval_reward": pytest.approx(mean), "eval_reward/none": pytest.approx(none)}


def test_no_held_out_prompts_are_refused_where_they_are_asked_for(without_answers, tmp_path):
    table = tables.read_table(Prompts, without_answers / "mixture/validation.parquet")
    tables.write_table(Prompts, table.head(0), without_answers / "mixture/validation.parquet")
    with pytest.raises(StageError, match=r"^params\.yaml: ppo\.evaluate_every: there are no held-out prompts"):
        train("ppo", without_answers, tmp_path / "out")
    few = {"steps": 1, "max_new_tokens": 2, "epochs": 1, "minibatches": 1}
    train("ppo", without_answers, tmp_path / "out", evaluate_every=0, keep="last", **few)
    assert list(find_file_problems(tmp_path / "out")) == []


@pytest.mark.parametrize("stage", POLICIES)
def test_a_reward_that_is_no_number_stops_the_stage(ready, tmp_path, monkeypatch, stage):
    monkeypatch.setattr(Judge, "__call__", judge_that_fails_at(2))
    with pytest.raises(TrainingError) as stopped:
        train(stage, ready, tmp_path, **{**FEW[stage], "evaluate_every": 0, "max_new_tokens": 2})
    line = f"{stage}: step 2: the reward of response 1 is inf (1 of 9 are no finite numbers)"
    assert str(stopped.value) == line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stage", POLICIES)
def test_samples_are_kept_with_the_run_for_people_to_read(ready, trained, stage):
    """Of the first step, and of every second one."""
    shown = trained[stage].shown
    assert [*shown] == ["samples/step-00001.json", "samples/step-00002.json", "samples/step-00004.json"]
    rewards = pd.read_csv(trained[stage].out / "curve.csv").set_index("step")["reward"]
    questions = {*tables.read_table(Prompts, ready / "mixture/prompts.parquet")["question"]}
    for step, frame in zip((1, 2, 4), shown.values(), strict=True):
        assert [*frame] == ["prompt", "response", "reward", "ended"]
        assert len(frame) == 9
        assert {*frame["prompt"]} <= questions
        assert frame["reward"].mean() == pytest.approx(rewards[step], rel=1e-5)

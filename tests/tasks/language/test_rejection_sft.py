import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from tasks.algorithms.common.errors import TrainingError
from tasks.common import models, tables
from tasks.language.data import chat, forms
from tasks.language.rewards.weighted_rewards import Rewards
from tasks.language.tables.problems import Demonstrations, Prompts
from tasks.language.training.judge import Judge
from tests.tasks.policies import judge_that_fails_at, train


@pytest.fixture(scope="module")
def tuned(ready, tmp_path_factory):
    out = tmp_path_factory.mktemp("rejection_sft")
    return train("rejection_sft", ready, out), out


def test_the_answers_it_learned_from_are_to_the_first_prompts(ready, tuned):
    metrics, out = tuned
    chosen = tables.read_table(Demonstrations, out / "model/selected.parquet")
    mixture = tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(8)
    assert chosen["demonstration_id"].tolist() == mixture["prompt_id"].tolist()
    asked = [turns[:-1] for turns in map(forms.parse_messages_json, chosen["messages"])]
    assert asked == [[{"role": "user", "content": question}] for question in mixture["question"]]
    assert (metrics["prompts"], metrics["selected"]) == (8, 8)
    assert metrics["reward_of_best"] > metrics["reward"]


def test_the_out_is_a_model_that_moved(ready, tuned):
    curve = pd.read_csv(tuned[1] / "curve.csv")
    assert len(curve) == 4, "8 answers in batches of 2"
    AutoModelForCausalLM.from_pretrained(tuned[1] / "model")
    files = [path / "model.safetensors" for path in (ready / "pretrained", tuned[1] / "model")]
    assert files[0].read_bytes() != files[1].read_bytes()


def test_the_seed_decides(ready, tuned, tmp_path):
    for name, seed in (("same", 0), ("other", 1)):
        train("rejection_sft", ready, tmp_path / name, seed=seed)
    found = [path / "model/model.safetensors" for path in (tuned[1], tmp_path / "same", tmp_path / "other")]
    assert found[0].read_bytes() == found[1].read_bytes() != found[2].read_bytes()


def test_an_empty_answer_teaches_nothing(ready, tmp_path, monkeypatch):
    """Even if its reward is high, as here for being short. The best sample of a prompt that is not empty is kept."""
    answers = []

    def by_shortness(self, asked, responses, ended):
        texts = [
            chat.decode_response(self.tokenizer, row[kept], done)
            for row, kept, done in zip(responses.tokens, responses.mask, ended, strict=True)
        ]
        answers.extend(texts)
        found = torch.tensor([-float(len(text)) for text in texts])
        return Rewards(found, found, {})

    monkeypatch.setattr(Judge, "__call__", by_shortness)
    metrics = train("rejection_sft", ready, tmp_path, minimum_reward=-1e9, samples=400, max_new_tokens=2)
    said = [[text for text in answers[start : start + 400] if text] for start in range(0, len(answers), 400)]
    chosen = tables.read_table(Demonstrations, tmp_path / "model/selected.parquet")
    assert "" in answers
    learned = [turns[-1] for turns in map(forms.parse_messages_json, chosen["messages"])]
    best = [min(texts, key=len) for texts in said if texts]
    assert learned == [{"role": "assistant", "content": text} for text in best]
    assert metrics["reward_of_best"] > -sum(map(len, best)) / len(best)


def test_a_reward_that_is_no_number_stops_the_stage(ready, tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "__call__", judge_that_fails_at(2))
    with pytest.raises(TrainingError, match=r"^rejection_sft: sampling: step 2: the reward of response 1 is inf"):
        train("rejection_sft", ready, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_answer_without_a_reward_is_never_chosen(ready, tmp_path, monkeypatch):
    """Rewards are negative, none for the second half of each prompt's answers, and for all of the first prompt's: 8
    prompts, 4 answers each.
    """
    chosen = []

    def some(self, asked, responses, ended):
        found = torch.tensor([[-1.0, -2.0, torch.nan, torch.nan]]).repeat(len(asked) // 4, 1)
        if not chosen:
            found[0] = torch.nan
        chosen.append(responses)
        return Rewards(found.flatten(), found.flatten(), {})

    monkeypatch.setattr(Judge, "__call__", some)
    changes = {"minimum_reward": -9.0, "samples": 4, "max_new_tokens": 8}
    metrics = train("rejection_sft", ready, tmp_path, **changes)
    assert (metrics["prompts"], metrics["selected"], metrics["unjudged"]) == (8, 7, 1)
    assert (metrics["reward"], metrics["reward_of_best"]) == (-1.5, -1.0)
    assert metrics["reward/none"] == pytest.approx(18 / 32)
    first = tables.read_table(Prompts, ready / "mixture/prompts.parquet")["prompt_id"][0]
    assert first not in set(tables.read_table(Demonstrations, tmp_path / "model/selected.parquet")["demonstration_id"])
    chosen.clear()
    with pytest.raises(
        TrainingError, match=r"^rejection_sft: sampling: step 1: \d+ of \d+ responses \(.*reward_none_limit = 0\.5"
    ):
        train("rejection_sft", ready, tmp_path / "limited", reward_none_limit=0.5, **changes)
    assert not (tmp_path / "limited").exists()


def test_a_minimum_that_none_reaches_costs_the_policy_its_training_and_nothing_else(ready, tmp_path, capsys):
    """The out is the policy that it started from, so that what comes after can go on."""
    metrics = train("rejection_sft", ready, tmp_path, minimum_reward=99.0)
    assert metrics["selected"] == 0
    assert "no answer earned rejection_sft.minimum_reward = 99.0" in capsys.readouterr().err
    assert tables.read_table(Demonstrations, tmp_path / "model/selected.parquet").empty
    assert pd.read_csv(tmp_path / "curve.csv").empty
    before, after = (models.load_model(path).state_dict() for path in (ready / "pretrained", tmp_path / "model"))
    assert all(torch.equal(before[name], after[name]) for name in before)

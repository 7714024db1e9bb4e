import pandas as pd
import pytest
from transformers import AutoModelForCausalLM

from tasks import artifacts, schemas
from tests.tasks.policies import train


@pytest.fixture(scope="module")
def tuned(ready, tmp_path_factory):
    out = tmp_path_factory.mktemp("rejection_sft")
    return train("rejection_sft", ready, out), out


def test_the_answers_it_learned_from_are_to_the_first_prompts(ready, tuned):
    metrics, out = tuned
    chosen = artifacts.read(schemas.Demonstrations, out / "model/selected.parquet")
    mixture = artifacts.read(schemas.Prompts, ready / "mixture/prompts.parquet").head(8)
    assert chosen["problem_id"].tolist() == mixture["prompt_id"].tolist()
    assert chosen["prompt"].tolist() == mixture["question"].tolist()
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


def test_a_minimum_that_none_reaches_is_named(ready, tmp_path):
    with pytest.raises(SystemExit, match=r"rejection_sft\.minimum_reward: no answer earned 99\.0; lower it"):
        train("rejection_sft", ready, tmp_path, minimum_reward=99.0)
    assert not list(tmp_path.iterdir())

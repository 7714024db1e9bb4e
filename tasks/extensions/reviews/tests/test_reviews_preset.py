"""Preset reviews at tiny size: a language model of reviews, a classifier as the reward, three policies, and the page
about them.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
from ruamel.yaml import YAML

from tests import repository
from tests.clone import Clone, states

STEERED = ("reinforce", "ppo", "grpo")
SMALL = {
    "reviews": {"corpus": 60, "train": 60, "test": 8, "reward": 30, "second": 60, "held_out": 20},
    "problems": {"train": 60, "validation": 4, "test": 8},
    "pretrained": {"width": 16, "layers": 1, "steps": 4},
    "sft": {"demonstrations": 20},
    "reward_model": {"epochs": 1},
    "mixture": {"prompts": 20, "skip": 20},
    **{name: {"steps": 2, "prompts_per_step": 3, "samples": 2, "max_new_tokens": 8} for name in STEERED},
    "steering": {"openings": 6, "samples": 2, "max_new_tokens": 8, "bootstrap": 20},
}


@pytest.mark.slow
def test_policies_are_steered_and_compared(tmp_path: Path) -> None:
    own = YAML(typ="safe").load(repository.preset_file("reviews"))
    params = {name: {**own.get(name, {}), **SMALL.get(name, {})} for name in {**own, **SMALL}}
    clone = Clone.of_this(tmp_path / "posttrain", params)
    found = states(clone.posttrain("run", "steering"))
    assert found.keys() == {"ran"}
    assert {"reviews", "solutions", "reward_model", "steering@reviews", *STEERED} <= found["ran"]
    assert not {"preferences", "responses", "dpo", "evaluate@sft", "report"} & found["ran"]
    asked = pd.read_parquet(clone.root / "data/problems/test.parquet")["question"]
    table = pd.read_parquet(clone.root / "data/steering/reviews/continuations.parquet")
    assert {*table["opening"]} == {*asked.head(6)}
    assert [*table["policy"].unique()] == ["sft", *STEERED]
    metrics = json.loads((clone.root / "data/metrics/steering@reviews.json").read_text())
    for name in STEERED:
        curve = pd.read_csv(clone.root / f"data/curves/{name}.csv")
        assert curve["reward"].between(0, 1).all()
        assert metrics[name]["kl"]["mean"] != 0.0
    assert "objective/kl" in pd.read_csv(clone.root / "data/curves/reinforce.csv")
    assert (clone.root / "data/steering/reviews/steering.html").is_file()
    assert states(clone.posttrain("run", "steering")) == {"up-to-date": found["ran"]}

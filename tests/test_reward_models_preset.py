"""Preset reward-models, laid over preset tiny: a process reward model is trained, guides two policies, and is
reported.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
from ruamel.yaml import YAML

from tests.clone import ROOT, Clone, states

GUIDED = ("ppo", "grpo")


@pytest.mark.slow
def test_a_process_reward_model_guides_policies(tmp_path: Path) -> None:
    tiny, own = (YAML(typ="safe").load(ROOT / f"presets/{name}.yaml") for name in ("tiny", "reward-models"))
    params = {name: {**tiny.get(name, {}), **own.get(name, {})} for name in {**tiny, **own}}
    clone = Clone.of_this(tmp_path / "posttrain", params)
    found = states(clone.posttrain("run", "language"))
    assert found.keys() == {"ran"}
    assert {"solutions", "reward_model", *GUIDED, "evaluate@grpo", "report"} <= found["ran"]
    assert not {"preferences", "dpo", "reinforce", "rejection_sft"} & found["ran"]
    config = json.loads((clone.root / "data/reward_model/config.json").read_text())
    assert config["reward_objective"] == "process"
    for name in GUIDED:
        curve = pd.read_csv(clone.root / f"data/curves/{name}.csv")
        assert curve["rewards/process"].between(0, 1).all()
    assert (clone.root / "report.html").is_file()
    assert states(clone.posttrain("run", "language")) == {"up-to-date": found["ran"]}

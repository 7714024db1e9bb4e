"""The parameters of this repository's own stages: what is wrong is told in one line, before anything runs."""

import shutil
from pathlib import Path

import pytest

from flows import parameters
from flows.validation import ParameterError

ROOT = Path(__file__).parent.parent
SET = "{name: a, source: problems, location: '', weight: 1.0, reward: policy}"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["grpo.aggregation=foo"], "grpo.aggregation: expected 'grpo' or 'bnpo' or 'dr_grpo' or 'dapo', got 'foo'"),
        (["grpo.reward.verifiable=-1"], "grpo.reward.verifiable: expected a number of at least 0, got -1"),
        (["grpo.reward.verifable=1"], "grpo.reward.verifable: unknown parameter; did you mean grpo.reward.verifiable?"),
        (["grpo.reward=1"], "grpo.reward: expected keys with values, got 1"),
        (
            ["grpo.reward.verifiable=0"],
            "grpo.reward.verifiable: expected a number above 0 here or in another weight, got 0",
        ),
        (["grpo.samples=1"], "grpo.samples: expected a whole number of at least 2, got 1"),
        (
            ["reinforce.keep=best", "reinforce.evaluate_every=0"],
            "reinforce.evaluate_every: expected a whole number of at least 1 with keep best, got 0",
        ),
        (["reinforce.baseline=mean"], "reinforce.baseline: expected 'none' or 'running_mean' or 'critic', got 'mean'"),
        (["ppo.kl_target=high"], "ppo.kl_target: expected a number above 0 or null, got 'high'"),
        (["ppo.kl_target=0"], "ppo.kl_target: expected a number above 0 or null, got 0"),
        (["ppo.clip_ratio=1"], "ppo.clip_ratio: expected a number above 0 and below 1, got 1"),
        (
            ["rejection_sft.minimum_reward=best"],
            "rejection_sft.minimum_reward: expected a number, got 'best'",
        ),
        (["mixture.datasets=[]"], "mixture.datasets: expected a list of at least 1 items, got []"),
        (
            ["mixture.datasets=[{name: a}]"],
            "mixture.datasets.0.source: missing; expected 'problems' or 'file' or 'hub'",
        ),
        (
            [f"mixture.datasets=[{SET}, {SET.replace('problems', 'web')}]"],
            "mixture.datasets.1.source: expected 'problems' or 'file' or 'hub', got 'web'",
        ),
        (
            [f"mixture.datasets=[{SET.replace('1.0', '0')}]"],
            "mixture.datasets.0.weight: expected a number above 0, got 0",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_value_is_one_line_and_the_file_stays(tmp_path, settings, line):
    for name in ("params.yaml", "params.schema.json"):
        shutil.copy(ROOT / name, tmp_path)
    with pytest.raises(ParameterError) as told:
        parameters.edit(tmp_path, [parameters.setting(text) for text in settings])
    assert str(told.value) == f"--set {line}"
    assert (tmp_path / "params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()


@pytest.mark.parametrize(
    "setting",
    ["ppo.kl_target=0.5", "ppo.kl_target=null", "grpo.reward.rubric=0.5", f"mixture.datasets=[{SET}]", "ppo.keep=best"],
)
def test_a_right_value_is_taken(tmp_path, setting):
    for name in ("params.yaml", "params.schema.json"):
        shutil.copy(ROOT / name, tmp_path)
    parameters.edit(tmp_path, [parameters.setting(setting)])
    parameters.check(tmp_path)

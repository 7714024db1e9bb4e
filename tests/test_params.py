"""The parameters of this repository's own stages: what is wrong is told in one line, before anything runs."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows import parameters
from flows.validation import ParameterError

ROOT = Path(__file__).parent.parent
IMPORT = "transitions.datasets.x={environment: Hopper-v5, source: d4rl, location: it.hdf5, steps: null, episodes: null}"
SET = (
    "{name: a, source: problems, location: '', hub_config: null, hub_revision: null, hub_split: null, "
    "weight: 1.0, reward: policy}"
)


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
        (["evaluate.temperatures=[0.5, 0]"], "evaluate.temperatures.1: expected a number above 0, got 0"),
        (
            ["evaluate.candidates=[0.5, 0.5]"],
            "evaluate.candidates: expected a list of at least 1 items and with none twice, got [0.5, 0.5]",
        ),
        (["evaluate.temperature=0.5"], "evaluate.temperature: unknown parameter; did you mean evaluate.temperatures?"),
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
        (
            [IMPORT.replace("it.hdf5", "null")],
            "transitions.datasets.x.location: expected text of what is imported, got null",
        ),
        (
            [IMPORT.replace("d4rl", "minari-remote").replace("it.hdf5", "null")],
            "transitions.datasets.x.location: expected text of what is imported, got null",
        ),
        (
            [IMPORT.replace("d4rl", "random")],
            "transitions.datasets.x.steps: expected a whole number here or in episodes, got null",
        ),
        (
            [IMPORT.replace("Hopper-v5", "Hoper-v5")],
            "transitions.datasets.x.environment: expected a key of behaviour.environments (did you mean Hopper-v5?), got 'Hoper-v5'",
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
    [
        "ppo.kl_target=0.5",
        "ppo.kl_target=null",
        "grpo.reward.rubric=0.5",
        f"mixture.datasets=[{SET}]",
        "ppo.keep=best",
        IMPORT,
        IMPORT.replace("d4rl", "medium-replay").replace("it.hdf5", "null"),
        IMPORT.replace("d4rl", "random").replace("episodes: null", "episodes: 9"),
    ],
)
def test_a_right_value_is_taken(tmp_path, setting):
    for name in ("params.yaml", "params.schema.json"):
        shutil.copy(ROOT / name, tmp_path)
    parameters.edit(tmp_path, [parameters.setting(setting)])
    parameters.check(tmp_path)


@pytest.mark.parametrize("source", ["d4rl", "minari", "minari-remote"])
def test_what_is_to_be_imported_must_be_there_where_it_is_needed(tmp_path, source):
    for name in ("params.yaml", "params.schema.json"):
        shutil.copy(ROOT / name, tmp_path)
    parameters.edit(tmp_path, [parameters.setting(IMPORT.replace("d4rl", source))])
    parameters.check_outside(tmp_path, {"transitions@graph-60", "bc@x", "report"})
    if source == "minari-remote":  # Minari will look for it elsewhere
        return parameters.check_outside(tmp_path, {"transitions@x"})
    told = r"^params.yaml: transitions.datasets.x.location: data/raw/transitions/it.hdf5 does not exist$"
    with pytest.raises(ParameterError, match=told):
        parameters.check_outside(tmp_path, {"transitions@x"})
    (tmp_path / "data/raw/transitions").mkdir(parents=True)
    (tmp_path / "data/raw/transitions/it.hdf5").touch()
    parameters.check_outside(tmp_path, {"transitions@x"})


def test_an_environment_must_be_there_where_it_is_needed(tmp_path):
    params, schema = (ROOT / name for name in ("params.yaml", "params.schema.json"))
    shutil.copy(schema, tmp_path)
    (tmp_path / "params.yaml").write_text(params.read_text().replace("CartPole-v1", "CartPole-v9"))
    parameters.check(tmp_path)
    known = {f"behaviour@{name}" for name in ("graph", "key-to-door", "LunarLander-v3", "Hopper-v5")}
    parameters.check_outside(tmp_path, {*known, "transitions@CartPole-v9-medium-replay"})
    told = r"^params.yaml: behaviour.environments.CartPole-v9: Gymnasium has no such environment \(did you mean CartPole-v1\?\)$"
    with pytest.raises(ParameterError, match=told):
        parameters.check_outside(tmp_path, {*known, "behaviour@CartPole-v9"})


def test_the_preset_of_the_decision_transformer_is_the_papers_setting(tmp_path):
    """Of its appendix and its code (arXiv:2106.01345), once laid over params.yaml, which says the rest."""
    for name in ("params.yaml", "params.schema.json"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    parameters.edit(tmp_path, parameters.preset(tmp_path, "decision-transformer"))
    section = YAML(typ="safe").load(tmp_path / "params.yaml")["decision_transformer"]
    paper = {
        "width": 128, "layers": 3, "heads": 1, "dropout": 0.1, "batch_size": 64, "learning_rate": 1e-4,
        "weight_decay": 1e-4, "warmup": 10_000, "last_rate": 1.0, "steps": 100_000, "clip": 0.25,
    }  # fmt: skip
    assert {key: section[key] for key in paper} == paper
    targets = {"Hopper": [3600, 1800], "HalfCheetah": [12000, 6000], "Walker2d": [5000, 2500]}
    for data_set, asked in section["datasets"].items():
        environment = data_set.split("-")[0]
        if environment == "Reacher":  # version 5's returns are negative: D4RL's targets would mean nothing
            assert (asked["scale"], asked["context"]) == (10, 5)
        else:
            assert asked == {"targets": targets[environment], "scale": 1000, "context": 20}
    assert len(section["datasets"]) == 4 * 3

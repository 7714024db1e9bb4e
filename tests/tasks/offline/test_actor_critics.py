"""The stages awr, iql, cql and those of extensions on small data sets: what they write, and that a killed training
resumes exactly.
"""

import re
from itertools import islice

import pandas as pd
import pytest
import torch

from tasks.common.errors import StageError
from tasks.offline import awr, cql, iql
from tasks.offline.datasets import dataset_files
from tasks.offline.policies import kinds
from tasks.offline.training import learners
from tests import extensions
from tests.tasks.offline.critics import CRITICS
from tests.tasks.offline.worlds import record

LEARNER = {
    "datasets": [],
    "steps": 7,
    "batch_size": 16,
    "log_every": 3,
    "evaluate_every": 3,
    "evaluate_episodes": 1,
    "bfloat16": False,
    "hidden": [8],
}
AWR = {
    "gamma": 0.9,
    "lam": 0.9,
    "beta": 1.0,
    "max_weight": 20.0,
    "refresh_every": 3,
    "learning_rate": 0.01,
    "value_learning_rate": 0.01,
}
IQL = {
    **CRITICS,
    **{"expectile": 0.8, "beta": 1.0, "max_weight": 100.0, "variants": {"IQL": {"online": True}}},
    "fine_tuning": {"after": 3, "steps": 2, "replay": 40, "share": None},
}
CQL = {
    "gamma": 0.9,
    "learning_rate": 0.01,
    "loss": "squared",
    "target_every": 1,
    "target_rate": 0.1,
    "variants": {"CQL": {"discrete": 1.0, "continuous": 1.0, "calibrated": False, "online": False}},
    "fine_tuning": {"after": 3, "steps": 2, "replay": 40, "share": 0.5, "epsilon": 0.3},
    "continuous": {"gap": 1.0, "samples": 2, "critics": 2, "policy_learning_rate": 0.01, "target_rate": 0.1},
}
CAL_QL = {**CQL, "variants": {"CQL": {**CQL["variants"]["CQL"], "calibrated": True, "online": True}}}
EXTENSIONS = extensions.entries("STAGES", "learners")
DISCRETE_TOO = ("awr", "iql", "cal-ql", *extensions.entries("DISCRETE", "learners"))
STAGES = {
    "awr": (awr.run, awr.AwrConfig, AWR, "AWR"),
    "iql": (iql.run, iql.IqlConfig, IQL, "IQL"),
    "cql": (cql.run, cql.CqlConfig, CQL, "CQL"),
    "cal-ql": (cql.run, cql.CqlConfig, CAL_QL, "CQL"),
    **EXTENSIONS,
}
ENVIRONMENTS = {"discrete": "CartPole-v1", "continuous": "Hopper-v5"}
CASES = [
    *((stage, "discrete") for stage in DISCRETE_TOO),
    *((stage, "continuous") for stage in STAGES),
]


def config(stage, seeds=(0, 1)):
    _, kind, own, _ = STAGES[stage]
    return kind(seeds=list(seeds), **LEARNER, **own)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the data sets `discrete` and `continuous`."""
    home = tmp_path_factory.mktemp("data")
    for name, environment in ENVIRONMENTS.items():
        record(home / name, environment, 3)
    return home


@pytest.mark.parametrize(("stage", "actions"), CASES)
def test_every_seed_leaves_a_policy_that_plays_and_its_curve(stage, actions, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _, _, variant = STAGES[stage]
    metrics = run(config(stage), data / actions, tmp_path / "out")
    curves = pd.read_csv(tmp_path / "out" / "curves.csv")
    assert curves.groupby("seed")["step"].apply(list).to_dict() == {0: [3, 6, 7], 1: [3, 6, 7]}
    assert curves.notna().all(axis=None)
    assert set(metrics) == set(curves["variant"]) == {variant}
    recording = dataset_files.read_offline_dataset(data / actions)
    for seed in (0, 1):
        policy = kinds.load_policy_of_any_kind(tmp_path / "out" / variant / f"seed-{seed}")
        acted = policy.act(recording.transitions.observations)
        assert acted.shape == recording.transitions.actions.shape
        if actions == "continuous":
            assert acted.abs().max() <= 1
    run(config(stage, seeds=[1]), data / actions, tmp_path / "again" / "out")
    again = pd.read_csv(tmp_path / "again" / "out" / "curves.csv")
    pd.testing.assert_frame_equal(again, curves[curves["seed"] == 1].reset_index(drop=True), check_exact=True)
    for file in (tmp_path / "again" / "out").rglob("seed-1/*"):
        assert file.read_bytes() == (tmp_path / "out" / variant / "seed-1" / file.name).read_bytes(), file


@pytest.mark.parametrize(("stage", "actions"), CASES)
def test_what_is_kept_of_a_training_is_all_that_it_needs_to_go_on(stage, actions, data, monkeypatch):
    """The training is cut between two refreshes of the weights (AWR) and after the warm-up (BEAR, BRAC)."""
    run, _, _, variant = STAGES[stage]
    builders = {}
    monkeypatch.setattr(
        learners, "train_all_variants", lambda name, config, transitions, out, variants: builders.update(variants)
    )
    run(config(stage), data / actions, data / "out")
    recording = dataset_files.read_offline_dataset(data / actions)

    def started(seed):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        learner = builders[variant](recording, seed, generator)
        return learner, generator

    whole, _ = started(0)
    expected = list(islice(whole.steps, 7))[4:]
    first, generator = started(0)
    list(islice(first.steps, 4))
    kept = {
        name: {key: tensor.detach().clone() for key, tensor in part.state_dict().items()}
        for name, part in first.state.items()
    }
    drawn = generator.get_state()
    second, generator = started(1)
    for name, part in second.state.items():
        part.load_state_dict(kept[name])
    generator.set_state(drawn)
    assert list(islice(second.steps, 3)) == expected


@pytest.mark.parametrize("stage", [stage for stage in EXTENSIONS if stage not in DISCRETE_TOO])
def test_some_say_that_they_are_for_continuous_actions(stage, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _, _, variant = STAGES[stage]
    with pytest.raises(
        StageError, match=rf"^{stage}: data set discrete: {re.escape(variant)} is for continuous actions"
    ):
        run(config(stage), data / "discrete", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stage", ["iql", "cal-ql"])
def test_a_variant_that_would_never_go_online_is_refused(stage):
    _, kind, own, variant = STAGES[stage]
    never = {"fine_tuning": {**own["fine_tuning"], "after": LEARNER["steps"]}}
    given = {**LEARNER, **own, "seeds": [0], **never}
    with pytest.raises(ValueError, match=f"expected after below steps, which are {LEARNER['steps']}"):
        kind.model_validate(given)
    offline = {variant: {**own["variants"][variant], "online": False}}
    assert kind.model_validate({**given, "variants": offline})

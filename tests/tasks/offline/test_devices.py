"""Every learner runs on the stage's device: here on a pretended one, which is as strict as a GPU about where tensors
lie.
"""

import sys

import pandas as pd
import pytest
import torch

from tasks.algorithms.offline.hindsight import Hindsight
from tasks.common import checkpoints
from tasks.offline import awr, bc, cql, decision_transformer, dqn, iql, returns
from tasks.offline.configs.learners import ExplorationConfig
from tasks.offline.environments import simulators
from tasks.offline.policies import kinds
from tasks.offline.reporting import measurements
from tasks.offline.training.online import Explorer
from tests import extensions
from tests.conftest import PARAMS
from tests.tasks import elsewhere
from tests.tasks.offline.worlds import record

SMALL = {
    "seeds": [0],
    "steps": 3,
    "batch_size": 8,
    "log_every": 3,
    "evaluate_every": 9,
    "evaluate_episodes": 1,
    "hidden": [8],
    "refresh_every": 2,
    "warmup": 2,
    "width": 8,
    "layers": 1,
    "dropout": 0.0,  # its random numbers are each device's own
    "relabel": "none",
    "relabelled": 1,
    "fine_tuning": {"after": 2, "steps": 1, "replay": 9, "share": 0.5},
    "synthetic": {
        "states": 5,
        "steps": 1,
        "rows": 2,
        "length": 4,
        "learning_rate": 0.0001,  # Adam enlarges what attention rounds otherwise
    },
    "variants": {
        name: {"double": True, "target": True, "replay": True, "online": name == "online", "relabel": "none"}
        for name in ("DQN", "online")
    },
    "exploration": {"replay": 40, "warmup": 9, "steps": 2, "first_epsilon": 0.5, "last_epsilon": 0.5, "last_from": 9},
    "datasets": {
        name: {"targets": [1.0], "scale": 1.0, "context": 3, "steps": None} for name in ("discrete", "continuous")
    },
}
OWN = {
    **extensions.entries("OWN", "learners"),
    "iql": {"variants": {"IQL": {"online": True}}},
    "decision_transformer": {
        "variants": {init: {"init": init, "text": 0.0} for init in ("random", "synthetic")},
    },
    "cql": {
        "variants": {"Cal-QL": {"discrete": 1.0, "continuous": 1.0, "calibrated": True, "online": True}},
        "fine_tuning": SMALL["fine_tuning"] | {"epsilon": 0.1},
    },
}
FITTED = {
    "most_steps": 5,
    "seeds": 1,
    "tolerance": 0.05,
    "batch_size": 8,
    "hidden": [8],
    "learning_rate": 0.01,
    "target_rate": 0.1,
}
EXTENSIONS = extensions.entries("STAGES", "learners")
CONFIGS = {
    "bc": bc.BcConfig,
    "dqn": dqn.DqnConfig,
    "cql": cql.CqlConfig,
    "awr": awr.AwrConfig,
    "iql": iql.IqlConfig,
    "decision_transformer": decision_transformer.DecisionTransformerConfig,
    **{name: config for name, (_, config, _, _) in EXTENSIONS.items()},
}
RUNS = {
    "bc": bc.run,
    "dqn": dqn.run,
    "cql": cql.run,
    "awr": awr.run,
    "iql": iql.run,
    "decision_transformer": lambda config, data, out: decision_transformer.run(config, data, data, data, out),
    **{name: run for name, (run, _, _, _) in EXTENSIONS.items()},
}
CONTINUOUS_ALONE = EXTENSIONS.keys() - extensions.entries("DISCRETE", "learners")
CASES = [
    (method, actions)
    for method in CONFIGS
    for actions in ("discrete", "continuous")
    if (method, actions) not in (("dqn", "continuous"), *((name, "discrete") for name in CONTINUOUS_ALONE))
]
STEPS = {"_fused_adam_", "_fused_adamw_"}
WORK = {"addmm", "mm", "bmm", *STEPS}  # what learning is made of


def small(method, **others):
    section = PARAMS[method]
    changes = {key: value for key, value in SMALL.items() if key in section}
    changes |= OWN.get(method, {})
    if isinstance(section["datasets"], list):
        changes["datasets"] = []
    return CONFIGS[method].model_validate({**section, **changes, **others})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the data sets `discrete` and `continuous`."""
    home = tmp_path_factory.mktemp("data")
    for name, environment in (("discrete", "CartPole-v1"), ("continuous", "Hopper-v5")):
        record(home / name, environment, 2)
    return home


@pytest.fixture(autouse=True)
def supported(monkeypatch, tmp_path):
    """What torch lacks for the device that pretends."""
    monkeypatch.chdir(tmp_path)
    optimizer, autocast = sys.modules["torch.optim.optimizer"], torch.autocast
    monkeypatch.setattr(optimizer, "_get_fused_kernels_supported_devices", lambda: ["cpu", "cuda", elsewhere.NAME])
    monkeypatch.setattr(
        torch,
        "autocast",
        lambda device, *options, **more: autocast(device.replace(elsewhere.NAME, "cpu"), *options, **more),
    )


def learn(method, data, out, device, monkeypatch, **changes):
    """The stage's learning curves on that device; its policies can be loaded."""
    monkeypatch.setenv("POSTTRAIN_DEVICE", device)
    RUNS[method](small(method, **changes), data, out)
    policies = sorted(file.parent for file in out.rglob("*.safetensors"))
    assert policies
    assert all(kinds.load_policy_of_any_kind(policy) for policy in policies)
    return pd.read_csv(out / "curves.csv")


ALONE = {"discrete": "random", "continuous": "synthetic"}  # a Decision Transformer's init, of which each is enough once


def of_one_init(method, actions):
    """What is changed for a Decision Transformer, so that it has one variant."""
    init = ALONE[actions]
    return {"variants": {init: {"init": init, "text": 0.0}}} if method == "decision_transformer" else {}


@pytest.mark.parametrize(("method", "actions"), CASES)
def test_all_is_learned_on_the_stage_s_device(method, actions, data, tmp_path, monkeypatch):
    changes = of_one_init(method, actions)
    here = learn(method, data / actions, tmp_path / "here", "cpu", monkeypatch, **changes)
    monkeypatch.setattr(
        checkpoints.ResumableTraining, "_write", lambda *_: None
    )  # it keeps tensors that have no bytes there
    with elsewhere.Mode() as mode:
        there = learn(method, data / actions, tmp_path / "there", elsewhere.NAME, monkeypatch, **changes)
    assert mode.away & STEPS
    assert not mode.at_home & WORK
    pd.testing.assert_frame_equal(there, here, rtol=1e-4)  # from the same seeds; attention is rounded otherwise


RELABELLED = {
    "bc": ("bit-flip", {"relabel": "future"}),
    "dqn": (
        "bit-flip",
        {
            "variants": {
                name: {"double": True, "target": True, "replay": True, "online": name == "online", "relabel": "final"}
                for name in ("DQN", "online")
            },
            "exploration": {**SMALL["exploration"], "warmup": 20},
        },
    ),
    **extensions.entries("RELABELLED", "learners"),
}


@pytest.mark.parametrize("method", RELABELLED)
def test_goals_are_relabelled_on_the_stage_s_device(method, tmp_path, monkeypatch):
    environment, changes = RELABELLED[method]
    data = record(tmp_path / environment, environment, 2)
    here = learn(method, data, tmp_path / "here", "cpu", monkeypatch, **changes)
    monkeypatch.setattr(checkpoints.ResumableTraining, "_write", lambda *_: None)
    with elsewhere.Mode() as mode:
        there = learn(method, data, tmp_path / "there", elsewhere.NAME, monkeypatch, **changes)
    assert not mode.at_home & WORK
    pd.testing.assert_frame_equal(there, here, rtol=1e-4)


def test_an_episode_is_gone_on_with_on_the_stage_s_device():
    """What was saved comes from the disk to the CPU."""

    def exploring(device):
        config = ExplorationConfig(replay=40, warmup=9, steps=2, first_epsilon=1.0, last_epsilon=1.0, last_from=1)
        generator = torch.Generator().manual_seed(0)
        relabelling = Hindsight(simulators.build_environment_goals("bit-flip"), "future", 1)
        return Explorer("bit-flip", None, config, 0, generator, torch.device(device), relabelling=relabelling)

    first = exploring("cpu")
    next(first.batches(4))
    kept = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    assert len(kept["actions_played"]) == 11
    with elsewhere.Mode():
        second = exploring(elsewhere.NAME)
        second.load_state_dict(kept)
        assert {step.action.device.type for step in second.episode} == {elsewhere.NAME}
        second.play()
        assert second.state_dict()["actions_played"].device.type == elsewhere.NAME
        second.play()
        second.play()  # past the end of the episode
        assert second.replay.added == 11 + 6 + 15


def measured(data, policies, out, device, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_DEVICE", device)
    config = returns.ReturnsConfig.model_validate(
        {**PARAMS["returns"], "episodes": 2, "gamma": 0.9, "fitted_q": FITTED}
    )
    returns.run(config, policies, data, out)
    return measurements.read_return_scores(out)


@pytest.mark.parametrize("method", ["cql", "decision_transformer"])
def test_policies_are_measured_on_the_stage_s_device(method, data, tmp_path, monkeypatch):
    policies = tmp_path / method / "discrete"
    learn(method, data / "discrete", policies, "cpu", monkeypatch, **of_one_init(method, "discrete"))
    here = measured(data / "discrete", policies, tmp_path / "here", "cpu", monkeypatch)
    with elsewhere.Mode() as mode:
        there = measured(data / "discrete", policies, tmp_path / "there", elsewhere.NAME, monkeypatch)
    assert not mode.at_home & WORK
    assert mode.away & WORK
    pd.testing.assert_frame_equal(there.episodes, here.episodes)
    pd.testing.assert_frame_equal(there.values, here.values)


def test_what_lies_elsewhere_meets_nothing_that_does_not():
    """The pretended device acts like one: an operation between it and the CPU is an error, copies between them are
    allowed.
    """
    with elsewhere.Mode():
        there, here = torch.ones(3).to(elsewhere.NAME), torch.arange(3.0)
        assert there.device.type == elsewhere.NAME
        with pytest.raises(RuntimeError, match="is on the CPU, others are elsewhere"):
            there + here
        assert (there + here.to(elsewhere.NAME)).cpu().tolist() == [1, 2, 3]
        assert torch.zeros(2, device=elsewhere.NAME).add_(1).sum().item() == 2


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "actions"), CASES)
def test_a_gpu_learns_what_the_cpu_does(method, actions, data, tmp_path, monkeypatch):
    """The seeds are equal; sums in another order differ in their last bits."""
    there = learn(method, data / actions, tmp_path / "gpu", "cuda", monkeypatch)
    here = learn(method, data / actions, tmp_path / "cpu", "cpu", monkeypatch)
    pd.testing.assert_frame_equal(there, here, rtol=1e-3)


@pytest.mark.gpu
def test_a_gpu_measures_what_the_cpu_does(data, tmp_path, monkeypatch):
    policies = tmp_path / "cql" / "discrete"
    learn("cql", data / "discrete", policies, "cpu", monkeypatch)
    here, there = (
        measured(data / "discrete", policies, tmp_path / name, name, monkeypatch).values["value"]
        for name in ("cpu", "cuda")
    )
    assert there.to_numpy() == pytest.approx(here.to_numpy(), rel=1e-2)

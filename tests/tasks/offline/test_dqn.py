from itertools import islice
from math import inf

import pandas as pd
import pytest
import torch
from ruamel.yaml import YAML

from tasks.algorithms.offline.transition_tensors import Transitions
from tasks.common.errors import StageError
from tasks.offline import cql, dqn
from tasks.offline.datasets import dataset_files
from tasks.offline.environments import simulators
from tasks.offline.policies import kinds
from tasks.offline.training import learners
from tests.clone import ROOT
from tests.conftest import PARAMS
from tests.tasks.offline.worlds import record

EXPLORATION = {"replay": 60, "warmup": 20, "steps": 3, "first_epsilon": 1.0, "last_epsilon": 0.2, "last_from": 40}
COMMON = {
    "datasets": [],
    "seeds": [0, 1],
    "steps": 7,
    "batch_size": 16,
    "log_every": 3,
    "evaluate_every": 3,
    "evaluate_episodes": 1,
    "bfloat16": False,
    "hidden": [8],
    "learning_rate": 0.01,
    "gamma": 0.9,
    "loss": "huber",
    "target_every": 3,
    "target_rate": 1.0,
}
PLAIN = {"double": True, "target": True, "replay": True, "online": False, "relabel": "none"}
VARIANTS = {
    "DQN": {},
    "single": {"double": False},
    "no target": {"target": False},
    "no replay": {"replay": False},
    "online": {"online": True},
    "online, no replay": {"online": True, "replay": False},
}
DQN = dqn.DqnConfig.model_validate(
    {
        **COMMON,
        "variants": {name: PLAIN | changed for name, changed in VARIANTS.items()},
        "relabelled": 4,
        "exploration": EXPLORATION,
    }
)
CQL = cql.CqlConfig.model_validate(
    {
        **COMMON,
        "variants": {
            name: {"discrete": weight, "continuous": 1.0, "calibrated": False, "online": False}
            for name, weight in (("CQL", 0.5), ("none", 0.0))
        },
        "fine_tuning": {"after": 3, "steps": 1, "replay": 50, "share": 0.5, "epsilon": 0.1},
        "continuous": {"gap": None, "samples": 2, "critics": 2, "policy_learning_rate": 0.01, "target_rate": 0.1},
    }
)
STAGES = {"dqn": (dqn.run, DQN), "cql": (cql.run, CQL)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return record(tmp_path_factory.mktemp("data") / "CartPole-v1-random", "CartPole-v1", 6)


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def made(stage, data, out):
    run, config = STAGES[stage]
    return run(config, data, out)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The folder that each stage leaves."""
    home = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for stage in STAGES:
            made(stage, data, home / stage)
    return {stage: home / stage for stage in STAGES}


@pytest.mark.parametrize("terminated", [False, True])
def test_cal_ql_refers_to_episodes_that_ended_and_to_no_cut_one(terminated):
    """Costs of 1 for ever are worth -10 at this discount; the three that were seen before a cut are no bound of
    that.
    """
    ends = torch.tensor([False, False, terminated])
    data = Transitions(
        torch.eye(3), torch.zeros(3, dtype=torch.long), -torch.ones(3), torch.eye(3), ends, torch.tensor([3])
    )
    variant = CQL.variants["CQL"].model_copy(update={"calibrated": True})
    batches, _ = cql._make_batches(CQL, variant, data, torch.Generator().manual_seed(0), None)
    batch = next(iter(batches))
    earned = torch.tensor([-2.71, -1.9, -1.0]) if terminated else torch.full((3,), -inf)
    torch.testing.assert_close(batch.reference, earned[batch.observations.argmax(1)])


def first_seen(data):
    """The first observations of all its episodes: there are fewer than are watched at most."""
    transitions = dataset_files.read_offline_dataset(data).transitions
    assert len(transitions.starts) <= learners.STARTS
    return transitions.observations[transitions.starts]


@pytest.mark.parametrize("stage", STAGES)
def test_every_variant_and_seed_has_a_policy_and_a_curve_of_the_same_bytes_each_time(stage, data, trained, tmp_path):
    curves = pd.read_csv(trained[stage] / "curves.csv")
    variants = list(STAGES[stage][1].variants)
    assert list(curves["variant"].unique()) == variants
    assert curves.groupby(["variant", "seed"])["step"].apply(list).tolist() == [[3, 6, 7]] * 2 * len(variants)
    assert curves.notna().all(axis=None)
    for variant in variants:
        for seed in (0, 1):
            policy = kinds.load_policy_of_any_kind(trained[stage] / variant / f"seed-{seed}")
            assert policy.gamma == 0.9
            last = curves[(curves["variant"] == variant) & (curves["seed"] == seed)].iloc[-1]
            assert last["initial_value"] == pytest.approx(policy.values(first_seen(data)).mean().item())
    run, config = STAGES[stage]
    run(config.model_copy(update={"seeds": [1]}), data, tmp_path / "again")
    again = pd.read_csv(tmp_path / "again" / "curves.csv")
    pd.testing.assert_frame_equal(again, curves[curves["seed"] == 1].reset_index(drop=True), check_exact=True)
    for file in (path for path in (tmp_path / "again").rglob("seed-1/*")):
        assert file.read_bytes() == (trained[stage] / file.relative_to(tmp_path / "again")).read_bytes(), file


def test_cql_of_no_weight_is_double_dqn(trained):
    weights = [path / "seed-0" / "model.safetensors" for path in (trained["dqn"] / "DQN", trained["cql"] / "none")]
    others = [path / "seed-0" / "model.safetensors" for path in (trained["dqn"] / "single", trained["cql"] / "CQL")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert all(other.read_bytes() != weights[0].read_bytes() for other in others)


def test_what_it_learns_from_is_normalised_as_what_it_acts_on(data, monkeypatch):
    recording = dataset_files.read_offline_dataset(data)
    learner = builders(monkeypatch, data, "dqn")["DQN"](recording, 0, torch.Generator().manual_seed(0))
    seen = []
    learner.policy.layers.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    next(iter(learner.steps))
    drawn = next(recording.transitions.batches(16, torch.Generator().manual_seed(0)))
    following, observations = seen
    assert torch.equal(following, learner.policy.normaliser(drawn.next_observations))
    assert torch.equal(observations, learner.policy.normaliser(drawn.observations))


def builders(monkeypatch, data, stage):
    """What the stage hands to `learning.run`: a builder for each variant."""
    found = {}
    monkeypatch.setattr(
        learners, "train_all_variants", lambda name, config, transitions, out, variants: found.update(variants)
    )
    made(stage, data, data / "out")
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_kept_of_a_training_is_all_that_it_needs_to_go_on(variant, data, monkeypatch):
    """The training is cut between two updates of the target network, and for `online` in the middle of an episode."""
    build, recording = builders(monkeypatch, data, "dqn")[variant], dataset_files.read_offline_dataset(data)

    def started(seed):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        return build(recording, seed, generator), generator

    whole, _ = started(0)
    expected = list(islice(whole.steps, 40))[10:]
    first, generator = started(0)
    list(islice(first.steps, 10))
    kept = {
        name: {key: tensor.detach().clone() for key, tensor in part.state_dict().items()}
        for name, part in first.state.items()
    }
    if "online" in variant:
        assert len(kept["explorer"]["actions_played"]) > 1
    drawn = generator.get_state()
    second, generator = started(1)
    for name, part in second.state.items():
        part.load_state_dict(kept[name])
    generator.set_state(drawn)
    assert list(islice(second.steps, 30)) == expected


def test_without_a_target_network_the_network_values_its_own_actions(data, trained, tmp_path):
    """As with a target network that is copied in every step, and not as with the section's, copied in every third."""
    few = {name: DQN.variants[name] for name in ("DQN", "no target")}
    often = DQN.model_copy(update={"target_every": 1, "variants": few, "seeds": [0]})
    dqn.run(often, data, tmp_path / "often")
    weights = {
        (run, name): (folder / name / "seed-0" / "model.safetensors").read_bytes()
        for run, folder in (("section", trained["dqn"]), ("often", tmp_path / "often"))
        for name in ("DQN", "no target")
    }
    assert weights["section", "no target"] == weights["often", "no target"] == weights["often", "DQN"]
    assert weights["section", "no target"] != weights["section", "DQN"]


def test_without_replay_batches_are_steps_that_followed_each_other(data, monkeypatch):
    recording = dataset_files.read_offline_dataset(data)
    rows = {tuple(row): number for number, row in enumerate(recording.transitions.observations.tolist())}

    def batches(variant, layer_inputs):
        learner = builders(monkeypatch, data, "dqn")[variant](recording, 0, torch.Generator().manual_seed(0))
        learner.policy.layers.register_forward_hook(lambda module, inputs, output: layer_inputs.append(inputs[0]))
        list(islice(learner.steps, 3))
        normaliser = learner.policy.normaliser
        kept = layer_inputs[1::2]  # the first of each step are the next observations
        return learner, [(seen * normaliser.deviation + normaliser.mean) for seen in kept]

    _, offline = batches("no replay", [])
    for seen in offline:
        numbers = [
            min(rows.items(), key=lambda row: sum(abs(a - b) for a, b in zip(row[0], one, strict=True)))[1]
            for one in seen.tolist()
        ]
        assert numbers == [(numbers[0] + step) % len(rows) for step in range(16)]
    learner, _ = batches("online, no replay", seen := [])
    latest = learner.state["explorer"].replay.latest(16).observations
    assert torch.equal(seen[-1], latest)


def test_continuous_actions_are_refused_in_one_line(tmp_path):
    data = record(tmp_path / "swings", "Pendulum-v1", 2)
    with pytest.raises(StageError, match=r"^data set swings: actions are continuous; [^\n]*$"):
        made("dqn", data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_online_it_finds_what_a_single_recorded_walk_cannot_show(tmp_path):
    walk = record(tmp_path / "graph-1", "graph", 1)
    settings = {
        "variants": {name: PLAIN | {"online": name == "online"} for name in ("DQN", "online")},
        "seeds": [0],
        "steps": 400,
        "batch_size": 32,
        "log_every": 100,
        "evaluate_every": 8,
        "evaluate_episodes": 19,
        "hidden": [64],
        "learning_rate": 0.005,
        "target_every": 40,
    }
    config = dqn.DqnConfig.model_validate({**DQN.model_dump(), **settings})
    metrics = dqn.run(config, walk, tmp_path / "out")
    assert metrics["online"]["return"] >= simulators.OPTIMA["graph"] - 0.2
    assert metrics["DQN"]["return"] < -6


@pytest.mark.slow
def test_online_it_learns_to_balance_the_pole(tmp_path):
    """With the preset's settings, on one seed; random play reaches 22, and the maximum is 500."""
    data = record(tmp_path / "CartPole-v1-random", "CartPole-v1", 50)
    preset = YAML(typ="safe").load(ROOT / "presets" / "online-dqn.yaml")["dqn"]
    exploration = {**PARAMS["dqn"]["exploration"], **preset.pop("exploration")}
    variants = {"online DQN": preset.pop("variants")["online DQN"]}
    section = {**PARAMS["dqn"], **preset, "seeds": [0], "variants": variants, "exploration": exploration}
    dqn.run(dqn.DqnConfig.model_validate(section), data, tmp_path / "out")
    assert pd.read_csv(tmp_path / "out" / "returns.csv")["return"].max() >= 475

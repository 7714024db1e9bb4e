import json

import numpy as np
import pandas as pd
import pytest

from tasks import behaviours, check, recordings, simulators
from tasks.offline import behaviour
from tasks.offline.behaviour import BehaviourConfig, Checkpoint, Training, choose, reference_of, run

CART = Training(steps=8192, replay=1000, medium=0.4, evaluate_every=2, learning_rate=0.002, gamma=0.98, entropy=0.0)
NONE = CART.model_copy(update={"steps": 0, "replay": 0})
CONFIG = BehaviourConfig(
    environments={"CartPole-v1": CART, "graph": NONE, "key-to-door": NONE, "Hopper-v5": NONE, "Reacher-v5": NONE},
    seed=0,
    copies=8,
    horizon=32,
    hidden=[32],
    lam=0.9,
    clip=0.2,
    epochs=8,
    minibatches=2,
    max_gradient=0.5,
    evaluate_episodes=10,
    measure_episodes=20,
)


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    out = tmp_path_factory.mktemp("behaviour") / "CartPole-v1"
    return out, run(CONFIG, out)


def test_ppo_learns_and_its_way_is_kept(cart):
    out, metrics = cart
    assert list(metrics) == ["random", "medium", "expert"]
    assert metrics["random"]["mean"] < 35
    assert metrics["expert"]["mean"] > 200
    assert metrics["random"]["mean"] + 20 < metrics["medium"]["mean"] < metrics["expert"]["mean"] - 20
    assert 0 == metrics["random"]["steps"] < metrics["medium"]["steps"] < metrics["expert"]["steps"] <= CART.steps
    for estimate in metrics.values():
        assert estimate["low"] <= estimate["mean"] <= estimate["high"]
    reference = behaviours.reference(out)
    assert (reference.minimum, reference.maximum) == (metrics["random"]["mean"], metrics["expert"]["mean"])
    assert len(pd.read_csv(out / "curve.csv")) == CART.steps // (CONFIG.copies * CONFIG.horizon)
    evaluations = pd.read_csv(out / "evaluations.csv")
    assert evaluations["step"].tolist() == [0, *range(512, CART.steps + 1, 512)]


def test_the_replay_is_the_first_whole_episodes_of_training(cart):
    out, _ = cart
    replay = behaviours.replay(out)
    lengths = [len(one) for one in replay]
    assert sum(lengths[:-1]) < CART.replay <= sum(lengths)
    assert all(one.terminations[-1] for one in replay), "a pole that falls"
    found = recordings.read(out / "replay")
    assert found.environment == "CartPole-v1"
    early, late = np.array_split([one.rewards.sum() for one in replay], 2)
    assert early.mean() < 35, "it begins as a random policy"
    assert late.mean() < behaviours.reference(out).maximum


def test_the_policies_are_those_that_were_measured(cart):
    out, metrics = cart
    for tier in ("random", "medium", "expert"):
        returns = behaviour._play("CartPole-v1", behaviours.policy(out, tier), 20, behaviour.MEASURED_BY)
        assert returns.mean() == metrics[tier]["mean"]


def test_the_outs_are_sound(cart):
    assert list(check.problems(cart[0])) == []


def test_same_seed_same_bytes(tmp_path):
    config = CONFIG.model_copy(update={"environments": {"CartPole-v1": CART.model_copy(update={"steps": 3072})}})
    outs = [tmp_path / name / "CartPole-v1" for name in ("one", "same", "other")]
    for out, seed in zip(outs, (0, 0, 1), strict=True):
        run(config.model_copy(update={"seed": seed}), out)
    one, same, other = (
        {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*.*") if file.is_file()} for out in outs
    )
    assert {"medium/model.safetensors", "replay/data/main_data.hdf5", "measured.parquet", "curve.csv"} <= one.keys()
    assert one == same
    assert all(one[name] != other[name] for name in ("expert/model.safetensors", "replay/data/main_data.hdf5"))


@pytest.mark.parametrize(
    ("environment", "maximum"),
    [("graph", simulators.OPTIMA["graph"]), ("key-to-door", 1.0), ("Hopper-v5", 3234.3)],
)
def test_without_steps_there_is_a_random_policy_and_a_known_maximum(environment, maximum, tmp_path):
    metrics = run(CONFIG, tmp_path / environment)
    assert list(metrics) == ["random"]
    assert json.loads((tmp_path / environment / "reference.json").read_text())["maximum"] == maximum
    assert metrics["random"]["mean"] < maximum
    assert list(check.problems(tmp_path)) == []
    for tier, told in (("expert", "no expert policy"), ("medium", "no medium policy")):
        with pytest.raises(SystemExit, match=rf"{environment}: {told}; .*steps is 0\?"):
            behaviours.policy(tmp_path / environment, tier)
    with pytest.raises(SystemExit, match=r"replay is 0\?"):
        behaviours.replay(tmp_path / environment)


def test_what_is_good_must_be_known(tmp_path):
    with pytest.raises(SystemExit, match=r"behaviour.environments.Reacher-v5: steps is 0, but what a good return is"):
        run(CONFIG, tmp_path / "Reacher-v5")
    with pytest.raises(
        SystemExit, match=r"behaviour.environments.x: the best policy's return 9.0 is not above .* 10.0"
    ):
        reference_of("x", {"random": 10.0, "expert": 9.0})


def way(*values):
    return [Checkpoint(100 * number, value, None) for number, value in enumerate(values)]


def test_medium_and_expert_by_hand():
    """From 0 to 100: a third of the way is nearest to 30; what comes after the best one is not looked at."""
    chosen = choose("x", 1 / 3, way(0.0, 10.0, 30.0, 45.0, 100.0, 34.0, 90.0))
    assert {tier: checkpoint.steps for tier, checkpoint in chosen.items()} == {"medium": 200, "expert": 400}
    assert choose("x", 0.9, way(0.0, 10.0, 30.0, 100.0))["medium"].steps == 200


@pytest.mark.parametrize("values", [(0.0, 100.0, 50.0), (50.0, 10.0, 20.0)])
def test_no_way_between_is_one_clear_line(values):
    with pytest.raises(
        SystemExit, match=r"behaviour.environments.x: no policy was between .*: more steps, or evaluate"
    ):
        choose("x", 0.5, way(*values))

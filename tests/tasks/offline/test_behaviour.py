import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from tasks import check
from tasks.common.errors import StageError
from tasks.offline import behaviour
from tasks.offline.behaviour import Checkpoint, compute_score_reference, run, select_tier_checkpoints
from tasks.offline.configs.behaviour import BehaviourConfig
from tasks.offline.datasets import dataset_files
from tasks.offline.environments import simulators
from tasks.offline.policies import behaviour_folder
from tasks.offline.transitions import FIRST_SEED
from tests.conftest import PARAMS
from tests.tasks.offline.worlds import BEHAVIOUR as CONFIG
from tests.tasks.offline.worlds import BRIEFLY, CART, NO_FILES, NONE


def test_ppo_learns_and_its_way_is_kept(cart):
    out, metrics = cart
    assert list(metrics) == ["random", "medium", "expert"]
    assert metrics["random"]["mean"] < 35
    assert metrics["expert"]["mean"] > 200
    assert metrics["random"]["mean"] + 20 < metrics["medium"]["mean"] < metrics["expert"]["mean"] - 20
    assert 0 == metrics["random"]["steps"] < metrics["medium"]["steps"] < metrics["expert"]["steps"] <= CART.steps
    for tier, estimate in metrics.items():
        assert estimate["low"] <= estimate["mean"] <= estimate["high"]
        second = behaviour._measure_returns(
            "CartPole-v1",
            behaviour_folder.load_behaviour_policy(out, tier),
            CONFIG.final_episodes,
            behaviour.SECOND_LOOK,
        )
        assert estimate["chosen_at"] == second.mean()
    reference = behaviour_folder.read_score_reference(out)
    assert (reference.minimum, reference.maximum) == (metrics["random"]["mean"], metrics["expert"]["mean"])
    assert len(pd.read_csv(out / "curve.csv")) == CART.steps // (CONFIG.copies * CONFIG.horizon)
    evaluations = pd.read_csv(out / "evaluations.csv")
    assert evaluations["step"].tolist() == [0, *range(512, CART.steps + 1, 512)]


def test_the_replay_is_all_of_training_up_to_the_medium_policy(cart):
    """It has whole episodes that had ended at that point; in each of the 8 copies at most one had not."""
    out, metrics = cart
    replay = behaviour_folder.read_replay_episodes(out)
    missing = metrics["medium"]["steps"] - sum(len(one) for one in replay)
    assert 0 <= missing < CONFIG.copies * 500
    assert all(one.terminations[-1] for one in replay), "a pole that falls"
    found = dataset_files.read_offline_dataset(out / "replay")
    assert found.environment == "CartPole-v1"
    early, late = np.array_split([one.rewards.sum() for one in replay], 2)
    assert early[:50].mean() < 35, "it begins as a random policy"
    assert late.mean() < metrics["medium"]["mean"] + 20, "and ends as the medium one"


def test_the_policies_are_those_that_were_measured(cart):
    out, metrics = cart
    for tier in ("random", "medium", "expert"):
        returns = behaviour._measure_returns(
            "CartPole-v1", behaviour_folder.load_behaviour_policy(out, tier), 20, behaviour.MEASURED_BY
        )
        assert returns.mean() == metrics[tier]["mean"]


def test_the_outs_are_sound(cart):
    assert list(check.find_file_problems(cart[0])) == []


def test_same_seed_same_bytes(tmp_path):
    training = CART.model_copy(update={"steps": 1024, "evaluate_every": 1})
    config = BRIEFLY.model_copy(update={"environments": {"CartPole-v1": training}, "evaluate_episodes": 5, "epochs": 4})
    outs = [tmp_path / name / "CartPole-v1" for name in ("one", "same", "other")]
    for out, seed in zip(outs, (0, 0, 1), strict=True):
        run(config.model_copy(update={"seed": seed}), NO_FILES, out)
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
    metrics = run(BRIEFLY, NO_FILES, tmp_path / environment)
    assert list(metrics) == ["random"]
    assert json.loads((tmp_path / environment / "reference.json").read_text())["maximum"] == maximum
    assert metrics["random"]["mean"] < maximum
    assert list(check.find_file_problems(tmp_path)) == []
    for tier, told in (("expert", "no expert policy"), ("medium", "no medium policy")):
        with pytest.raises(StageError, match=rf"{environment}: {told}; .*steps is 0\?"):
            behaviour_folder.load_behaviour_policy(tmp_path / environment, tier)
    with pytest.raises(StageError, match=r"steps is 0\?"):
        behaviour_folder.read_replay_episodes(tmp_path / environment)


def test_a_folder_may_be_named_otherwise_than_its_environment(tmp_path):
    """Not every id can be the name of a branch in DVC, or of a folder."""
    config = BRIEFLY.model_copy(update={"environments": {"hop": NONE.model_copy(update={"id": "Hopper-v5"})}})
    run(config, NO_FILES, tmp_path / "hop")
    assert behaviour_folder.read_environment_id(tmp_path / "hop") == "Hopper-v5"
    assert behaviour_folder.read_score_reference(tmp_path / "hop").maximum == 3234.3
    wrong = config.model_copy(update={"environments": {"hop": NONE.model_copy(update={"id": "no_such:Hopper-v5"})}})
    with pytest.raises(StageError, match=r"^environment no_such:Hopper-v5: no module no_such is installed$"):
        run(wrong, NO_FILES, tmp_path / "hop")


def test_what_is_good_must_be_known(tmp_path):
    run(BRIEFLY, NO_FILES, tmp_path / "Reacher-v5")
    with pytest.raises(
        StageError, match=r"Reacher-v5: no good return is known: branches.behaviour.Reacher-v5.steps is 0"
    ):
        behaviour_folder.read_score_reference(tmp_path / "Reacher-v5")
    with pytest.raises(StageError, match=r"branches.behaviour.x: the best policy's return 9.0 is not above .* 10.0"):
        compute_score_reference("x", "x", {"random": 10.0, "expert": 9.0})


def way(*values):
    return [Checkpoint(100 * number, value, None) for number, value in enumerate(values)]


def as_before(checkpoint):
    """A second look with the results of the first."""
    return checkpoint


def steps(chosen):
    return {tier: checkpoint.steps for tier, checkpoint in chosen.items()}


def test_medium_and_expert_by_hand():
    """From 0 to 100 a third of the way is nearest to 30; checkpoints after the best one are not considered."""
    chosen = select_tier_checkpoints("x", 1 / 3, 3, way(0.0, 10.0, 30.0, 45.0, 100.0, 34.0, 90.0), as_before)
    assert steps(chosen) == {"random": 0, "medium": 200, "expert": 400}
    assert steps(select_tier_checkpoints("x", 0.9, 1, way(0.0, 10.0, 30.0, 100.0), as_before))["medium"] == 200


def test_a_lucky_first_look_chooses_nothing():
    """The policy with the best first look, 120, is really worth 60, and the one that seemed medium is worth 10."""
    truth = {0: 0.0, 100: 10.0, 200: 42.0, 300: 90.0, 400: 60.0, 500: 100.0}
    seen = []

    def again(checkpoint):
        seen.append(checkpoint.steps)
        return Checkpoint(checkpoint.steps, truth[checkpoint.steps], None)

    chosen = select_tier_checkpoints("x", 0.5, 3, way(0.0, 50.0, 40.0, 90.0, 120.0, 95.0), again)
    assert steps(chosen) == {"random": 0, "medium": 200, "expert": 500}
    assert [chosen[tier].value for tier in ("random", "medium", "expert")] == [0.0, 42.0, 100.0]
    assert set(seen) == {0, 100, 200, 300, 400, 500}
    seen.clear()
    assert steps(select_tier_checkpoints("x", 0.5, 1, way(0.0, 50.0, 40.0, 90.0, 120.0, 95.0), again))["expert"] == 400
    assert set(seen) == {0, 400, 200}, "one finalist each: the first look decides"


def test_each_look_is_at_other_episodes():
    """Seeds of three looks of as many episodes as params.yaml asks for do not overlap, nor with those that are
    recorded.
    """
    looks = [behaviour.FIRST_LOOK, behaviour.SECOND_LOOK, behaviour.MEASURED_BY, FIRST_SEED]
    section = BehaviourConfig.model_validate(PARAMS["behaviour"])
    most = max(section.evaluate_episodes, section.final_episodes, section.measure_episodes)
    assert all(later - earlier >= most for earlier, later in pairwise(looks))


@pytest.mark.parametrize("values", [(0.0, 100.0, 50.0), (50.0, 10.0, 20.0)])
def test_no_way_between_is_one_clear_line(values):
    with pytest.raises(StageError, match=r"branches.behaviour.x: no policy was between .*: more steps, or evaluate"):
        select_tier_checkpoints("x", 0.5, 1, way(*values), as_before)

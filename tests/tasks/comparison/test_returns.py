"""Returns against each other: paired by seed and episode, by hand and from files."""

import json

import numpy as np
import pandas as pd
import pytest

from tasks.common.estimates import estimate_mean_over_seeds
from tasks.comparison.__main__ import compare_pair as child
from tasks.comparison.returns import compare_game_returns, compare_returns


@pytest.fixture
def written(tmp_path):
    def write(name, totals, variant="BC", target=float("nan"), environment="graph"):
        """`totals` has the returns by seed and episode."""
        rows = [
            {"variant": variant, "seed": seed, "target": target, "episode": episode, "total": total, "length": 3}
            for seed, of in totals.items()
            for episode, total in enumerate(of)
        ]
        folder = tmp_path / name
        folder.mkdir()
        pd.DataFrame(rows).to_parquet(folder / "episodes.parquet")
        (folder / "description.json").write_text(json.dumps({"environment": environment}))
        return {file.name: str(file) for file in folder.iterdir()}

    return write


OLD = {0: [1.0, 3.0], 1: [2.0, 2.0], 2: [0.0, 4.0]}


def test_seeds_are_paired_by_hand(written):
    new = {0: [2.0, 4.0], 1: [4.0, 4.0], 2: [3.0, 7.0]}
    [row] = compare_returns(written("a", OLD), written("b", new), same=False)["metrics"].values()
    expected = estimate_mean_over_seeds([1.0, 2.0, 3.0])
    assert (row["a"], row["b"], row["difference"]) == pytest.approx((2.0, 4.0, 2.0))
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))
    assert (row["seeds"], row["episodes"], row["interval"]) == (3, 2, "seeds")


def test_only_what_both_played_counts(written):
    found = compare_returns(written("a", OLD), written("b", {1: [5.0], 7: [9.0]}), same=False)
    row = found["metrics"]["BC/return"]
    assert (row["a"], row["b"], row["low"], row["high"], row["seeds"]) == (2.0, 5.0, None, None, 1), (
        "one seed, no interval"
    )
    assert compare_returns(written("c", OLD), written("d", {8: [1.0]}), same=False)["metrics"] == {}


def test_variants_of_other_names_are_each_compared_with_each(written):
    asked = written("b", {0: [1.0], 1: [2.0]}, "DT", 90.0)
    found = compare_returns(written("a", OLD), asked, same=False)
    assert found["metrics"].keys() == {"DT asked for 90 minus BC/return"}
    assert (found["only_a"], found["only_b"]) == ([], [])


def test_itself_differs_by_nothing_and_another_environment_is_a_fault(written):
    own, other = written("a", OLD), written("b", OLD, environment="CartPole-v1")
    [row] = child({"flow": "offline", "same": True, "a": own, "b": own}, 5)["metrics"].values()
    assert (row["low"], row["difference"], row["high"]) == (0, 0, 0)
    told = child({"flow": "offline", "same": False, "a": own, "b": other}, 5)
    assert told == {"fault": "returns in graph and in CartPole-v1 cannot be compared: their units differ"}
    gone = {**own, "episodes.parquet": "nowhere.parquet"}
    assert "nowhere.parquet" in child({"flow": "offline", "same": False, "a": gone, "b": own}, 5)["fault"]


def over_games(differences):
    """Half of the interval over games, by hand."""
    return 1.959963984540054 * float(np.std(differences, ddof=1)) / len(differences) ** 0.5


@pytest.fixture
def played(tmp_path):
    def write(name, totals, temperature=0.0, world="rooms"):
        """`totals` has the returns by seed and game; the seed of a clone is -1."""
        rows = [
            {"seed": seed, "temperature": temperature, "episode": number, "game": 10 * number, "total": total}
            for seed, of in totals.items()
            for number, total in enumerate(of)
        ]
        folder = tmp_path / name
        folder.mkdir()
        frame = pd.DataFrame(rows).assign(optimum=1.0, turns=2, counted="{}")
        frame.to_parquet(folder / "sampled_episodes.parquet")
        (folder / "environment.json").write_text(json.dumps({"kind": world}))
        return {file.name: str(file) for file in folder.iterdir()}

    return write


def test_agents_are_paired_by_seed_and_game(played):
    new = {0: [2.0, 4.0, 50.0], 1: [4.0, 4.0, 50.0], 2: [4.0, 6.0, 50.0]}
    found = compare_game_returns(played("a", OLD), played("b", new), same=False)
    row = found["metrics"]["t0/return"]
    of_seeds, of_games = estimate_mean_over_seeds([1.0, 2.0, 3.0]).high - 2, over_games([7 / 3, 5 / 3])
    half = (of_seeds**2 + of_games**2) ** 0.5
    assert (row["a"], row["b"], row["difference"]) == pytest.approx((2.0, 4.0, 2.0))
    assert (row["low"], row["high"]) == pytest.approx((2 - half, 2 + half))
    assert row["interval"] == "seeds and games"
    assert (row["seeds"], row["episodes"]) == (3, 2), "the third game was played on one side alone"


@pytest.mark.parametrize("turned", [False, True])
def test_a_clone_is_held_against_every_seed(played, turned):
    sides = played("clone", {-1: [1.0, 2.0]}), played("agent", {0: [2.0, 3.0], 1: [4.0, 5.0]})
    row = compare_game_returns(*(sides[::-1] if turned else sides), same=False)["metrics"]["t0/return"]
    assert row["difference"] == pytest.approx(-2.0 if turned else 2.0)
    assert (row["seeds"], row["episodes"]) == (2, 2)


def test_two_clones_are_one_seed_each(played):
    row = compare_game_returns(played("a", {-1: [1.0]}), played("b", {-1: [2.0]}), same=False)["metrics"]["t0/return"]
    assert (row["difference"], row["low"], row["seeds"]) == (1.0, None, 1), "one game is no fact"
    several = compare_game_returns(played("c", {-1: [1.0, 1.0, 2.0]}), played("d", {-1: [2.0, 3.0, 2.0]}), same=False)
    row = several["metrics"]["t0/return"]
    assert (row["low"], row["high"]) == pytest.approx((1 - over_games([1, 2, 0]), 1 + over_games([1, 2, 0])))


def test_one_training_has_no_interval_however_many_games_it_plays(played):
    sides = played("clone", {-1: [1.0, 2.0, 1.0]}), played("agent", {0: [2.0, 3.0, 2.0]})
    row = compare_game_returns(*sides, same=False)["metrics"]["t0/return"]
    assert (row["difference"], row["low"], row["interval"]) == (pytest.approx(1.0), None, "seeds")


def test_agents_of_two_environments_or_temperatures_have_nothing_to_compare(played):
    pair = {"flow": "agents", "same": False, "a": played("a", OLD), "b": played("b", OLD, world="facts")}
    assert child(pair, 9) == {"fault": "returns in two environments cannot be compared: their games differ"}
    assert child(pair | {"b": played("c", OLD, temperature=1.0)}, 9)["metrics"] == {}

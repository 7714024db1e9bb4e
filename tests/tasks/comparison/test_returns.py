"""Offline returns against each other: paired by seed and episode, by hand and from files."""

import json

import pandas as pd
import pytest

from tasks.common.estimates import over_seeds
from tasks.comparison.__main__ import compared as child
from tasks.comparison.returns import compared


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
    [row] = compared(written("a", OLD), written("b", new), same=False)["metrics"].values()
    expected = over_seeds([1.0, 2.0, 3.0])
    assert (row["a"], row["b"], row["difference"]) == pytest.approx((2.0, 4.0, 2.0))
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))
    assert (row["seeds"], row["episodes"], row["interval"]) == (3, 2, "seeds")


def test_only_what_both_played_counts(written):
    found = compared(written("a", OLD), written("b", {1: [5.0], 7: [9.0]}), same=False)
    row = found["metrics"]["BC/return"]
    assert (row["a"], row["b"], row["low"], row["high"], row["seeds"]) == (2.0, 5.0, None, None, 1), (
        "one seed, no interval"
    )
    assert compared(written("c", OLD), written("d", {8: [1.0]}), same=False)["metrics"] == {}


def test_variants_of_other_names_are_each_compared_with_each(written):
    asked = written("b", {0: [1.0], 1: [2.0]}, "DT", 90.0)
    found = compared(written("a", OLD), asked, same=False)
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

"""Each fault has a preset, a picture and a paragraph; its arms are valid, and what they gave is drawn."""

import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks import result_files
from benchmarks.training_faults import numbers, pictures, workspace
from benchmarks.training_faults.__main__ import FAULTS
from flows.params import editing
from tests import repository
from tests.conftest import SECTIONS
from tests.flows.params.conftest import parsed_once  # noqa: F401  # a fixture

ROOT = Path(__file__).parents[2]


MEASURED = [name for name in FAULTS if (workspace.RESULTS / f"{name}.json").is_file()]


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """A folder with the presets and no params.yaml yet."""
    root = tmp_path_factory.mktemp("arms")
    shutil.copytree(ROOT / "presets", root / "presets")
    return root


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_a_preset_and_a_paragraph(name):
    """And a picture where it was measured."""
    page = (ROOT / "docs/faults.md").read_text()
    assert f"Preset `fault-{name}`" in page
    assert (f"(faults/{name}.png)" in page) == (name in MEASURED)
    comment = (ROOT / f"presets/fault-{name}.yaml").read_text().partition("\n\n")[0]
    assert re.search(r"arXiv:|et al\.", comment), "the paper"
    assert "posttrain run --set" in comment, "it says what helps"


@pytest.mark.parametrize(("name", "arm"), [(fault.name, arm) for fault in FAULTS.values() for arm in fault.arms])
def test_what_an_arm_sets_is_accepted(presets, name, arm):
    repository.write_params(presets)
    editing.edit_params(presets, SECTIONS, workspace.list_arm_edits(presets, SECTIONS, name, FAULTS[name].arms[arm]))


@pytest.mark.parametrize("name", MEASURED)
def test_a_picture_shows_the_arms_that_were_kept(tmp_path, monkeypatch, name):
    """All that was kept is of arms that there are, and the picture is as wide as a page wants it."""
    results, written = kept(name), []
    assert {*results} <= {*FAULTS[name].arms}
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: written.append((file, figure.bbox.width)))
    pictures.save_fault_picture(FAULTS[name], results, tmp_path / "picture.png")
    assert written == [(tmp_path / "picture.png", 800)]


def kept(name):
    """The results in the repository."""
    return result_files.load_result(workspace.RESULTS / f"{name}.json")


def test_a_picture_is_a_file_as_wide_as_a_page_wants_it(tmp_path):
    pictures.save_fault_picture(FAULTS[MEASURED[0]], kept(MEASURED[0]), tmp_path / "faults/picture.png")
    width, _ = struct.unpack(">II", (tmp_path / "faults/picture.png").read_bytes()[16:24])
    assert width == 800


def test_results_are_added_by_arm_and_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(workspace, "RESULTS", tmp_path / "results")
    workspace.save_arm_result("x", "with", 0, {"a": 1})
    workspace.save_arm_result("x", "without", 0, {"a": 2})
    workspace.save_arm_result("x", "with", 1, {"a": 3})
    assert workspace.load_fault_results("x") == {"with": {"0": {"a": 1}, "1": {"a": 3}}, "without": {"0": {"a": 2}}}


def test_a_running_mean_begins_with_what_there_is():
    assert pictures.compute_running_mean(np.array([4.0, 0.0, 2.0, 7.0]), 3).tolist() == [4.0, 2.0, 2.0, 3.0]
    assert pictures.compute_running_mean(np.array([4.0, 0.0]), 1).tolist() == [4.0, 0.0]


def test_a_curve_is_told_by_its_first_and_its_last_tenth():
    results = {"with": {"0": {"curve": {"x": [float(n) for n in range(20)]}}}, "measured": {"0": {}}}
    assert numbers.curve(results, "x") == "| | x |\n|---|---|\n| with | 0.5 to 18.5 |\n"


def test_an_evaluation_says_what_is_apart_from_the_first():
    first, near, far = (
        {"a": {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}, "b": {"mean": 1.0, "low": 1.0, "high": 1.0}}
        for mean in (0.5, 0.6, 0.8)
    )
    arms = {name: {"0": {"evaluated": scores}} for name, scores in (("x", first), ("y", near), ("z", far))}
    lines = numbers.evaluated(arms, "a", "b").splitlines()[2:]
    assert [line.split(" | ")[-1] for line in lines] == ["none |", "none |", "a |"]


def test_an_estimator_is_biased_where_its_error_is_beyond_its_interval():
    point = {"exact": 0.05, **{name: {"bias": 0.0, "error": 0.1, "spread": 0.2} for name in ("k1", "k3")}}
    point["k2"] = {"bias": -0.3, "error": 0.1, "spread": 0.2}
    text = numbers.estimators({"grpo": {"0": {"estimates": [point]}}}, "grpo")
    assert text.endswith("| 0.05 | 0.2 | 0.2 | 0.2 | k2 by -0.3 |\n")


@pytest.mark.parametrize(("few", "verdict"), [(0.4, "it moves to larger n"), (0.55, "it does not move to larger n")])
def test_the_turn_of_the_best_of_n_moves_or_does_not(few, verdict):
    """The best of 4 is better than one sample with all pairs, and with few pairs only in the second case."""
    rows = {
        f"default, {name}": {"n": [1, 2, 4, 8], "rubric": [[0.5], [0.6], [last], [0.4]]}
        for name, last in (("60 pairs", few), ("500 pairs", 0.55), ("all pairs", 0.55))
    }
    assert verdict in numbers.moves({"best of n": rows}, "default")

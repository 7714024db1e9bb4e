"""Each fault has a preset, a picture and a paragraph; its arms are valid, and what they gave is drawn."""

import json
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
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
    editing.edit(presets, SECTIONS, workspace.edits(presets, SECTIONS, name, FAULTS[name].arms[arm]))


@pytest.mark.parametrize("name", MEASURED)
def test_a_picture_shows_the_arms_that_were_kept(tmp_path, monkeypatch, name):
    """All that was kept is of arms that there are, and the picture is as wide as a page wants it."""
    results, written = kept(name), []
    assert {*results} <= {*FAULTS[name].arms}
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: written.append((file, figure.bbox.width)))
    pictures.write(FAULTS[name], results, tmp_path / "picture.png")
    assert written == [(tmp_path / "picture.png", 800)]


def kept(name):
    """The results in the repository."""
    return json.loads((workspace.RESULTS / f"{name}.json").read_text())


def test_a_picture_is_a_file_as_wide_as_a_page_wants_it(tmp_path):
    pictures.write(FAULTS[MEASURED[0]], kept(MEASURED[0]), tmp_path / "faults/picture.png")
    width, _ = struct.unpack(">II", (tmp_path / "faults/picture.png").read_bytes()[16:24])
    assert width == 800


def test_results_are_added_by_arm_and_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(workspace, "RESULTS", tmp_path / "results")
    workspace.keep("x", "with", 0, {"a": 1})
    workspace.keep("x", "without", 0, {"a": 2})
    workspace.keep("x", "with", 1, {"a": 3})
    assert workspace.results_of("x") == {"with": {"0": {"a": 1}, "1": {"a": 3}}, "without": {"0": {"a": 2}}}


def test_a_running_mean_begins_with_what_there_is():
    assert pictures.smoothed(np.array([4.0, 0.0, 2.0, 7.0]), 3).tolist() == [4.0, 2.0, 2.0, 3.0]
    assert pictures.smoothed(np.array([4.0, 0.0]), 1).tolist() == [4.0, 0.0]

"""A method of a user's own, made from the blocks of docs/own_method.md in a copy of this repository."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.clone import ROOT, Clone
from tests.test_offline_pipeline import TINY

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs/own_method.md").read_text()
BLOCKS = dict(re.findall(r'^```\w+ title="([^"]*)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
SMALL = {"seeds": [0, 1], "steps": 20, "log_every": 10, "evaluate_every": 2, "hidden": [8]}


def test_the_page_is_all_that_a_new_method_needs(tmp_path: Path) -> None:
    clone = Clone.of_this(tmp_path / "posttrain", TINY)
    for name, text in BLOCKS.items():
        file = clone.root / name
        if name == "dvc.yaml":
            before, returns, after = file.read_text().partition("\n  returns:\n")
            file.write_text(before + "\n" + text + returns + after)
        elif name == "params.yaml, in branches":
            params = clone.root / "params.yaml"
            params.write_text(params.read_text().replace("\nbranches:\n", f"\nbranches:\n{text}"))
        else:
            before = file.read_text() if name == "params.yaml" else ""
            file.write_text(before + "\n" + text)
    policies = {"bc-graph-12": ("bc", "graph-12"), "rwr-graph-12": ("rwr", "graph-12")}
    report = {name: {"method": method, "dataset": dataset} for name, (method, dataset) in policies.items()}
    expected = [{"dataset": "graph-12", "higher": "RWR", "lower": "BC"}]
    clone.edit(
        {
            "rwr": SMALL,
            "branches": {"rwr": ["graph-12"]},
            "offline_report": {"policies": report, "expectations": expected},
        }
    )
    made = subprocess.run(
        [sys.executable, "-m", "tasks.contract"],
        cwd=clone.root,
        env=clone.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "data/code/rwr.json" in (clone.root / "dvc.yaml").read_text()
    assert "temperature of the weights" in (clone.root / "docs/parameters/rwr.md").read_text().lower()
    states = {name: facts["state"] for name, facts in clone.posttrain("run", "offline").items()}
    assert states["rwr@graph-12"] == states["returns@rwr-graph-12"] == states["offline_report"] == "ran"
    curves = pd.read_csv(clone.root / "data/rwr/graph-12/curves.csv")
    assert curves.groupby("seed")["step"].apply(list).to_dict() == {0: [10, 20], 1: [10, 20]}
    assert re.search(r"\| graph-12 \|.*\|", (clone.root / "offline_report.md").read_text())
    assert "RWR" in (clone.root / "offline_report.md").read_text()

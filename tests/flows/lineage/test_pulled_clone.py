"""The whole way of results to another clone and back, by processes: `dvc push`, `git clone`, `dvc pull`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flows.toy_pipeline import GRAPH, environ, make_pipeline, posttrain

pytestmark = pytest.mark.slow


class Clone:
    """A repository of the toy pipeline, worked on by processes alone."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def call(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.root, env=environ(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dvc(self, *arguments: str) -> str:
        return self.call(sys.executable, "-m", "dvc", *arguments)

    def commit(self) -> None:
        who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        self.call("git", "add", "--all")
        self.call("git", *who, "commit", "--quiet", "--message", "results")

    def posttrain(self, *arguments: str, code: int = 0) -> str:
        done = posttrain(self.root, *arguments)
        assert done.returncode == code, done.stderr
        return done.stdout

    def run(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.posttrain("run", "report", "--json", *arguments).splitlines()[-1])

    def push(self) -> None:
        self.commit()
        self.dvc("push", "--quiet")
        self.dvc("push", "--quiet", "--run-cache")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone that has run everything and pushed it to a folder."""
    home = tmp_path_factory.mktemp("first")
    clone = Clone(make_pipeline(home / "first"))
    (home / "store").mkdir()
    clone.dvc("remote", "add", "--quiet", "--default", "store", str(home / "store"))
    clone.commit()
    assert {facts["state"] for facts in clone.run().values()} == {"ran"}
    clone.push()
    return clone


def test_results_that_were_pulled_have_their_origin_and_new_ones_go_back(first: Clone, tmp_path: Path) -> None:
    """By `dvc push --run-cache` and `dvc pull --run-cache` alone."""
    first.call("git", "clone", "--quiet", str(first.root), str(tmp_path / "other"))
    clone = Clone(tmp_path / "other")
    clone.dvc("pull", "--quiet", "--run-cache")
    result = json.loads(clone.posttrain("audit", "--json"))
    assert result["faults"] == []
    assert [remark["what"] for remark in result["remarks"] if remark["check"] == "run"] == [
        f"{len(GRAPH)} runs were made in another clone"
    ]
    assert runs_behind(clone) == runs_behind(first)
    assert "nothing has changed" in clone.posttrain("run", "report")
    assert json.loads(clone.posttrain("audit", "--json"))["faults"] == []

    new = {stage for stage, facts in clone.run("--set", "dpo.beta=0.2").items() if facts["state"] == "ran"}
    assert new == {"dpo", "report"}
    clone.push()
    first.call("git", "pull", "--quiet", str(clone.root))
    first.dvc("pull", "--quiet", "--run-cache")
    assert "nothing has changed" in first.posttrain("run", "report")
    assert runs_behind(first) == runs_behind(clone)
    for one in (first, clone):
        assert json.loads(one.posttrain("audit", "--all", "--json"))["faults"] == []


def runs_behind(clone: Clone) -> dict[str, Any]:
    """The runs that made the report and what it depends on, by their ids, whichever clone made them."""
    lineage = json.loads(clone.posttrain("lineage", "report", "--json"))
    return {run["id"]: {**run, "elsewhere": ""} for run in lineage["runs"]}

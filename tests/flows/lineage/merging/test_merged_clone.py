"""The whole way of results to another clone in real: `dvc push`, `git clone`, `dvc pull`, `posttrain merge-runs`, and back."""

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

    def states(self, *arguments: str) -> dict[str, str]:
        return {stage: facts["state"] for stage, facts in self.run(*arguments).items()}

    def push(self) -> None:
        self.commit()
        self.dvc("push", "--quiet")
        self.dvc("push", "--quiet", "--run-cache")

    def records(self) -> tuple[bytes, dict[str, bytes]]:
        """MLflow's database and the files of runs."""
        artifacts = self.root / "mlruns/artifacts"
        files = {str(file): file.read_bytes() for file in artifacts.rglob("*") if file.is_file()}
        return (self.root / "mlruns/mlflow.db").read_bytes(), files


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone that has run everything and pushed it to a folder."""
    home = tmp_path_factory.mktemp("first")
    clone = Clone(make_pipeline(home / "first"))
    (home / "store").mkdir()
    clone.dvc("remote", "add", "--quiet", "--default", "store", str(home / "store"))
    clone.commit()
    assert {*clone.states().values()} == {"ran"}
    clone.push()
    return clone


@pytest.fixture(scope="module")
def second(first: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone of it with its results and its runs."""
    root = tmp_path_factory.mktemp("second") / "second"
    first.call("git", "clone", "--quiet", str(first.root), str(root))
    clone = Clone(root)
    clone.dvc("pull", "--quiet")
    took = json.loads(clone.posttrain("merge-runs", str(first.root), "--json"))
    assert (len(took["taken"]), took["pipelines"], took["whole"]) == (len(GRAPH) + 1, 1, True)
    return clone


def test_without_a_merge_the_records_that_were_pulled_tell_the_origin(first: Clone, tmp_path: Path) -> None:
    """By `dvc push --run-cache` and `dvc pull --run-cache` alone."""
    first.call("git", "clone", "--quiet", str(first.root), str(tmp_path / "other"))
    clone = Clone(tmp_path / "other")
    clone.dvc("pull", "--quiet", "--run-cache")
    found = json.loads(clone.posttrain("audit", "--json"))
    assert found["faults"] == []
    assert [remark["what"] for remark in found["remarks"] if remark["check"] == "run"] == [
        f"{len(GRAPH)} runs were made in another clone"
    ]
    runs, made = (
        {
            run["id"]: {**run, "elsewhere": ""}
            for run in json.loads(one.posttrain("lineage", "report", "--json"))["runs"]
        }
        for one in (first, clone)
    )
    assert made == runs
    assert "nothing has changed" in clone.posttrain("run", "report")
    assert json.loads(clone.posttrain("audit", "--json"))["faults"] == []


def test_what_was_pulled_has_its_lineage(first: Clone, second: Clone) -> None:
    made = {stage: facts["mlflow_run_id"] for stage, facts in first.run().items()}
    assert {stage: facts["mlflow_run_id"] for stage, facts in second.run().items()} == made
    shown = second.posttrain("lineage", "dpo")
    assert shown == first.posttrain("lineage", "dpo")
    assert "chain breaks" not in shown


def test_nothing_runs_again(second: Clone) -> None:
    before = second.records()
    assert "nothing has changed" in second.posttrain("run", "report")
    assert second.records() == before


def test_the_pulled_results_audit_clean(second: Clone) -> None:
    found = json.loads(second.posttrain("audit", "--all", "--json"))
    assert found["faults"] == [], "what was made elsewhere is said, and no fault"


def test_new_runs_go_back_and_both_have_all(first: Clone, second: Clone) -> None:
    ran = second.run("--set", "dpo.beta=0.2")
    new = {stage for stage, facts in ran.items() if facts["state"] == "ran"}
    assert new == {"dpo", "report"}
    second.push()
    first.call("git", "pull", "--quiet", str(second.root))
    first.dvc("pull", "--quiet")
    first.posttrain("merge-runs", str(second.root))
    assert {stage: facts["mlflow_run_id"] for stage, facts in first.run().items()} == {
        stage: facts["mlflow_run_id"] for stage, facts in ran.items()
    }
    assert "up-to-date" in {*first.states().values()}
    for clone in (first, second):
        assert json.loads(clone.posttrain("audit", "--all", "--json"))["faults"] == []
    settled = [clone.records() for clone in (first, second)]
    for clone, other in ((first, second), (second, first)):
        again = json.loads(clone.posttrain("merge-runs", str(other.root), "--json"))
        assert (again["taken"], again["same"], again["whole"]) == (
            {},
            len([*GRAPH, "pipeline", *new, "pipeline"]),
            True,
        )
    assert [clone.records() for clone in (first, second)] == settled

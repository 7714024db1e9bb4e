"""The offline flow over the real dvc.yaml, with preset tiny, in a copy of this repository; all tests take minutes and
are slow.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tasks import check
from tests import repository
from tests.clone import ROOT, Clone, states

pytestmark = pytest.mark.slow
OFFLINE = {file.stem for file in (ROOT / "tasks/offline").glob("*.py")}
TINY = {name: section for name, section in repository.preset("tiny").items() if name in OFFLINE}
POLICIES = [(policy["method"], policy["dataset"]) for policy in TINY["offline_report"]["policies"].values()]
STAGES = {
    *("behaviour@graph", "behaviour@CartPole-v1", "transitions@graph-12", "transitions@CartPole-v1-replay"),
    *(f"{method}@{data}" for method, data in POLICIES),
    *(f"returns@{method}-{data}" for method, data in POLICIES),
    "offline_report",
    "code",
}


def environment(run: Run) -> dict[str, str]:
    """What a run says of who made it with what."""
    found = {key: value for key, value in run.data.tags.items() if key.startswith("posttrain.env.")}
    assert {"posttrain.env.torch", "posttrain.env.cpu", "posttrain.env.threads"} <= found.keys()
    return {**found, "user": run.data.tags["mlflow.user"]}


def datasets(run: Run) -> dict[str, str]:
    """Name and digest of each data set that a run read."""
    return {one.dataset.name: one.dataset.digest for one in run.inputs.dataset_inputs}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone.of_this(tmp_path_factory.mktemp("clone") / "posttrain", TINY)


@pytest.fixture(scope="module")
def first(clone: Clone) -> dict[str, Any]:
    """The first run's result for each stage."""
    return clone.posttrain("run", "offline")


@pytest.mark.core
def test_what_the_report_asks_for_runs_and_nothing_else(clone: Clone, first: dict[str, Any]) -> None:
    assert states(first) == {"ran": STAGES}
    assert all(facts["mlflow_run_id"] for facts in first.values())
    outs = [out["path"] for stage in clone.lock.values() for out in stage["outs"]]
    assert [problem for out in outs for problem in check.find_file_problems(clone.root / out)] == []
    assert clone.call("git", "status", "--porcelain").splitlines() == ["?? dvc.lock"], "nothing lies where git sees it"
    page = (clone.root / "offline_report.html").read_text()
    assert all(facts["mlflow_run_id"] in page for facts in first.values())
    assert not (clone.root / "report.html").exists()
    client = MlflowClient(f"sqlite:///{clone.root}/mlruns/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("offline").experiment_id])
    assert sorted(run.info.run_name for run in runs) == sorted([*STAGES, f"first run: {len(STAGES)} ran"])


def test_a_second_run_does_nothing_and_dvc_agrees(clone: Clone, first: dict[str, Any]) -> None:
    assert states(clone.posttrain("run", "offline")) == {"up-to-date": STAGES}
    shown = clone.dvc("metrics", "show").splitlines()
    assert len(shown[0]) < 120
    assert any("data/offline_report/metrics/graph-12/BC.json" in row for row in shown)
    repro = clone.dvc("repro", "offline_report")
    assert repro.count("didn't change, skipping") == len(STAGES)
    assert "Running stage" not in repro


def test_a_method_s_params_re_run_that_method_only_and_back_again_nothing(clone: Clone, first: dict[str, Any]) -> None:
    below = {stage for stage in STAGES if "bc" in stage} | {"offline_report"}
    assert len(below) == 5
    changed = states(clone.posttrain("run", "offline", "--set", "bc.steps=30"))
    assert changed == {"ran": below, "up-to-date": STAGES - below}
    back = states(clone.posttrain("run", "offline", "--set", "bc.steps=20"))
    assert back == {"restored": below, "up-to-date": STAGES - below}


def test_targets_of_one_data_set_re_run_no_other(clone: Clone, first: dict[str, Any]) -> None:
    other = "branches.decision_transformer.CartPole-v1-replay={targets: [9], scale: 1, context: 2, steps: null}"
    changed = clone.posttrain("run", "offline", "--dry-run", "--set", other)
    assert states(changed) == {"up-to-date": STAGES}
    own = clone.posttrain("run", "offline", "--dry-run", "--set", "branches.decision_transformer.graph-12.scale=20")
    late = {"decision_transformer@graph-12", "returns@decision_transformer-graph-12", "offline_report"}
    assert states(own) == {"waiting": late, "up-to-date": STAGES - late}


def test_another_data_set_re_runs_nothing_that_was_there(clone: Clone, first: dict[str, Any]) -> None:
    added = (
        "branches.transitions.graph-20={environment: graph, source: random, location: null, steps: null, episodes: 20}"
    )
    assert states(clone.posttrain("run", "offline", "--set", added)) == {"up-to-date": STAGES}
    learned, asked = "branches.bc=[graph-12, CartPole-v1-replay, graph-20]", "{method: bc, dataset: graph-20}"
    more = clone.posttrain("run", "offline", "--set", learned, "--set", f"offline_report.policies.bc-graph-20={asked}")
    assert states(more) == {
        "ran": {"transitions@graph-20", "bc@graph-20", "returns@bc-graph-20", "offline_report"},
        "up-to-date": STAGES - {"offline_report"},
    }
    clone.call("git", "checkout", "--quiet", "params.yaml")


def test_plain_dvc_gives_the_same_hashes_and_logs_to_the_flow_s_experiment(
    clone: Clone, first: dict[str, Any], tmp_path: Path
) -> None:
    twin = clone.twin(tmp_path / "twin")
    assert twin.dvc("repro", "returns@bc-graph-12").count("Running stage") == 5, "code, and the four below"
    made = {out["path"]: out["md5"] for stage in twin.lock.values() for out in stage["outs"]}
    ours = {out["path"]: out["md5"] for stage in clone.lock.values() for out in stage["outs"]}
    assert made
    assert {path for path in made if made[path] != ours[path]} == set()
    client = MlflowClient(f"sqlite:///{twin.root}/mlruns/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("offline").experiment_id])
    names = {"behaviour@graph", "transitions@graph-12", "bc@graph-12", "returns@bc-graph-12"}
    assert {run.info.run_name for run in runs} == names
    adopted = twin.posttrain("run", "returns@bc-graph-12")
    assert states(adopted) == {"up-to-date": names | {"code"}}
    assert {adopted[name]["mlflow_run_id"] for name in names} == {run.info.run_id for run in runs}
    by_name = {run.info.run_name: client.get_run(run.info.run_id) for run in runs}
    flow = MlflowClient(f"sqlite:///{clone.root}/mlruns/mlflow.db")
    for name in names:
        own, theirs = by_name[name], flow.get_run(first[name]["mlflow_run_id"])
        assert environment(own) == environment(theirs)
        assert datasets(own) == datasets(theirs)
    assert '"clean": true' in twin.call(sys.executable, "-m", "flows.cli", "audit", "returns@bc-graph-12", "--json")
    params = next(run.data.params for run in runs if run.info.run_name == "transitions@graph-12")
    assert params["branches.transitions.graph-12.episodes"] == "12"
    assert not [name for name in params if "CartPole" in name], "what decided this branch, and no other"
    assert json.loads((twin.root / "data/metrics/returns@bc-graph-12.json").read_text())


def test_dvc_s_experiments_work_and_have_their_lineage(clone: Clone, first: dict[str, Any], tmp_path: Path) -> None:
    """`dvc exp run`, `show`, `diff` and `apply`; the run of an experiment knows its commit and its inputs."""
    twin = clone.twin(tmp_path / "twin")
    stages = {"code", "behaviour@graph", "transitions@graph-12", "bc@graph-12"}
    ours = twin.posttrain("run", "bc@graph-12")
    assert states(ours) == {"ran": stages}
    twin.call("git", "add", "dvc.lock")
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    twin.call("git", *who, "commit", "--quiet", "--message", "results")
    twin.dvc("exp", "run", "--name", "longer", "--set-param", "bc.steps=30", "bc@graph-12")
    assert "longer" in twin.dvc("exp", "show", "--csv")
    changed = json.loads(twin.dvc("exp", "diff", "--json"))
    assert changed["params"]["params.yaml"]["bc.steps"] == {"old": 20, "new": 30, "diff": 10}
    twin.call("git", "checkout", "--quiet", ".")
    twin.dvc("checkout", "bc@graph-12")
    twin.call("sh", "-c", "python -m dvc exp apply longer; true")  # DVC misses the outs of stages that never ran
    applied = twin.posttrain("run", "bc@graph-12")
    assert states(applied) == {"up-to-date": stages}, "an experiment's results are the workspace's, and nothing runs"
    client = MlflowClient(f"sqlite:///{twin.root}/mlruns/mlflow.db")
    run = client.get_run(applied["bc@graph-12"]["mlflow_run_id"])
    assert run.data.params["bc.steps"] == "30"
    assert run.data.tags["posttrain.git_commit"] == twin.call("git", "rev-parse", "HEAD").strip()
    flow_run = client.get_run(ours["bc@graph-12"]["mlflow_run_id"])
    assert datasets(run) == datasets(flow_run)
    assert environment(run) == environment(flow_run)
    twin.call("git", "checkout", "--quiet", ".")
    twin.dvc("checkout", "bc@graph-12")
    assert states(twin.posttrain("run", "bc@graph-12")) == {"up-to-date": stages}
    twin.dvc("exp", "run", "--temp", "--name", "aside", "--set-param", "bc.steps=40", "bc@graph-12")
    twin.call("sh", "-c", "python -m dvc exp apply aside; true")
    aside = twin.posttrain("run", "bc@graph-12")
    assert states(aside) == {"up-to-date": stages}
    assert client.get_run(aside["bc@graph-12"]["mlflow_run_id"]).data.params["bc.steps"] == "40"
    assert '"clean": true' in twin.call(sys.executable, "-m", "flows.cli", "audit", "bc@graph-12", "--json")

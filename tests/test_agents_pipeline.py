"""The agents flow over the real dvc.yaml, with preset tiny and an environment of the user's, in a copy of this
repository; slow.
"""

import json
import sys
from typing import Any

import pytest
from mlflow import MlflowClient

from tasks import check
from tests import repository
from tests.clone import ROOT, Clone, states

pytestmark = pytest.mark.slow
AGENTS = {file.stem for file in (ROOT / "tasks/agents").glob("*.py")}
TINY = {name: section for name, section in repository.preset("tiny").items() if name in AGENTS}
GUESS = {
    "kind": "environments/guess.py:Guess",
    "settings": {"largest": 4},
    "seconds": 10.0,
    "episodes": 12,
    "validation": 3,
}
PLAYED = {
    "environment": "guess",
    "clone": "guess",
    "credit": "total",
    "over": "turns",
    "baseline": "group",
    "standardized": True,
    "lam": 1.0,
}
PLAYED |= {"update": "plain", "learning_rate": 0.001}
TINY["expert_episodes"]["environments"]["guess"] = GUESS
TINY["expert_episodes"]["environment_files"] = "environments/guess.py"
TINY["agents"]["policies"]["guess-grpo"] = PLAYED
TINY["agents_report"]["policies"] |= {"guess-grpo": {"stage": "agents", "branch": "guess-grpo", "environment": "guess"}}
ROOMS = {
    *("expert_episodes@rooms", "behaviour_cloning@rooms", "agents@rooms-reinforce", "agents@rooms-ppo"),
    *("agent_returns@rooms-clone", "agent_returns@rooms-reinforce", "agent_returns@rooms-ppo"),
}
OWN = {"expert_episodes@guess", "behaviour_cloning@guess", "agents@guess-grpo", "agent_returns@guess-grpo"}
STAGES = {*ROOMS, *OWN, "agents_report", "code"}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone.of_this(tmp_path_factory.mktemp("clone") / "posttrain", TINY)


@pytest.fixture(scope="module")
def first(clone: Clone) -> dict[str, Any]:
    """The first run's result for each stage."""
    return clone.posttrain("run", "agents")


@pytest.mark.core
def test_what_the_report_asks_for_runs_and_nothing_else(clone: Clone, first: dict[str, Any]) -> None:
    assert states(first) == {"ran": STAGES}
    outs = [out["path"] for stage in clone.lock.values() for out in stage["outs"]]
    assert [problem for out in outs for problem in check.find_file_problems(clone.root / out)] == []
    assert clone.call("git", "status", "--porcelain").splitlines() == ["?? dvc.lock"], "nothing lies where git sees it"
    page = (clone.root / "agents_report.html").read_text()
    assert all(facts["mlflow_run_id"] in page for facts in first.values())
    assert (clone.root / "agents_lineage.html").is_file()
    client = MlflowClient(f"sqlite:///{clone.root}/mlruns/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("agents").experiment_id])
    assert sorted(run.info.run_name for run in runs) == sorted([*STAGES, f"first run: {len(STAGES)} ran"])


def test_policies_are_compared_and_the_best_version_has_its_alias(clone: Clone, first: dict[str, Any]) -> None:
    found = json.loads(clone.call(sys.executable, "-m", "flows.cli", "compare", "rooms-clone", "rooms-ppo", "--json"))
    [pair] = found["evaluations"]
    assert {"t0/return", "t1/return"} <= pair["metrics"].keys()
    assert pair["metrics"]["t0/return"]["episodes"] > 0
    client = MlflowClient(f"sqlite:///{clone.root}/mlruns/mlflow.db")
    for name in ("agents.agents.rooms-ppo", "agents.behaviour_cloning.rooms"):
        best = client.get_model_version_by_alias(name, "best")
        assert any(key.endswith("/return") for key in best.tags), name


def test_a_change_runs_what_it_touches_and_nothing_else(clone: Clone, first: dict[str, Any]) -> None:
    assert states(clone.posttrain("run", "agents")) == {"up-to-date": STAGES}
    one = clone.posttrain("run", "agents", "--set", "branches.agents.rooms-ppo.lam=0.5")
    changed = {"agents@rooms-ppo", "agent_returns@rooms-ppo", "agents_report"}
    assert states(one)["up-to-date"] >= STAGES - changed
    assert states(one)["ran"] >= {"agents@rooms-ppo", "agent_returns@rooms-ppo"}
    back = clone.posttrain("run", "agents", "--set", "branches.agents.rooms-ppo.lam=0.95")
    assert states(back)["restored"] >= {"agents@rooms-ppo", "agent_returns@rooms-ppo"}
    file = clone.root / "environments/guess.py"
    file.write_text(file.read_text().replace('"Right."', '"Right!"'))
    edited = clone.posttrain("run", "agents", "--dry-run")
    assert states(edited)["waiting"] >= {"expert_episodes@guess", "agents@guess-grpo", "agent_returns@guess-grpo"}


def test_plain_dvc_finds_everything_up_to_date(clone: Clone, first: dict[str, Any]) -> None:
    file = clone.root / "environments/guess.py"
    file.write_text(file.read_text().replace('"Right!"', '"Right."'))
    assert "up to date" in clone.dvc("repro", "agents_report")

"""Before anything runs, one line says that a method cannot take a data set's actions, or that its environment has no
goals.
"""

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.params import editing, offline_rules
from flows.params.files import ParameterError
from tests import extensions, repository
from tests.conftest import SECTIONS
from tests.tasks import forks

ROOT = Path(__file__).parents[3]
CARTPOLE, HOPPER = "CartPole-v1-medium-replay", "Hopper-v5-medium-replay"
MEASURED = "{dt: {method: decision_transformer, dataset: graph-60}}"
RELABELLED = (
    "{A: {double: true, target: true, replay: true, online: true, relabel: none}, B: {double: true, "
    "target: true, replay: true, online: true, relabel: future}}"
)
UNSUITED = {
    **extensions.entries("UNSUITED"),
    f"branches.dqn=[{HOPPER}]": f"branches.dqn.0: expected data of discrete actions, those of {HOPPER} are continuous",
    f"branches.tabular_q=[{HOPPER}]": (
        f"branches.tabular_q.0: expected data of discrete actions, those of {HOPPER} are continuous"
    ),
    "bc.relabel=future": (
        "branches.bc.0: expected an environment with goals, since relabel is set; graph-60 is of graph, which has none"
    ),
    f"dqn.variants={RELABELLED}": (
        f"branches.dqn.0: expected an environment with goals, since relabel is set; {CARTPOLE} is of CartPole-v1, "
        "which has none"
    ),
}
SUITED = (*extensions.entries("SUITED"), f"branches.bc=[{CARTPOLE}, {HOPPER}]")


ENVIRONMENTS = ("CartPole-v1", "Hopper-v5", "graph", "bit-flip")


@pytest.fixture(scope="module")
def kinds() -> dict[str, dict[str, Any] | None]:
    """What the project says of environments, in a fork that finds the simulators imported."""
    from tasks.offline.environments import simulators  # noqa: F401

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline_rules, "subprocess", SimpleNamespace(run=forks.run_module))
        return offline_rules._query_environment_kinds(ROOT, ENVIRONMENTS)


@pytest.fixture
def root(tmp_path: Path, kinds: dict[str, dict[str, Any] | None], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository's parameters, and what is known of environments."""
    repository.write_params(tmp_path)

    def known(root: Path, environments: Collection[str]) -> dict[str, dict[str, Any] | None]:
        assert root == tmp_path
        return {name: kinds[name] for name in environments}

    monkeypatch.setattr(offline_rules, "_query_environment_kinds", known)
    return tmp_path


def test_what_the_project_says_of_environments(kinds: dict[str, dict[str, Any] | None]) -> None:
    assert kinds == {
        "CartPole-v1": {"actions": "discrete", "goals": False},
        "Hopper-v5": {"actions": "continuous", "goals": False},
        "graph": {"actions": "discrete", "goals": False},
        "bit-flip": {"actions": "discrete", "goals": True},
    }


def test_a_project_that_cannot_say_it_has_no_such_fault(tmp_path: Path) -> None:
    (tmp_path / "tasks/preflight").mkdir(parents=True)
    (tmp_path / "tasks/__init__.py").touch()
    (tmp_path / "tasks/preflight/environments.py").write_text("print('no JSON')\nraise SystemExit(3)\n")
    assert offline_rules._query_environment_kinds(tmp_path, ENVIRONMENTS) == {}


def planned(setting: str) -> set[str]:
    """The stages that a setting adds to a run."""
    method = setting.removeprefix("branches.").partition("=")[0].partition(".")[0]
    return {f"{method}@{name}" for name in (CARTPOLE, HOPPER, "graph-60", "own", "folder", "wrapped")}


def check(root: Path, *settings: str) -> None:
    # The report names no policy of a data set that the settings take away.
    report = (f"offline_report.policies={MEASURED}", "offline_report.expectations=[]")
    editing.edit_params(root, SECTIONS, [editing.parse_setting(setting) for setting in (*report, *settings)])
    stages = planned(settings[-1])
    editing.check_params_consistency(root, SECTIONS, stages, stages)


@pytest.mark.parametrize("setting", UNSUITED)
def test_what_a_method_cannot_learn_from(root: Path, setting: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check(root, setting)
    assert str(caught.value) == f"params.yaml: {UNSUITED[setting]}"


@pytest.mark.parametrize("setting", SUITED)
def test_what_it_can(root: Path, setting: str) -> None:
    check(root, setting)


def test_goals_that_there_are_may_be_relabelled(root: Path) -> None:
    check(
        root,
        "branches.behaviour.bit-flip={id: null, steps: 0, medium: 0.5, evaluate_every: 1, learning_rate: 0.001, "
        "gamma: 0.99, entropy: 0.0}",
        "branches.transitions.own={environment: bit-flip, source: random, location: null, steps: null, episodes: 10}",
        "branches.bc=[own]",
        "bc.relabel=future",
    )


def test_what_has_been_learned_once_is_not_asked_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that changes a learning rate starts no process for it."""
    monkeypatch.setattr(offline_rules, "_query_environment_kinds", lambda *_: pytest.fail("asked"))
    (root / "data/dqn" / CARTPOLE).mkdir(parents=True)
    check(root, f"branches.dqn=[{CARTPOLE}]")


def test_goals_are_asked_for_again_where_relabelling_is_new(root: Path) -> None:
    (root / "data/bc/graph-60").mkdir(parents=True)
    with pytest.raises(ParameterError, match="expected an environment with goals"):
        check(root, "bc.relabel=future")


@pytest.mark.parametrize("environment", ["strangers_module:Maze-v0", "graph | strangers_module:Wrapper"])
def test_no_code_of_others_runs_for_a_look(root: Path, environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of it; the stage, which is to run their module, says what does not suit."""
    monkeypatch.setattr(offline_rules, "_query_environment_kinds", lambda *_: pytest.fail("asked"))
    check(
        root,
        f"branches.behaviour.theirs={{id: '{environment}', steps: 0, medium: 0.5, evaluate_every: 1, "
        f"learning_rate: 0.001, gamma: 0.99, entropy: 0.0}}",
        "branches.transitions.own={environment: theirs, source: random, location: null, steps: null, episodes: 10}",
        "branches.dqn=[own]",
    )

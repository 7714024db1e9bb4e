"""The stages of a flow as Prefect's tasks: their order, what a failure leaves, and what a flow names against dvc.yaml's
graph.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import networkx as nx
import pytest
from prefect import flow, get_client, runtime
from prefect.context import FlowRunContext
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from ruamel.yaml import YAML

from flows import running
from flows.engine.dvc_repository import PlanError
from flows.engine.execute import Execution
from flows.engine.stage_types import PlannedStage, StageResult
from flows.orchestration import prefect_tasks, server
from tasks import contract
from tests import prefect_server, repository
from tests.flows.toy_pipeline import make_pipeline

FLOWS = {"language": "flows/language_model.py", "offline": "flows/offline_rl.py", "agents": "flows/agents.py"}


class Owner:
    """Has the stages end as told, in the order in which they are executed."""

    recorder = None

    def __init__(self, root: Path, ends: dict[str, str]) -> None:
        self.root, self.ends, self.executed, self.stopped = root, ends, list[str](), False
        self.released = threading.Event()

    def stop(self) -> None:
        self.stopped = True
        self.released.set()

    def log_of(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def execute(self, name: str, *_: object) -> StageResult:
        self.executed.append(name)
        self.log_of(name).write_text(f"{name} at work\n")
        end = self.ends.get(name, "ran")
        if end == "held":
            self.released.wait(60)
            end = "failed" if self.stopped else "ran"
        return StageResult(name, end, self.ends.get(name, ""))  # type: ignore[arg-type]


def stage(name: str, *upstream: str, after: tuple[str, ...] = (), cpu: int = 1) -> PlannedStage:
    return PlannedStage(name, "new", upstream, cpu, 0, after=after)


@flow(name="toy", flow_run_name=prefect_tasks.format_flow_run_name)
def toy(targets: list[str], set: dict[str, Any] | None = None) -> object:
    with prefect_tasks.run_pipeline("toy", targets, set) as run:
        run("a")
        run("b", "a")
        return run.end()


@contextmanager
def connected() -> Iterator[None]:
    variables = prefect_server.variables()
    url, secret = variables["PREFECT_API_URL"], variables["PREFECT_API_AUTH_STRING"]
    with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: secret}):
        yield


def run_toy(owner: Owner, planned: list[PlannedStage], jobs: int = 2) -> tuple[Any, dict[str, str]]:
    """The state of the flow, and of each stage."""
    execution = Execution(owner, planned, jobs, lambda _: None)  # type: ignore[arg-type]
    token = prefect_tasks.begun.set(execution)
    try:
        state = toy(["b"], {"a.x": 2}, return_state=True)
    finally:
        prefect_tasks.begun.reset(token)
    return state, {result.stage: result.state for result in execution.results()}


@pytest.mark.slow
def test_stages_that_the_flow_names_and_others_of_the_users_run_in_the_graph_s_order(tmp_path: Path) -> None:
    """The user's own `own` is needed by `a`, which the flow has first; `b@1` and `b@2` are branches of `b`."""
    owner = Owner(tmp_path, {})
    planned = [stage("own"), stage("a", "own"), stage("b@1", "a"), stage("b@2", "a"), stage("last", "b@1", "b@2")]
    with connected():
        state, ends = run_toy(owner, planned)
        assert state.is_completed()
        assert ends == dict.fromkeys(("own", "a", "b@1", "b@2", "last"), "ran")
        assert owner.executed[:2] == ["own", "a"]
        assert owner.executed[-1] == "last"
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(state.state_details.flow_run_id)
    assert run.name == "run toy to b: a.x=2"
    assert runtime.flow_run.id is None
    assert FlowRunContext.get() is None


@pytest.mark.slow
def test_a_value_with_braces_may_stand_in_the_name_of_a_run(tmp_path: Path) -> None:
    execution = Execution(Owner(tmp_path, {}), [stage("a")], 1, lambda _: None)  # type: ignore[arg-type]
    name = 'run toy: grpo.reward {"verifiable": 1.0} -> {"rewards/mine.py:length": 1.0}'
    with connected():
        prefect_tasks.run_prefect_flow(toy, execution, name, {"targets": ["a"]})
    assert [result.state for result in execution.results()] == ["ran"]
    [run] = prefect_server.ask("/flow_runs/filter", flow_runs={"name": {"any_": [name]}})
    assert run["state_name"] == "Completed"


@pytest.mark.slow
def test_a_wrong_parameter_is_one_line_in_the_state_and_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_pipeline(tmp_path / "toy")
    monkeypatch.chdir(root)
    line = "dvc.yaml: no stage 'dbo'; did you mean 'dpo'?"
    with connected():
        state = toy(["dbo"], return_state=True)
        server._flush_prefect_buffers()
    assert state.is_failed()
    assert state.message == line
    of_run = {"flow_run_id": {"any_": [str(state.state_details.flow_run_id)]}}
    logged = [entry["message"] for entry in prefect_server.ask("/logs/filter", logs=of_run)]
    assert [text for text in logged if line in text] == [f'Finished in state Failed("{line}")']
    assert not [text for text in logged if "Traceback" in text]


@pytest.mark.slow
def test_a_failure_leaves_its_descendants_alone_and_what_waits_for_people_is_no_failure(tmp_path: Path) -> None:
    planned = [stage("a"), stage("b", "a"), stage("c", "b"), stage("free")]
    with connected():
        state, ends = run_toy(Owner(tmp_path, {"b": "failed"}), planned)
        assert state.is_failed()
        assert "failed or skipped: b, c" in state.message
        assert ends == {"a": "ran", "b": "failed", "c": "skipped", "free": "ran"}
        state, ends = run_toy(Owner(tmp_path, {"b": "paused"}), planned)
        assert (state.type.value, state.name) == ("CANCELLED", "Waiting for people")
        assert ends == {"a": "ran", "b": "paused", "c": "paused", "free": "ran"}


@pytest.mark.slow
def test_what_goes_on_is_not_kept_by_what_is_behind(tmp_path: Path) -> None:
    """`b1` is behind, so that `b` and `score` are.

    `a` waits until that is known, and runs; so it does where `b1` fails.
    """
    for end, kind in (("behind", "COMPLETED"), ("failed", "FAILED")):
        owner = Owner(tmp_path, {"b1": end})
        planned = [
            stage("a1"),
            stage("b1"),
            stage("a", "a1", after=("b1",)),
            stage("b", "b1", after=("a1",)),
            stage("score", "b"),
        ]
        with connected():
            state, ends = run_toy(owner, planned)
        assert state.type.value == kind, state.message
        left = "behind" if end == "behind" else "skipped"
        assert ends == {"a1": "ran", "b1": end, "a": "ran", "b": left, "score": left}
        assert sorted(owner.executed) == ["a", "a1", "b1"]
        assert owner.executed[-1] == "a"


@pytest.mark.slow
def test_a_person_cancels_in_prefect_and_sees_what_waits_for_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefect_tasks, "CANCEL_SECONDS", 0.2)
    owner, seen = Owner(tmp_path, {"a": "held", "other": "held"}), set[str]()

    def cancel() -> None:
        from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
        from prefect.states import Cancelling

        mine = FlowRunFilter(name=FlowRunFilterName(any_=["run toy to b: a.x=2"]))
        with connected(), get_client(sync_client=True) as client:
            for _ in range(300):
                running = [run for run in client.read_flow_runs(flow_run_filter=mine) if run.state.is_running()]
                for run in running:
                    rows = httpx.post(
                        f"{prefect_server.variables()['PREFECT_API_URL']}/task_runs/filter",
                        json={"flow_runs": {"id": {"any_": [str(run.id)]}}},
                        auth=tuple(prefect_server.variables()["PREFECT_API_AUTH_STRING"].split(":")),  # type: ignore[arg-type]
                    ).json()
                    seen.update(row["state_name"] for row in rows)
                    if "Waiting for a core" in seen:
                        client.set_flow_run_state(run.id, Cancelling())
                        return
                time.sleep(0.1)

    person = threading.Thread(target=cancel)
    person.start()
    with connected():
        state, ends = run_toy(owner, [stage("a"), stage("other"), stage("b", "a")], jobs=1)
    person.join()
    assert "Waiting for a core" in seen
    assert state.type.value == "CANCELLED"
    assert owner.stopped
    assert set(ends.values()) <= {"failed", "skipped"}


@pytest.mark.parametrize("name", [*FLOWS])
def test_a_flow_is_loaded_by_its_entrypoint(name: str) -> None:
    loaded = load_flow_from_entrypoint(f"{repository.ROOT / FLOWS[name]}:{name}")
    assert loaded.name == name
    assert [*loaded.parameters.properties] == ["targets", "set", "seeds", "force", "where"]


class Named:
    """Notes what a flow names in the place of its stages."""

    def __init__(self) -> None:
        self.needs: dict[str, set[str]] = {}

    def __call__(self, name: str, *needs: str) -> None:
        assert name not in self.needs, f"{name} comes twice"
        self.needs[name] = {*needs}

    def end(self) -> None:
        """Nothing runs."""


def named(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Stage -> what it may wait for, as the flow says."""
    noted, module = Named(), __import__(running.MODULES[name], fromlist=["run_pipeline"])

    @contextmanager
    def run_pipeline(*_: object) -> Iterator[Named]:
        yield noted

    monkeypatch.setattr(module, "run_pipeline", run_pipeline)
    getattr(module, name).fn()
    return noted.needs


@pytest.mark.parametrize("name", [*FLOWS])
def test_a_flow_names_the_graph_of_dvc_yaml(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage of the flow, upstream before downstream; and all that it may wait for, which where a path is a
    parameter is more than its deps.
    """
    pipeline = YAML(typ="safe").load((repository.ROOT / "dvc.yaml").read_text())["stages"]
    modules = contract.collect_stage_modules({"stages": pipeline})
    flows = named(name, monkeypatch)
    ours = {one for one, module in modules.items() if module.startswith(f"tasks.{name}.")}
    assert {*flows} == ours | {"code"}
    graph = nx.DiGraph([(need, one) for one, needs in flows.items() for need in needs])
    order = [*flows]
    for need, one in graph.edges:
        if need in flows:
            assert order.index(need) < order.index(one), f"{one} comes before {need}"
    for one, needs in flows.items():
        definition = contract.get_stage_definition(pipeline[one])
        deps = [dep for dep in definition.get("deps", []) if not dep.startswith(("data/code/", "tasks"))]
        plain = {dep.split("/")[1] for dep in deps if dep.startswith("data/") and "$" not in dep.split("/")[1]}
        plain -= {"curves"}  # of a stage that is there by another name, too
        assert plain <= needs, f"{one} needs {plain - needs}"
        assert needs == plain or any("${" in dep for dep in deps), f"{one} does not need {needs - plain}"


def test_a_server_out_of_reach_is_one_line() -> None:
    with (
        pytest.raises(
            PlanError, match=r"^Prefect's server cannot be reached \(refused twice\); what had finished is kept"
        ),
        prefect_tasks.convert_errors_to_server_lost_error(),
    ):
        raise httpx.ConnectError("refused\ntwice")


def test_so_it_is_where_prefect_wraps_that() -> None:
    """`SyncPrefectClient.__enter__` asks for the API's version, and turns any error into a RuntimeError."""
    with (
        pytest.raises(PlanError, match=r"^Prefect's server cannot be reached"),
        prefect_tasks.convert_errors_to_server_lost_error(),
    ):
        raise RuntimeError("Failed to reach API at http://127.0.0.1:1/api/") from httpx.ConnectError("refused")
    with pytest.raises(RuntimeError, match="incompatible"), prefect_tasks.convert_errors_to_server_lost_error():
        raise RuntimeError("Found incompatible versions")

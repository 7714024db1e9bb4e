"""The flows as deployments on the repository's own server: started, cancelled, retried and automated by Prefect's API,
as its page does it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.orchestration import server
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import alive, wait_for

pytestmark = pytest.mark.slow
# Notes its process, and waits for a file unless its parameter is 0.
GATE = """
import os, pathlib, sys, time
pathlib.Path(f"{os.getpid()}.pid").write_text("")
x = eval(open("params.yaml").read().replace("null", "None"))["b"]["x"]
while x and not pathlib.Path("go").exists():
    time.sleep(0.05)
if x == 9:
    sys.exit("nine is too many")
pathlib.Path(sys.argv[1]).write_text(str(x))
"""
OWN = """
from prefect import flow
from flows.language_model import language

@flow
def nightly():
    language(targets=["a"], set={"a.x": 5})

nightly()
"""


class Served:
    """A repository whose flows are served, and the API of its server."""

    def __init__(self, toy: Toy, client: httpx.Client, environ: dict[str, str]) -> None:
        self.toy, self.client, self.environ = toy, client, environ

    def ask(self, path: str, **body: Any) -> Any:
        answer = self.client.post(path, json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    @property
    def deployment(self) -> str:
        [found] = [one for one in self.ask("/deployments/filter") if one["entrypoint"].endswith(":language")]
        return str(found["id"])

    def start(self, **parameters: Any) -> str:
        run = self.ask(
            f"/deployments/{self.deployment}/create_flow_run", parameters=parameters, state={"type": "SCHEDULED"}
        )
        return str(run["id"])

    def run(self, run: str) -> Any:
        answer = self.client.get(f"/flow_runs/{run}")
        answer.raise_for_status()
        return answer.json()

    def logs(self, run: str) -> set[str]:
        """The lines of the flow and its tasks."""
        return {line["message"] for line in self.ask("/logs/filter", logs={"flow_run_id": {"any_": [run]}})}

    def until(self, run: str, *states: str) -> Any:
        self.wait(lambda: self.run(run)["state_name"] in states)
        found = self.run(run)
        assert found["state_name"] in states, found["state"]
        return found

    def wait(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.2)


@pytest.fixture
def served(toy: Toy) -> Iterator[Served]:
    toy.stage("a")
    toy.write("gate.py", GATE)
    toy.stage("b", "a", cmd="python gate.py data/b", deps=["data/a", "gate.py"])
    toy.set(a={"x": 1}, b={"x": 1})
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "POSTTRAIN_SERVER_MINUTES": "5", "DO_NOT_TRACK": "1"}
    environ = {**{key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}, **own}
    command = [sys.executable, "-m", "flows.start", "serve"]
    with (toy.root.parent / "served.log").open("w") as log:
        process = subprocess.Popen(command, cwd=toy.root, env=environ, stdout=log, stderr=log)
    try:
        wait_for(lambda: server.is_server_answering(toy.root), 90)
        variables = server.build_client_environment(toy.root)
        name, _, secret = variables["PREFECT_API_AUTH_STRING"].partition(":")
        with closing(httpx.Client(base_url=variables["PREFECT_API_URL"], auth=(name, secret))) as client:
            found = Served(toy, client, {**environ, **variables})
            found.wait(lambda: len(found.ask("/deployments/filter")) == 3)
            yield found
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        server.stop_server(toy.root)


def test_what_prefect_s_page_does_with_a_flow(served: Served) -> None:
    """One server and one served process, since both take long to start: a run from the API, a cancel, two at once, a
    retry, a subflow.
    """
    toy = served.toy
    done = served.until(served.start(targets=["b"], set={"b.x": 0}), "Completed")
    assert done["name"] == "run language to b: b.x=0"
    assert toy.read("data/b") == "0"
    assert toy.lock["stages"].keys() == {"a", "b"}
    expected = {"params.yaml: b.x: 1 -> 0", "made data/a"}
    served.wait(lambda: expected <= served.logs(done["id"]), 20)
    assert expected <= served.logs(done["id"])

    held = served.start(targets=["b"], set={"b.x": 2})
    wait_for(lambda: alive(toy.root), 60)
    second = served.until(served.start(targets=["b"]), "Failed")
    assert (
        "another `posttrain run` is at work in this repository; wait for it, or stop it" in second["state"]["message"]
    )
    assert served.run(held)["state_name"] == "Running", "the second has left it alone"
    served.ask(f"/flow_runs/{held}/set_state", state={"type": "CANCELLING"})
    began = time.monotonic()
    wait_for(lambda: not alive(toy.root), 30)
    assert not alive(toy.root)
    print("gone after", time.monotonic() - began)
    served.until(held, "Cancelled")
    assert toy.read("data/b") == "0", "the result of before"
    (toy.root / "go").touch()
    assert served.until(served.start(targets=["b"]), "Completed")
    assert toy.read("data/b") == "2", "the next run goes on with what was set"

    failed = served.until(served.start(targets=["b"], set={"b.x": 9}), "Failed")
    served.wait(lambda: "nine is too many" in served.logs(failed["id"]), 20)
    assert "nine is too many" in served.logs(failed["id"])
    toy.write("gate.py", GATE.replace("sys.exit(", "print("))
    served.ask(f"/flow_runs/{failed['id']}/set_state", state={"type": "SCHEDULED", "name": "AwaitingRetry"}, force=True)
    retried = served.until(failed["id"], "Completed")
    assert retried["run_count"] == 2
    assert toy.read("data/b") == "9"

    toy.write("own.py", OWN)
    subprocess.run([sys.executable, "own.py"], cwd=toy.root, env=served.environ, check=True, capture_output=True)
    runs = {run["name"]: run for run in served.ask("/flow_runs/filter")}
    assert runs["run language to a: a.x=5"]["state_name"] == "Completed"
    assert runs["run language to a: a.x=5"]["parent_task_run_id"] is not None
    assert "a {'x': 5}" in toy.read("data/a")


def test_an_automation_sees_a_failure(served: Served) -> None:
    """Where b fails, an automation starts the flow with `a` alone."""
    trigger = {
        "type": "event",
        "expect": ["prefect.flow-run.Failed"],
        "match": {"prefect.resource.id": "prefect.flow-run.*"},
        "posture": "Reactive",
        "threshold": 1,
        "within": 0,
    }
    action = {
        "type": "run-deployment",
        "source": "selected",
        "deployment_id": served.deployment,
        "parameters": {"targets": ["a"], "set": {"a.x": 3}},
    }
    served.ask("/automations/", name="on failure", enabled=True, trigger=trigger, actions=[action])
    (served.toy.root / "go").touch()
    served.until(served.start(targets=["b"], set={"b.x": 9}), "Failed")
    served.wait(lambda: any(run["name"] == "run language to a: a.x=3" for run in served.ask("/flow_runs/filter")))
    [run] = [run for run in served.ask("/flow_runs/filter") if run["name"] == "run language to a: a.x=3"]
    served.until(run["id"], "Completed")


def test_the_committed_deployments_are_deployed_as_they_are(served: Served, tmp_path: Path) -> None:
    clone, root = tmp_path / "clone", Path(server.__file__).parents[2]
    clone.mkdir()
    for name in ("prefect.yaml", "flows"):
        (clone / name).symlink_to(root / name)
    prefect = [sys.executable, "-m", "prefect"]
    for words in (["work-pool", "create", "posttrain", "--type", "process"], ["--no-prompt", "deploy", "--all"]):
        done = subprocess.run(
            [*prefect, *words], cwd=clone, env=served.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    pools = [(one["work_pool_name"], one["entrypoint"]) for one in served.ask("/deployments/filter")]
    assert {entrypoint for pool, entrypoint in pools if pool == "posttrain"} == {
        "flows/language_model.py:language",
        "flows/offline_rl.py:offline",
        "flows/agents.py:agents",
    }

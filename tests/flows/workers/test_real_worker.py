"""`posttrain worker`, `run --pool` and `workers` as processes, with Prefect's own server and worker between them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flows.workers.prefect_api import Api
from tests import prefect_server
from tests.flows.machine.test_supervisor import wait_for
from tests.flows.toy_pipeline import REPOSITORY, make_pipeline

pytestmark = pytest.mark.slow
SECONDS = 120


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    variables = prefect_server.variables()
    with closing(Api(variables["PREFECT_API_URL"], variables)) as found:
        yield found


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    own = {
        **prefect_server.variables(),
        "PYTHONPATH": str(REPOSITORY),
        "DO_NOT_TRACK": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return {**os.environ, **own}


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    root = make_pipeline(tmp_path / "toy")
    text = (root / "dvc.yaml").read_text()
    (root / "dvc.yaml").write_text(
        text.replace("    params: [sft]", "    meta: {resources: {gpu: 1}}\n    params: [sft]")
    )
    return root


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(environ: dict[str, str]) -> Iterator[Start]:
    """Start `posttrain` with arguments in a folder."""
    started = list[subprocess.Popen[str]]()

    def begin(root: Path, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments],
            cwd=root,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_the_interface_is_as_the_server_has_it(api: Api) -> None:
    from prefect.workers.process import ProcessWorker

    assert api.workers("bare") is None
    api.create_pool_if_missing("bare", ProcessWorker.get_default_base_job_template())
    api.create_pool_if_missing("bare", {})
    assert api.workers("bare") == []
    assert "bare" in api.pools()
    run = api.submit("bare", "grpo", {"job": {"stage": "grpo"}}, "one attempt")
    assert api.submit("bare", "grpo", {"job": {"stage": "grpo"}}, "one attempt") == run
    found = api.flow_run(run)
    assert found is not None
    assert (found.name, found.state, found.parameters) == ("grpo", "SCHEDULED", {"job": {"stage": "grpo"}})
    assert api.status(run) == {}
    artifact = api.post_status(run, {"beat": 1})
    api.update_status(artifact, {"beat": 2, "phase": "x" * 3000})
    assert api.status(run) == {"beat": 2, "phase": "x" * 3000}
    lines = [f"line {number}" for number in range(450)]
    for some in (lines[:3], lines[3:]):
        api.write_log(run, some)
    wait_for(lambda: len(api.log(run, 0)) == len(lines), 20)  # the server writes logs with a delay
    assert api.log(run, 0) == lines
    assert api.log(run, 440) == lines[440:]
    assert api.set_state(run, "RUNNING")
    assert run in [one.id for one in api.list_flow_runs(["RUNNING"])]
    assert api.set_state(run, "CANCELLED")
    assert api.flow_run(run).state == "CANCELLED"  # type: ignore[union-attr]
    assert api.flow_run("00000000-0000-0000-0000-000000000000") is None
    api.announce_worker("posttrain_worker_test", {"name": "w"})
    api.announce_worker("posttrain_worker_test", {"name": "w", "pool": "bare"})
    assert api.list_announced_workers()["posttrain_worker_test"] == {"name": "w", "pool": "bare"}
    api.withdraw("posttrain_worker_test")
    assert "posttrain_worker_test" not in api.list_announced_workers()


def test_a_run_with_a_worker_in_the_same_folder(pipeline: Path, start: Start) -> None:
    worker = start(pipeline, "worker", "--pool", "gpu", "--name", "w1")
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("worker w1 of pool gpu (no GPU) takes stages from http://127.0.0.1:")
    run = start(pipeline, "run", "--pool", "gpu")
    out, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, out
    lines = out.splitlines()
    assert "sft       running     on w1" in lines
    assert any(line.startswith("5 ran in ") for line in lines)
    assert (pipeline / "mlruns/logs/sft.log").read_text() == "working on sft\n"
    listed = start(pipeline, "workers", "--json").communicate(timeout=SECONDS)[0]
    [found] = json.loads(listed)
    assert (found["name"], found["pool"], found["running"]) == ("w1", "gpu", [])
    worker.send_signal(signal.SIGINT)
    *told, last = worker.communicate(timeout=SECONDS)[0].splitlines()
    assert ([line.partition(" ")[2] for line in told], last) == (["begins sft", "ended sft"], "stopped")
    assert worker.returncode == 0
    assert json.loads(start(pipeline, "workers", "--json").communicate(timeout=SECONDS)[0]) == []
    again = start(pipeline, "run", "--pool", "gpu", "--force", "sft").communicate(timeout=SECONDS)[0]
    assert again.splitlines()[-1] == (
        "posttrain: pool gpu has no live worker; start one with `posttrain worker --pool gpu`, or run without pools"
    )


def test_ctrl_c_ends_the_command_on_the_worker(pipeline: Path, start: Start) -> None:
    params = (pipeline / "params.yaml").read_text()
    (pipeline / "params.yaml").write_text(params.replace("seconds: 0", "seconds: 300", 2).replace("300", "0", 1))
    worker = start(pipeline, "worker", "--pool", "other", "--name", "w2")
    assert worker.stdout is not None
    worker.stdout.readline()
    run = start(pipeline, "run", "--pool", "other")
    log = pipeline / "mlruns/logs/sft.log"
    wait_for(lambda: log.exists() and "working on sft" in log.read_text(), SECONDS)
    assert "working on sft" in log.read_text()
    run.send_signal(signal.SIGINT)
    assert "stopped; what had finished is kept" in run.communicate(timeout=SECONDS)[0]
    assert run.returncode == 130
    from flows.machine import stage_lock

    wait_for(lambda: stage_lock.find_stage_lock_holder(pipeline, "sft") is None, SECONDS)
    assert stage_lock.find_stage_lock_holder(pipeline, "sft") is None, "the command has ended"
    assert not (pipeline / "data/sft").exists()

"""A pipeline of five small stages, and the `posttrain` command on it: in this process, or as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from flows import cli, flow_run, running
from flows.engine.coordinator import Coordinator
from flows.engine.execute import Execution
from flows.engine.journals import replay_process
from flows.engine.stage_types import PlannedStage, Watcher
from tasks.common.config import Config
from tests import prefect_server
from tests.flows.engine import in_order
from tests.flows.quick_dvc import quick_dvc
from tests.flows.unsupervised import without_supervisors

REPOSITORY = Path(__file__).parents[2]
STAGE = """\
import json, re, sys, time
from pathlib import Path

name, out = sys.argv[1], Path(sys.argv[2])
section = re.search(rf"^{name}:(.*?)(?=^\\w|\\Z)", Path("params.yaml").read_text(), re.MULTILINE | re.DOTALL)[1]
params = {key: json.loads(value) for key, value in re.findall(r"\\b(beta|seconds|fail): ([^\\s,}]+)", section)}
print("working on", name, flush=True)
time.sleep(params["seconds"])
if params["fail"] and params["beta"] == 75:
    print("waiting for 40 more: posttrain label")
    sys.exit(75)
if params["fail"]:
    raise ValueError(f"{name} cannot go on")
out.mkdir(parents=True)
out.joinpath("result.json").write_text(json.dumps(params["beta"]))
if name.endswith("report"):
    out.joinpath(f"{name}.html").write_text("<html><h1>Report</h1><!-- posttrain:run --></html>")
    out.joinpath(f"{name}.md").write_text("# Report\\n\\n<!-- posttrain:run -->\\n")
"""
GRAPH = {"problems": [], "sft": ["problems"], "dpo": ["sft"], "ppo": ["sft"], "report": ["dpo", "ppo"]}


class Section(Config):
    """The keys of each stage's section."""

    beta: float
    seconds: float
    fail: bool


TYPES = dict.fromkeys(GRAPH, Section)


def make_repository(root: Path) -> None:
    """An empty git and DVC repository without examples of hooks, by DVC in this process: its imports take longest."""
    from dvc.repo import Repo

    root.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "--quiet", "--template=", root], check=True)
    Repo.init(str(root)).close()


def make_pipeline(root: Path) -> Path:
    """A git and DVC repository with five stages in which nothing has run yet."""
    make_repository(root)
    (root / "stage.py").write_text(STAGE)
    stages, params = "stages:\n", "# a toy\n"
    for name, needs in GRAPH.items():
        deps = ", ".join(["stage.py", *(f"data/{need}" for need in needs)])
        stages += f"  {name}:\n    cmd: python stage.py {name} data/{name}\n    deps: [{deps}]\n"
        stages += f"    params: [{name}]\n    outs: [data/{name}]\n"
        params += f"{name}:\n  beta: 1e-1  # of {name}\n  seconds: 0\n  fail: false\n"
    (root / "dvc.yaml").write_text(stages)
    (root / "params.yaml").write_text(params)
    (root / ".gitignore").write_text("/data\n/mlruns\n/report.*\n/offline_report.*\n")
    return root


def add_offline(root: Path) -> None:
    """Give the pipeline a second flow: bc with the branches `one` and `two`, and offline_report."""
    branches = "\n    foreach: ${bc.sets}\n    do:\n      cmd: python stage.py bc data/bc/${key} tasks.offline.bc\n"
    branches += "      deps: [stage.py]\n      params: [bc.beta, bc.seconds, bc.fail, 'bc.sets.${key}']\n"
    branches += "      outs: ['data/bc/${key}']\n"
    report = "cmd: python stage.py offline_report data/offline_report tasks.offline.offline_report\n"
    report += "    deps: [stage.py, data/bc]\n    params: [offline_report]\n    outs: [data/offline_report]\n"
    with (root / "dvc.yaml").open("a") as pipeline:
        pipeline.write(f"  bc:{branches}  offline_report:\n    {report}")
    with (root / "params.yaml").open("a") as params:
        params.write("bc: {beta: 1, seconds: 0, fail: false, sets: {one: 1, two: 2}}\n")
        params.write("offline_report: {beta: 1, seconds: 0, fail: false}\n")


def environ() -> dict[str, str]:
    return {**os.environ, **prefect_server.variables(), "PYTHONPATH": str(REPOSITORY), "DO_NOT_TRACK": "1"}


def posttrain(root: Path, *arguments: str, settled: bool = True) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own; with `settled` what it did is on record afterwards."""
    command = [sys.executable, "-m", "flows.cli", *arguments]
    done = subprocess.run(command, cwd=root, env=environ(), capture_output=True, text=True, check=False, timeout=120)
    if settled:
        replay_process.wait_for_recorded_runs(root)
    return done


@contextmanager
def started(
    root: Path, planned: list[PlannedStage], *, jobs: int | None, watch: Watcher, wait: bool = False, **more: Any
) -> Iterator[Execution]:
    """What executes a plan without MLflow's records, which take long to start."""
    owner = more["owner"](None) if "owner" in more else Coordinator(root, workers=more["workers"])
    with owner as coordinator:
        execution = Execution(coordinator, planned, jobs, watch, wait)
        yield execution
        execution.ended = execution.results()


def quietly(patch: pytest.MonkeyPatch) -> None:
    """Have `posttrain run` do without Prefect and MLflow, which take longer to start than all tests that use it."""
    patch.setattr("flows.engine.run_session.open_recorded_execution", started)
    patch.setattr(flow_run, "open_prefect_server", lambda root, console: nullcontext())
    patch.setattr(flow_run, "open_server_starter", lambda root, wanted: nullcontext(lambda: None))
    patch.setattr(running, "run_flow_part", lambda root, console, part, name, parameters: in_order.run(part.execution))


def call(root: Path, *arguments: str) -> tuple[int, str, str]:
    """The command in this process: exit code, standard output, standard error."""
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as error,
    ):
        quietly(patch)
        without_supervisors(patch)
        quick_dvc(patch)
        patch.chdir(root)
        return cli.run_command_line(arguments), out.getvalue(), error.getvalue()

"""What a stage on a worker costs beyond the same stage here: `python -m benchmarks.workers` writes
benchmarks/results/workers.json.

A trivial stage runs here, on a worker in the same folder, and on a worker with a clone and a folder as the DVC remote,
turn about, with one Prefect server (SQLite) and both workers up. The seconds are the stage's own in `posttrain run
--json`: from its turn to its record in DVC, the worker's part and the transfers included, the start of `posttrain run`
excluded. The peer is a trivial flow as a deployment run through Prefect's process worker with Prefect's defaults, from
`run_deployment` to its end.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import result_files, tables
from benchmarks.engine import describe_machine
from flows.orchestration import server

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/workers.json"
ROUNDS = 7
TARGETS = {"worker in the same folder": 4.0, "worker with a clone": 8.0}  # seconds beyond a local stage, of issue 14
PLACES = {"here": "", "worker in the same folder": "shared", "worker with a clone": "clone"}
FLOW = """
from prefect import flow

@flow
def trivial():
    pass
"""
DEPLOY = """
from prefect import flow
flow.from_source(".", "trivial.py:trivial").deploy(name="peer", work_pool_name="peer", print_next_steps=False)
"""
RUN = """
import sys, time
from prefect.deployments import run_deployment
for _ in range(int(sys.argv[1])):
    began = time.monotonic()
    state = run_deployment("trivial/peer", poll_interval=0.2).state
    assert state.is_completed(), state
    print(time.monotonic() - began, flush=True)
"""


def create_one_stage_repository(root: Path) -> None:
    """A repository with one stage that copies a file, and a DVC remote."""
    root.mkdir()
    files = {
        "dvc.yaml": "stages:\n  copy:\n    cmd: mkdir -p data && cp source data/copy\n    deps: [source]\n"
        "    outs: [data/copy]\n    meta: {resources: {gpu: 1}}\n",
        "params.yaml": "{}\n",
        "source": "some bytes\n",
        ".gitignore": "/data\n/mlruns\n/*.html\n",
    }
    for name, text in files.items():
        (root / name).write_text(text)
    (root.parent / "remote").mkdir()
    git = ["git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org"]
    for command in (
        ["git", "init", "--quiet"],
        ["dvc", "init", "--quiet"],
        ["dvc", "remote", "add", "--quiet", "--default", "store", str(root.parent / "remote")],
        ["git", "add", "."],
        [*git, "commit", "--quiet", "--message", "one stage"],
    ):
        subprocess.run(command, cwd=root, check=True)


@contextmanager
def run_in_background(root: Path, environ: Mapping[str, str], *command: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that runs until the end of the block."""
    process = subprocess.Popen(
        command, cwd=root, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def run_worker_in_background(root: Path, environ: Mapping[str, str], pool: str) -> Iterator[None]:
    """A worker of the pool that takes stages."""
    with run_in_background(root, environ, "posttrain", "worker", "--pool", pool) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "takes stages" in line, line
        yield


def measure_stage_seconds(root: Path, environ: Mapping[str, str], pool: str) -> float:
    """The stage's own seconds in one run."""
    command = ["posttrain", "run", "copy", "--force", "copy", "--json", *(["--pool", pool] if pool else [])]
    done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["copy"]
    assert found["state"] == "ran", found
    return float(found["seconds"])


def measure_prefect_seconds(folder: Path, environ: Mapping[str, str], rounds: int) -> list[float]:
    """The seconds of a trivial deployment run through Prefect's own worker."""
    (folder / "trivial.py").write_text(FLOW)
    python = sys.executable
    prefect = "prefect"
    subprocess.run(
        [prefect, "work-pool", "create", "peer", "--type", "process"],
        cwd=folder,
        env=environ,
        check=True,
        capture_output=True,
    )
    subprocess.run([python, "-c", DEPLOY], cwd=folder, env=environ, check=True, capture_output=True)
    with run_in_background(folder, environ, prefect, "worker", "start", "--pool", "peer"):
        time.sleep(5)
        done = subprocess.run(
            [python, "-c", RUN, str(rounds + 1)], cwd=folder, env=environ, check=True, capture_output=True, text=True
        )
    return [float(line) for line in done.stdout.split()][1:]


def measure_places(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, by place; the first round is a warm-up."""
    root = folder / "repository"
    clone = folder / "clone"
    create_one_stage_repository(root)
    subprocess.run(["git", "clone", "--quiet", str(root), str(clone)], check=True)
    own = server.Server(folder)
    found: dict[str, list[float]] = {name: [] for name in PLACES}
    with ExitStack() as stack:
        stack.callback(server.stop_server, folder)
        stack.callback(own.close)
        own.wait()
        environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **server.build_client_environment(folder),
            "DO_NOT_TRACK": "1",
        }
        stack.enter_context(run_worker_in_background(root, environ, "shared"))
        stack.enter_context(run_worker_in_background(clone, environ, "clone"))
        for number in range(rounds + 1):
            for name, pool in PLACES.items():
                took = measure_stage_seconds(root, environ, pool)
                print(f"{name}: {took:.2f} s", flush=True)
                if number:
                    found[name].append(took)
        found["Prefect's process worker, a trivial flow"] = measure_prefect_seconds(folder, environ, rounds)
    return found


def table(result: Mapping[str, Any]) -> str:
    """A row for each place where a stage ran."""
    times: dict[str, list[float]] = result["seconds"]
    here = statistics.median(times["here"])
    rows = [["where", "seconds", "beyond a local stage", "aim"]]
    for name, values in times.items():
        middle = statistics.median(values)
        beyond = "" if name == "here" else f"{middle - here:.2f}"
        aim = f"under {TARGETS[name]:g}" if name in TARGETS else ""
        rows.append([name, f"{middle:.2f} ({min(values):.2f} to {max(values):.2f})", beyond, aim])
    return tables.render_markdown_table(rows)


def render(result: Mapping[str, Any]) -> str:
    """benchmarks/workers.md."""
    lines = [
        "# What a stage on a worker costs",
        "",
        f"Made by `python -m benchmarks.workers` on {result['machine']}. Server, coordinator and workers share this",
        f"machine. The stage copies a file of a few bytes. Seconds of wall time, medians of {result['rounds']} "
        "(lowest to highest), turn about, after a",
        f"warm-up. Load of the machine when it began: {result['load']:.1f}.",
        "",
        table(result).removesuffix("\n"),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    scratch = Path(tempfile.mkdtemp())
    try:
        times = measure_places(scratch, given.rounds)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    result = {
        "machine": describe_machine("dvc", "prefect", "mlflow"),
        "load": load,
        "rounds": given.rounds,
        "seconds": times,
    }
    result_files.write_result(given.out, result)
    print(render(result))


if __name__ == "__main__":
    main()

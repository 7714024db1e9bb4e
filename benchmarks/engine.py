"""The engine against plain `dvc repro`: `python -m benchmarks.engine` writes benchmarks/results/engine.json.

All tools run the same toy pipelines as whole processes, in turn, in repositories of their own under a temporary folder:
`posttrain run`, plain `dvc repro`, a Prefect flow whose tasks call `dvc repro --single-item`
(benchmarks/naive_flow.py), and with `--snakemake PROGRAM` Snakemake, from an environment of its own. `posttrain` and
the flow each have a Prefect server, which is up unless the case says otherwise. MLflow's records of `posttrain` are
written by a process that goes on after the command has ended; the next command begins when it has ended too, and how
long that took is in the table.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import result_files
from flows.engine.journals import journal
from flows.no_change_check import SETTLED
from flows.orchestration import server

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks/results/engine.json"
ROUNDS = 5
LARGE_ROUNDS = 3
STAGES = 15
LARGE_STAGES = 8
LARGE_MB = 200
MANY = 300
CHAIN = 176
POSTTRAIN = "posttrain"
PLAIN = "dvc repro"
NAIVE = "prefect + dvc repro"
SNAKEMAKE = "snakemake"
AFTER = "then"
COMMANDS = {
    POSTTRAIN: [sys.executable, "-m", "flows.start", "run", "last"],
    PLAIN: [sys.executable, "-m", "dvc", "repro"],
    NAIVE: [sys.executable, "-m", "benchmarks.naive_flow"],
}
Stages = dict[str, dict[str, Any]]  # as dvc.yaml has them
# One random megabyte, written repeatedly: writing is cheap, and hashing costs as much as for any out.
WRITE = "import os,sys;b=os.urandom(2**20);f=open(sys.argv[1],'wb');[f.write(b) for _ in range(int(sys.argv[2]))]"


@dataclass
class Case:
    """One line of the table. `prepare` puts a repository into the state in which the command is timed."""

    name: str
    stages: Stages
    prepare: Callable[[Path], None]
    rounds: int = ROUNDS
    naive: bool = True  # whether the flow over `dvc repro` is measured, which takes a second a stage
    cold: bool = False  # without a Prefect server: each tool has to start its own


def build_chain_stages(length: int) -> Stages:
    """`length` trivial stages, each after the one before."""
    names = [f"s{index}" for index in range(length - 1)] + ["last"]
    return {
        name: {"cmd": f"cat {before} > {name}", "deps": [before], "outs": [name]}
        for before, name in zip(["input", *names], names, strict=False)
    }


def build_fan_stages() -> Stages:
    """Independent stages with large outs, and a last stage that depends on all outs but reads none."""
    names = [f"large{index}" for index in range(LARGE_STAGES)]
    large: Stages = {
        name: {"cmd": f"python write.py {name} {LARGE_MB}", "deps": ["input"], "outs": [name]} for name in names
    }
    return {**large, "last": {"cmd": "echo done > last", "deps": names, "outs": ["last"]}}


def change_input(root: Path) -> None:
    """New input, so that every stage is out of date and no cache has its result."""
    (root / "input").write_bytes(os.urandom(16))


def wait_until_files_settle(root: Path) -> None:
    """Wait until the files are old enough to be judged by their times; the first run then looks, and the others
    know.
    """
    time.sleep(SETTLED + 0.1)


def change_input_and_run(root: Path) -> None:
    """A change and a run of it, so that the command that is timed is the first one after a run."""
    change_input(root)
    measure_command_seconds(COMMANDS[POSTTRAIN] if root.name == POSTTRAIN else COMMANDS[PLAIN], root)


def change_input_and_delete_outs(root: Path) -> None:
    """New input, and the large outs of the previous round deleted."""
    change_input(root)
    for path in [*root.glob("large*"), *root.glob(".dvc/cache/files")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


CASES = [
    Case(f"nothing to do, {STAGES} stages", build_chain_stages(STAGES), wait_until_files_settle),
    Case(f"nothing to do, {MANY} stages", build_chain_stages(MANY), wait_until_files_settle, LARGE_ROUNDS, naive=False),
    Case(
        f"nothing to do right after a run, {STAGES} stages",
        build_chain_stages(STAGES),
        change_input_and_run,
        LARGE_ROUNDS,
    ),
    Case("1 trivial stage", build_chain_stages(1), change_input),
    Case("1 trivial stage, no Prefect server yet", build_chain_stages(1), change_input, LARGE_ROUNDS, cold=True),
    Case(f"{STAGES} trivial stages in a chain", build_chain_stages(STAGES), change_input),
    Case(f"{CHAIN} trivial stages in a chain", build_chain_stages(CHAIN), change_input, 1, naive=False),
    Case(
        f"{LARGE_STAGES} independent stages, an out of {LARGE_MB} MB each",
        build_fan_stages(),
        change_input_and_delete_outs,
        LARGE_ROUNDS,
    ),
]


def create_toy_repository(root: Path, stages: Stages) -> Path:
    """A repository with the stages, run once, so that MLflow's and Prefect's tables exist."""
    root.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet"], cwd=root, check=True)
    (root / "write.py").write_text(WRITE)
    (root / "dvc.yaml").write_text(json.dumps({"stages": stages}))
    (root / "Snakefile").write_text("".join(map(format_snakemake_rule, stages.items())))
    (root / "params.yaml").write_text("{}\n")
    change_input(root)
    return root


def format_snakemake_rule(stage: tuple[str, dict[str, Any]]) -> str:
    """A stage as Snakemake has it."""
    name, facts = stage
    parts = {"input": facts["deps"], "output": facts["outs"], "shell": facts["cmd"]}
    return f"rule {name}:\n" + "".join(f"    {kind}: {json.dumps(of).strip('[]')}\n" for kind, of in parts.items())


def measure_command_seconds(command: list[str], root: Path, prefect: dict[str, str] | None = None) -> float:
    """The wall time of one command in seconds. `prefect` are the variables that name a Prefect server."""
    environ = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "DO_NOT_TRACK": "1",
        **(prefect or {}),
    }
    began = time.perf_counter()
    subprocess.run(command, cwd=root, env=environ, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def wait_for_records(root: Path) -> float:
    """Wait until all that ran is on record; the seconds that took."""
    began = time.perf_counter()
    while journal.list_ended_journals(root):
        time.sleep(0.01)
    return time.perf_counter() - began


def measure_engine_case(case: Case, folder: Path, tools: dict[str, list[str]]) -> dict[str, list[float]]:
    """The times of each tool, in turn, after one warm-up run each, and those from the end of `posttrain` to that of its
    records.
    """
    waits = {name: [dep for dep in facts["deps"] if dep in case.stages] for name, facts in case.stages.items()}
    tools = {name: command for name, command in tools.items() if case.naive or name != NAIVE}
    if case.naive:
        tools[NAIVE] = [*tools[NAIVE], json.dumps(waits)]
    roots = {tool: create_toy_repository(folder / tool.replace(" ", "-"), case.stages) for tool in tools}
    times: dict[str, list[float]] = {name: [] for name in (*tools, AFTER)}
    with ExitStack() as stack:
        for root in (roots[tool] for tool in (POSTTRAIN, NAIVE) if tool in roots):
            stack.callback(server.stop_server, root)
        if case.naive:
            kept = server.Server(roots[NAIVE])
            stack.callback(kept.close)
            kept.wait()
        for counted in [False] + [True] * case.rounds:
            for tool, root in roots.items():
                if counted:
                    case.prepare(root)
                if case.cold and tool == POSTTRAIN:
                    server.stop_server(root)
                seconds = measure_command_seconds(
                    tools[tool], root, build_prefect_environment(root, case.cold) if tool == NAIVE else {}
                )
                after = wait_for_records(root)
                if counted:
                    times[tool].append(seconds)
                if counted and tool == POSTTRAIN:
                    times[AFTER].append(after)
    return times


def build_prefect_environment(root: Path, cold: bool) -> dict[str, str]:
    """The variables that name the server of the flow over `dvc repro`; none for one that it has to start itself."""
    return (
        {"PREFECT_HOME": str(root / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        if cold
        else server.build_client_environment(root)
    )


def format_engine_row(name: str, times: dict[str, float], after: str = "", spread: str = "") -> str:
    """One line of the table."""
    ours = times[POSTTRAIN]
    plain = times[PLAIN]
    naive = f"{times[NAIVE]:.2f}" if NAIVE in times else ""
    other = f"{times[SNAKEMAKE]:.2f}" if SNAKEMAKE in times else ""
    return f"| {name} | {ours:.2f} | {plain:.2f} | {ours / plain:.2f} | {naive} | {other} | {after} | {spread} |"


def describe_machine(*packages: str) -> str:
    """The machine, without its host name, and the versions of Python and of these packages."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    return (
        f"{os.cpu_count()} cores ({result_files.describe_processor()}), {platform.system()}, Python "
        f"{platform.python_version()}, {versions}"
    )


def main() -> None:
    """Measure all cases and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--snakemake", metavar="PROGRAM", help="the program of Snakemake, to be measured too")
    program = parser.parse_args().snakemake
    tools = dict(COMMANDS)
    peer = "Snakemake was not measured."
    if program:
        tools[SNAKEMAKE] = [program, "--cores", str(os.cpu_count()), "--quiet", "all", "--", "last"]
        version = subprocess.run([program, "--version"], capture_output=True, check=True, text=True).stdout.strip()
        peer = f"Snakemake is {version}; it judges files by their times, hashes none and keeps no record."
    lines = [
        "# The engine against plain `dvc repro`",
        "",
        f"Made by `python -m benchmarks.engine` on {describe_machine('dvc', 'prefect', 'mlflow')}.",
        "Seconds of wall time of the whole command; medians of several runs, turn about, in repositories that have "
        "been run once",
        f"before. Load of the machine when it began: {os.getloadavg()[0]:.1f}.",
        "",
        "- `ratio` is `posttrain` over `dvc repro`.",
        f"- `{NAIVE}` is a Prefect flow whose tasks call `dvc repro --single-item` (benchmarks/naive_flow.py).",
        "- `posttrain` and that flow each have a Prefect server. It is up when the command begins, as it is for 15 "
        "minutes after",
        "  each `posttrain run`, except in the case that says otherwise.",
        f"- {peer}",
        "- MLflow's records are written by a process that goes on after `posttrain` has ended. `then` is the time "
        "until that has ended",
        "  too. It is not counted: the next command need not wait for it, unless it reads the records.",
        "",
        f"| case | posttrain | dvc repro | ratio | {NAIVE} | snakemake | then | runs, lowest to highest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    medians = []
    single = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            times = measure_engine_case(case, Path(folder), tools)
        single[case.name] = times
        middle = {tool: statistics.median(values) for tool, values in times.items()}
        spread = "; ".join(
            f"{tool} {min(times[tool]):.2f} to {max(times[tool]):.2f}" for tool in tools if tool in times
        )
        lines.append(format_engine_row(case.name, middle, f"{middle[AFTER]:.2f}", f"{case.rounds}: {spread}"))
        medians.append(middle)
        print(lines[-1], flush=True)
    by_name = {case.name: middle for case, middle in zip(CASES, medians, strict=True)}
    one = by_name["1 trivial stage"]
    many = by_name[f"{CHAIN} trivial stages in a chain"]
    each = {tool: (many[tool] - one[tool]) / (CHAIN - 1) for tool in many.keys() & one.keys() - {AFTER}}
    lines.append(format_engine_row("each further trivial stage", each, "", f"from 1 and {CHAIN}"))
    print(lines[-1])
    result_files.write_result(RESULT, {"page": lines}, single)


if __name__ == "__main__":
    main()

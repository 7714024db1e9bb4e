"""How the questions about what was recorded scale with the records: `python -m benchmarks.history` writes
benchmarks/results/history.json.

A copy of this repository runs the language flow once at preset tiny's size. Then its records are multiplied by SQL:
each further pipeline run has all stages, with the tags, parameters, metrics and data sets of the first, but with
hashes, ids and times of its own. Every command is a process of its own, as a user starts it; the same commands are
timed with one pipeline run and with all of them, turn about. The peer is MLflow's own search for the same runs.
"""

import argparse
import hashlib
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.engine import describe_machine

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/history.json"
DATABASE = Path("mlruns/mlflow.db")
ARTIFACTS = Path("mlruns/artifacts")
PIPELINES = 1000
ROUNDS = 7
WITH_FILES = 100  # of the newest pipeline runs, whose stages have a record.json
TARGET = 3.0  # seconds, of issue 13
APART = 3_600_000  # milliseconds between two pipeline runs
HASH = re.compile(r"\b[0-9a-f]{32,64}\b")
SEARCH = """
from mlflow import MlflowClient
client = MlflowClient("sqlite:///mlruns/mlflow.db")
ids = [one.experiment_id for one in client.search_experiments()]
runs = client.search_runs(ids, "tags.`posttrain.flow` = 'language'", max_results=10, order_by=["attributes.start_time DESC"])
assert runs and all(run.data.params for run in runs)
"""  # noqa: E501
COMMANDS: dict[str, list[str]] = {
    "posttrain runs": ["-m", "flows.cli", "runs"],
    "posttrain lineage grpo": ["-m", "flows.cli", "lineage", "grpo"],
    "posttrain audit grpo": ["-m", "flows.cli", "audit", "grpo"],
    "posttrain run, nothing to do": ["-m", "flows.cli", "run"],
    "MLflow's search_runs for the same 10 runs": ["-c", SEARCH],
}
COPIED = {  # table -> the columns that hold ids, hashes or times
    "runs": ("run_uuid", "artifact_uri", "start_time", "end_time"),
    "tags": ("run_uuid", "value"),
    "params": ("run_uuid",),
    "metrics": ("run_uuid", "timestamp"),
    "latest_metrics": ("run_uuid", "timestamp"),
    "datasets": ("dataset_uuid", "digest", "dataset_source"),
    "inputs": ("input_uuid", "source_id", "destination_id"),
    "input_tags": ("input_uuid",),
    "model_versions": ("version", "run_id", "source", "storage_location"),
    "model_version_tags": ("version", "value"),
}
TIMES = ("start_time", "end_time", "timestamp")


def build_command_environment(root: Path) -> dict[str, str]:
    """The environment of a command in the repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "MLFLOW"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PYTHONPATH": str(root), "PATH": path, "DVC_NO_ANALYTICS": "1"}


def measure_python_seconds(root: Path, *words: str) -> float:
    """Run Python with these words; the seconds that it took."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=build_command_environment(root),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - began


def create_clone_with_run(root: Path) -> Path:
    """A clone of this repository that has run the language flow once, at toy size."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(root)], check=True)
    measure_python_seconds(root, "-m", "flows.cli", "preset", "tiny")
    who = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org"]
    subprocess.run(["git", *who, "commit", "--quiet", "--all", "--message", "tiny"], cwd=root, check=True)
    measure_python_seconds(root, "-m", "flows.cli", "run", "language")
    return root


def replace_hashes(text: Any, number: int) -> Any:
    """The text with another hash or id for each one in it, the same for the same."""
    if not isinstance(text, str):
        return text
    return HASH.sub(lambda found: hashlib.sha512(f"{number} {found[0]}".encode()).hexdigest()[: len(found[0])], text)


def multiply_pipeline_runs(root: Path, pipelines: int, with_files: int) -> int:
    """Add earlier pipeline runs to the only one until there are so many; the number of runs of any kind."""
    with closing(sqlite3.connect(root / DATABASE)) as records:
        for pragma in ("synchronous = OFF", "journal_mode = OFF", "cache_size = -1000000"):
            records.execute(f"PRAGMA {pragma}")
        records.create_function("renewed", 2, replace_hashes, deterministic=True)
        statements = [build_copy_statement(records, table) for table in COPIED]
        originals = {table: f"CREATE TEMP TABLE first_{table} AS SELECT * FROM {table}" for table in COPIED}
        for statement in originals.values():
            records.execute(statement)
        for number in range(1, pipelines):
            for statement in statements:
                records.execute(statement, {"number": number, "before": number * APART})
            records.execute(
                "UPDATE params SET value = ? WHERE key = 'dpo.beta' AND run_uuid IN "
                "(SELECT renewed(run_uuid, ?) FROM first_runs)",
                [f"0.{number}", number],
            )
        records.commit()
        runs = [run_id for (run_id,) in records.execute("SELECT run_uuid FROM first_runs")]
        [(count,)] = records.execute("SELECT count(*) FROM runs")
    for number in range(1, min(with_files, pipelines)):
        for run_id in runs:
            record = root / ARTIFACTS / run_id / "artifacts/record.json"
            if record.is_file():
                copy = root / ARTIFACTS / replace_hashes(run_id, number) / "artifacts/record.json"
                copy.parent.mkdir(parents=True)
                copy.write_text(replace_hashes(record.read_text(), number))
    return int(count)


def build_copy_statement(records: sqlite3.Connection, table: str) -> str:
    """The statement that copies a table's first rows with new ids, hashes and times."""
    names = [name for _, name, *_ in records.execute(f"PRAGMA table_info({table})")]

    def of(name: str) -> str:
        if name not in COPIED[table]:
            return f'"{name}"'
        if name == "version":
            return "version + :number"
        return f'"{name}" - :before' if name in TIMES else f'renewed("{name}", :number)'

    return f"INSERT INTO {table} SELECT {', '.join(map(of, names))} FROM first_{table}"


def measure_commands(roots: Mapping[str, Path], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each command in each repository, turn about, after one warm-up each."""
    found: dict[str, dict[str, list[float]]] = {name: {size: [] for size in roots} for name in COMMANDS}
    for counted in [False] + [True] * rounds:
        for name, words in COMMANDS.items():
            for size, root in roots.items():
                seconds = measure_python_seconds(root, *words)
                if counted:
                    found[name][size].append(round(seconds, 3))
    return found


def count_rows_and_bytes(root: Path) -> dict[str, int]:
    """What the database holds: rows by table, and bytes."""
    with closing(sqlite3.connect(root / DATABASE)) as records:
        rows = {table: int(records.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in COPIED}
    return {**rows, "bytes": (root / DATABASE).stat().st_size}


def render(result: Mapping[str, Any]) -> str:
    """benchmarks/history.md."""
    held = result["database"]
    sizes = [*result["seconds"]["posttrain runs"]]
    lines = [
        f"# The records of {result['pipelines']:,} pipeline runs",
        "",
        f"Made by `python -m benchmarks.history` on {result['machine']}.",
        f"The database has {held['runs']:,} runs with {held['tags']:,} tags, {held['params']:,} parameters and "
        f"{held['metrics']:,} values of",
        f"metrics, {held['bytes'] / 1e6:,.0f} MB. Seconds of wall time of whole processes; medians of "
        f"{result['rounds']} (lowest to highest), turn about, after a",
        f"warm-up. Load of the machine when it began: {result['load']:.1f}.",
        "",
        f"| command | {' | '.join(sizes)} |",
        f"|---|{'---|' * len(sizes)}",
    ]
    for name, times in result["seconds"].items():
        lines.append(f"| {name} | {' | '.join(map(format_median_seconds, times.values()))} |")
    return "\n".join(lines) + "\n"


def format_median_seconds(times: list[float]) -> str:
    """The median, and the lowest and highest."""
    middle = f"{statistics.median(times):.2f}"
    return middle if len(times) == 1 else f"{middle} ({min(times):.2f} to {max(times):.2f})"


def find_slow_commands(result: Mapping[str, Any]) -> Iterator[str]:
    """The commands of ours that take longer than the target."""
    for name, times in result["seconds"].items():
        slowest = max(map(statistics.median, times.values()))
        if name.startswith("posttrain") and slowest > TARGET:
            yield f"{name}: {slowest:.2f} s, over {TARGET:g}"


def main() -> None:
    """Prepare, measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=PIPELINES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--prepared", type=Path, help="a clone that has run the language flow once already; it is copied"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        roots = {"1 pipeline run": Path(scratch, "one"), f"{given.pipelines:,}": Path(scratch, "many")}
        one, many = roots.values()
        if given.prepared:
            shutil.copytree(given.prepared, one, symlinks=True)
        else:
            create_clone_with_run(one)
        shutil.copytree(one, many, symlinks=True)
        measure_python_seconds(many, "-m", "flows.cli", "runs")
        print(f"{multiply_pipeline_runs(many, given.pipelines, WITH_FILES):,} runs", flush=True)
        result: dict[str, Any] = {
            "machine": describe_machine("dvc", "prefect", "mlflow"),
            "load": load,
            "pipelines": given.pipelines,
            "rounds": given.rounds,
            "database": count_rows_and_bytes(many),
            "seconds": measure_commands(roots, given.rounds),
        }
    result_files.write_result(given.out, result)
    print(render(result), *find_slow_commands(result), sep="\n")


if __name__ == "__main__":
    main()

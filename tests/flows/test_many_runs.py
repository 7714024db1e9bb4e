"""What `posttrain run`, `status` and `runs` cost does not grow with the number of runs that are on record."""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flows.lineage.audited import Audited
from tests.flows.toy_pipeline import environ

pytestmark = pytest.mark.slow
PIPELINES = 500  # each with the runs of six stages
TABLES = ("runs", "tags", "params", "metrics", "latest_metrics")
OFFSET = 10**9  # milliseconds: the copies are older


@pytest.fixture
def once(template: Path, tmp_path: Path, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch) -> Audited:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    shutil.copytree(template, tmp_path / "repository")
    toy = Audited.build(tmp_path / "repository", empty_mlflow)
    toy.pipeline()
    return toy


# A small process in between: a child begins with the memory of its parent, as far as the kernel's peak is concerned.
MEASURE = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stderr, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000]))
"""


def cost(toy: Audited, *arguments: str) -> tuple[float, float]:
    """Seconds of processor time of the command and all that it starts, and the megabytes of the largest process."""
    command = [sys.executable, "-c", MEASURE, sys.executable, "-m", "flows.cli", *arguments]
    done = subprocess.run(command, cwd=toy.root, env=environ(), capture_output=True, text=True, check=True)
    code, error, seconds, megabytes = json.loads(done.stdout)
    assert code == 0, error
    return seconds, megabytes


def multiply(toy: Audited) -> None:
    """Put copies of all runs of the pipeline into the database, with other ids, run-cache keys and hashes, all of them
    older.
    """
    with sqlite3.connect(toy.root / "mlruns/mlflow.db") as records:
        ids = [run_id for (run_id,) in records.execute("SELECT run_uuid FROM runs")]
        for table in TABLES:
            columns = [name for _, name, *_ in records.execute(f"PRAGMA table_info({table})")]
            rows = [dict(zip(columns, row, strict=True)) for row in records.execute(f"SELECT * FROM {table}")]
            for number in range(1, PIPELINES + 1):
                names = {old: f"{number:08x}{old[8:]}" for old in ids}
                copies = [[*copied(table, row, names, number).values()] for row in rows]
                records.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", copies)


def copied(table: str, row: dict[str, Any], names: dict[str, str], number: int) -> dict[str, Any]:
    row = {**row, "run_uuid": names[row["run_uuid"]]}
    if table == "runs":
        row |= {name: row[name] - OFFSET - number for name in ("start_time", "end_time")}
    elif table == "tags":
        row["value"] = changed(row["key"], row["value"], names, number)
    return row


def changed(key: str, value: str, names: dict[str, str], number: int) -> str:
    if key.startswith(("posttrain.out", "posttrain.key", "posttrain.metrics_md5")):
        return " ".join(f"{number:08x}{word[8:]}" for word in value.split(" "))
    return names.get(value, value)


def test_a_database_of_thousands_of_runs_costs_no_more(once: Audited) -> None:
    commands = (
        ["status", "report"],
        ["run", "report"],
        ["runs"],
        ["run", "report", "--force", "b"],
        ["lineage", "report"],
    )
    few = {tuple(command): cost(once, *command) for command in commands}
    multiply(once)
    many = {tuple(command): cost(once, *command) for command in commands}
    for command, (seconds, megabytes) in many.items():
        print(" ".join(command), few[command], (seconds, megabytes))
        before, memory = few[command]
        assert seconds < 2 * before + 2, command  # 500 times as many runs; the machine may be busy
        assert megabytes < memory + 40, command

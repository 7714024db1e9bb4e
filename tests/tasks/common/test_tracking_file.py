"""A stage under the coordinator leaves what it records in a file (test_mlflow_run_writer.py has the other end)."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from tasks.common import tracking

ROWS = [{"loss": 1.5, "10%BC": 0.0}, {"loss": 0.5, "10%BC": 1.0}]


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTTRAIN_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("POSTTRAIN_PROGRESS", str(tmp_path / "progress"))
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    monkeypatch.setattr(tracking.time, "time", lambda: 12.5)
    return tmp_path / "records"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def row(step, **metrics):
    return {"metrics": metrics, "step": step, "time": 12500}


def test_what_is_in_the_file(records, tmp_path):
    seen = []

    def steps():
        for each in ROWS:
            yield each
            seen.append(len(lines(records)))

    with tracking.record_stage_run(
        "language", "evaluate@dpo", {"beta": 0.1, "names": ["a"]}, tmp_path / "metrics.json"
    ):
        assert tracking.run_and_record_training(steps(), 3, earlier=ROWS[:1]) == [ROWS[0], *ROWS]
        tracking.record_metrics({"seconds": 2}, 7)
        tracking.record_table(pd.DataFrame({"text": ["\n"], "none": [float("nan")]}), "samples/step-1.json")
        (tmp_path / "metrics.json").write_text('{"accuracy": 0.75, "pairs": {"train": 9}}')
    assert lines(records) == [
        {"params": {"evaluate.beta": "0.1", "evaluate.names": "['a']"}},
        row(1, **{"loss": 1.5, "10_BC": 0}),
        row(2, **{"loss": 1.5, "10_BC": 0}),
        row(3, **{"loss": 0.5, "10_BC": 1}),
        row(7, seconds=2),
        {"table": {"columns": ["text", "none"], "data": [["\n", None]]}, "name": "samples/step-1.json"},
        row(0, **{"accuracy": 0.75, "pairs/train": 9}),
    ]
    assert seen == [3, 4], "each line is there as soon as it is recorded"
    assert lines(tmp_path / "progress")[-1] == {"step": 3, "total": 3, "measure": "loss 0.5"}
    assert {file.name for file in tmp_path.iterdir()} == {"records", "progress", "metrics.json"}, "no database"


def test_a_stage_that_fails_has_its_rows_and_no_results(records, tmp_path):
    def breaking():
        yield from ROWS
        raise RuntimeError

    with pytest.raises(RuntimeError), tracking.record_stage_run("language", "dpo", {}, tmp_path / "metrics.json"):
        tracking.run_and_record_training(breaking(), 3)
    assert [line.get("step") for line in lines(records)] == [None, 1, 2]


def test_a_second_process_of_the_stage_goes_on_behind_the_first(records, tmp_path):
    """The first was killed while it wrote a line."""
    for _ in range(2):
        with tracking.record_stage_run("language", "dpo", {}, tmp_path / "metrics.json"):
            (tmp_path / "metrics.json").write_text("{}")
        records.write_text(records.read_text() + '{"metr')
    assert records.read_text().splitlines() == ['{"params": {}}', row_of_nothing, '{"metr'] * 2


row_of_nothing = json.dumps(row(0))


@pytest.mark.parametrize("place", ["/dev/full", ".", "nowhere/records"])
def test_a_file_that_cannot_be_written_is_one_line(records, tmp_path, monkeypatch, capsys, place):
    monkeypatch.setenv("POSTTRAIN_RECORDS", place)
    with tracking.record_stage_run("language", "dpo", {}, tmp_path / "metrics.json"):
        assert tracking.run_and_record_training(iter(ROWS), 2) == ROWS
        (tmp_path / "metrics.json").write_text("{}")
    reason = {"/dev/full": "No space left on device", ".": "Is a directory"}.get(place, "No such file or directory")
    assert capsys.readouterr().err == f"what MLflow has of this run is incomplete: {place}: {reason}\n"


# A process that may write 300 bytes to a file, and later more; it says which modules it imported.
STAGE = """
import resource, sys
from pathlib import Path
from tasks.common import tracking

def rows():
    for step in range(50):
        if step == 40:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        yield {"loss": step}

resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
with tracking.record_stage_run("language", "dpo", {"beta": 1}, Path("metrics.json")):
    tracking.run_and_record_training(rows(), 50)
    Path("metrics.json").write_text("{}")
print(*sorted({"mlflow", "pandas", "sqlalchemy", "torch"} & sys.modules.keys()))
"""


def test_lines_that_found_no_room_come_whole_later_and_mlflow_is_not_imported(records, tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    del environ["POSTTRAIN_PROGRESS"]  # its file is a file too
    done = subprocess.run([sys.executable, "-c", STAGE], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
    assert "incomplete" not in done.stderr
    assert [line["metrics"]["loss"] for line in lines(records)[1:-1]] == list(range(50))

"""The first step at which two histories differ, by hand and out of a database."""

import sqlite3

import pytest

from flows.lineage.reproduction import metric_history
from flows.lineage.reproduction.metric_history import find_first_metric_difference


def history(**metrics: list[float]) -> metric_history.History:
    found: dict[int, dict[str, frozenset[float | None]]] = {}
    for name, values in metrics.items():
        for step, value in enumerate(values):
            found.setdefault(step, {})[name] = frozenset([value])
    return found


def test_results_come_last_although_they_are_at_step_0():
    before, after = history(loss=[9, 1, 2, 3]), history(loss=[8, 1, 2, 4])
    found = find_first_metric_difference(before, after)
    assert found is not None
    assert (found.step, found.metric, found.recorded, found.made, found.metrics, found.steps) == (3, "loss", 3, 4, 1, 3)
    assert found.line == "the metrics first differ at step 3 of 3: loss 3 recorded, 4 made"
    only_results = find_first_metric_difference(before, history(loss=[8, 1, 2, 3]))
    assert only_results is not None
    assert only_results.line == "the metrics first differ at the results at the end: loss 9 recorded, 8 made"


def test_a_metric_or_step_that_only_one_run_logged():
    found = find_first_metric_difference(history(a=[0, 1], b=[0, 1]), history(a=[0, 1]))
    assert found is not None
    assert (found.step, found.metric, found.recorded, found.made) == (1, "b", 1, None)
    longer = find_first_metric_difference(history(a=[0, 1]), history(a=[0, 1, 2]))
    assert longer is not None
    assert (longer.step, longer.recorded, longer.made) == (2, None, 2)


def test_nothing_differs_or_nothing_was_logged():
    same = history(a=[0, 1], b=[2, 3])
    assert find_first_metric_difference(same, history(a=[0, 1], b=[2, 3])) is None
    assert find_first_metric_difference(same, {}) is None
    assert find_first_metric_difference({}, same) is None


def test_another_number_of_processes_is_no_other_result():
    before, after = (history(loss=[1], **{"system/processes": [n], "system/threads": [2.0]}) for n in (2.0, 1.0))
    assert find_first_metric_difference(before, after) is None
    assert metric_history.find_system_metric_differences(before, after) == {"processes": ("2", "1")}
    assert metric_history.find_system_metric_differences(before, before) == {}
    assert metric_history.find_system_metric_differences(before, history(loss=[1])) == {}, (
        "a run of an earlier version does not say"
    )


@pytest.fixture
def database(tmp_path, empty_mlflow):
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns/mlflow.db").write_bytes(empty_mlflow.read_bytes())
    with sqlite3.connect(tmp_path / "mlruns/mlflow.db") as records:
        columns = "run_uuid, name, start_time, status, lifecycle_stage, experiment_id"
        records.execute(f"INSERT INTO runs ({columns}) VALUES ('r', 'dpo', 1, 'FINISHED', 'active', 0)")
        rows = [
            ("loss", 0.5, 1, 1, 0),
            ("loss", 0.5, 2, 1, 0),
            ("loss", 0, 3, 2, 1),
            ("rewards/x.py:f/seconds", 1.5, 1, 1, 0),
        ]
        values = "(run_uuid, key, value, timestamp, step, is_nan) VALUES ('r', ?, ?, ?, ?, ?)"
        records.executemany(f"INSERT INTO metrics {values}", rows)
    records.close()
    return tmp_path


def test_times_are_left_out_and_nan_is_nan(database):
    found = metric_history.load_run_metric_history(database, "r")
    assert found == {1: {"loss": frozenset([0.5])}, 2: {"loss": frozenset([None])}}
    assert metric_history.load_copy_metric_history(database) == found
    assert find_first_metric_difference(found, metric_history.load_copy_metric_history(database)) is None
    assert metric_history.load_run_metric_history(database, "none") == {}
    assert metric_history.load_copy_metric_history(database / "elsewhere") == {}

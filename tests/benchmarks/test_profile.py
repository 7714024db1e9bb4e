"""The profile of a flow, by a case worked out by hand."""

import shutil
from dataclasses import asdict
from pathlib import Path

from benchmarks.profile import Cost, Profile, load_stage_costs, longest_chain_seconds, render
from flows.engine.mlflow_run_lookup import PEAK_MEMORY, PREFIX
from flows.engine.stage_types import PlannedStage


def stage(name: str, *upstream: str) -> PlannedStage:
    return PlannedStage(name, None, upstream, 2, 0)


def test_the_longest_chain_is_of_stages_that_wait_for_each_other() -> None:
    planned = [stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"), stage("e")]
    assert longest_chain_seconds(planned, {"a": 1, "b": 2, "c": 5, "d": 1, "e": 6}) == 7
    assert longest_chain_seconds(planned, {"a": 1, "b": 2, "c": 5, "d": 1, "e": 8}) == 8


def test_a_page_has_the_shares_of_the_work() -> None:
    stages = [Cost("sft", 60.0, 2, 700.0), Cost("problems", 40.0, 1, 80.0)]
    found = render({"language": asdict(Profile("a machine", 75.0, 61.0, 0.5, stages))})
    assert (
        "On a machine: 1 min 15 s in all (load of the machine when it began: 0.5); 1 min 01 s along the longest chain"
        in found
    )
    assert "2 min 40 s of cores" in found
    assert "| sft | 60.0 | 2 | 75.0 % | 700 |\n| problems | 40.0 | 1 | 25.0 % | 80 |" in found


def test_costs_are_those_of_the_last_finished_runs(tmp_path: Path, empty_mlflow: Path) -> None:
    """Of two runs of `a` the later one, of `b` the one that did not fail; the longest comes first."""
    from mlflow import MlflowClient

    (tmp_path / "mlruns").mkdir()
    shutil.copy(empty_mlflow, tmp_path / "mlruns/mlflow.db")
    client = MlflowClient(f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    experiment = client.create_experiment("language")
    runs = [
        ("a", 1_000, 90_000, 700.0, "FINISHED"),
        ("a", 100_000, 102_500, 80.0, "FINISHED"),
        ("b", 103_000, 107_000, 90.0, "FINISHED"),
        ("b", 110_000, 180_000, 600.0, "FAILED"),
    ]
    for name, start, end, memory, status in runs:
        run = client.create_run(experiment, start_time=start, tags={PREFIX + "stage": name}).info.run_id
        client.log_metric(run, PEAK_MEMORY, memory)
        client.set_terminated(run, status, end_time=end)
    assert load_stage_costs(tmp_path, [stage("a"), stage("b", "a")]) == [
        Cost("b", 4.0, 2, 90.0),
        Cost("a", 2.5, 2, 80.0),
    ]

"""What stages took, as MLflow's records have it."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_client
from flows.engine.mlflow_run_lookup import PREFIX
from flows.lineage import durations
from flows.machine.supervisor import Command
from tests.flows.lineage.audited import Audited


@pytest.fixture(autouse=True)
def supervised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages have supervisors, which measure their memory."""
    monkeypatch.setattr("flows.engine.dvc_command.Command", Command)


@pytest.fixture
def client(tmp_path: Path, empty_mlflow: Path) -> MlflowClient:
    (tmp_path / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, tmp_path / "mlruns/mlflow.db")
    return mlflow_client.open_mlflow_client_after_recording(tmp_path)


def ran(client: MlflowClient, stage: str, start: int, end: int | None, status: str = "FINISHED") -> str:
    run_id: str = client.create_run("0", start_time=start, tags={PREFIX + "stage": stage}).info.run_id
    if end is not None:
        client.set_terminated(run_id, status, end)
    return run_id


def test_a_stage_takes_what_its_last_finished_run_took(tmp_path: Path, client: MlflowClient) -> None:
    ran(client, "sft", 1_000, 11_000)
    ran(client, "sft", 20_000, 24_500)
    ran(client, "sft", 30_000, 31_000, "FAILED")
    ran(client, "ppo", 40_000, None)  # still runs
    run_id = ran(client, "dpo", 50_000, 51_000)
    client.log_param(run_id, "dpo.epochs", 2)
    assert durations.read_last_stage_runs(tmp_path, ["sft", "ppo", "dpo", "grpo"]) == {
        "sft": durations.PastStageRun(4.5, {}),
        "dpo": durations.PastStageRun(1.0, {"dpo.epochs": "2"}),
    }


def test_runs_that_ended(tmp_path: Path, client: MlflowClient) -> None:
    ended, running = ran(client, "sft", 1_000, 61_000), ran(client, "ppo", 1_000, None)
    assert durations.read_run_durations(tmp_path, [ended, running, "f" * 32]) == {ended: 60.0}


def test_without_records_nothing_is_known(tmp_path: Path) -> None:
    assert durations.read_last_stage_runs(tmp_path, ["sft"]) == {}
    assert durations.read_run_durations(tmp_path, ["a"]) == {}
    assert durations.read_run_peak_memory(tmp_path, ["a"]) == {}


def test_the_memory_that_a_stage_took_is_in_its_run_under_its_seal_and_on_the_page(audited: Audited) -> None:
    audited.change("b", rows=4)
    audited.pipeline()
    made = [audited.run_of(stage) for stage in ("b", "evaluate@b")]
    found = durations.read_run_peak_memory(audited.root, [*made, "f" * 32])
    assert found.keys() == set(made)
    assert all(3 < megabytes < 100 for megabytes in found.values())
    assert f"<td>{found[made[0]]:.0f} MB</td>" in audited.read("report.html")
    audited.sql("UPDATE metrics SET value = 1 WHERE key = 'system/peak_memory_megabytes' AND run_uuid = ?", made[0])
    assert any("system/peak_memory_megabytes" in fault for fault in audited.faults())


def test_a_failed_stage_tells_its_memory_too(audited: Audited) -> None:
    audited.change("b", fail=True)
    failed = audited.pipeline("b")["b"]
    assert failed.state == "failed"
    assert durations.read_run_peak_memory(audited.root, [str(failed.mlflow_run_id)])

import json
from pathlib import Path

import pytest

from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.reproduction import command
from flows.lineage.reproduction.scratch_copy import CannotReproduceError
from flows.machine import devices, resources

SHOW = 'echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER" > seen'


@pytest.mark.parametrize(("gpu", "seen"), [(1, "7 PCI_BUS_ID"), (0, " PCI_BUS_ID")])
def test_the_command_gets_a_lease_of_the_gpus_that_its_stage_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: int, seen: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(resources, "POLL_SECONDS", 0.01)
    held = devices.try_lease_devices(["7"], 1, "sft of /other (pid 1 on host)")
    assert held is not None
    said = []

    def say(line: str) -> None:
        said.append(line)
        assert not (tmp_path / "seen").exists()
        held.release()

    stage = {"cmd": SHOW, "meta": {"resources": {"gpu": gpu}}}
    (tmp_path / "dvc.yaml").write_text(json.dumps({"stages": {"a": stage}}))
    command.run_recorded_command(ExecutionRecord("a", {"cmd": SHOW}), tmp_path, say, lambda *steps: None)
    assert (tmp_path / "seen").read_text() == f"{seen}\n"
    assert said == ["waits for device 7, held by sft of /other (pid 1 on host)"] * gpu
    if not gpu:
        held.release()
    assert devices.list_device_holders(["7"]) == {}


def test_locks_that_cannot_be_used_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("POSTTRAIN_DEVICES", "/no/such/folder")
    (tmp_path / "dvc.yaml").write_text(json.dumps({"stages": {"a": {"meta": {"resources": {"gpu": 1}}}}}))
    with pytest.raises(CannotReproduceError, match=r"^a: /no/such/folder: the folder of the devices' locks"):
        command.run_recorded_command(
            ExecutionRecord("a", {"cmd": "true"}), tmp_path, lambda line: None, lambda *steps: None
        )


def test_the_command_writes_to_no_record_of_a_run_around_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    around = ["MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "POSTTRAIN_PROGRESS", "POSTTRAIN_RECORDS", "POSTTRAIN_TOKEN"]
    for name in [*around, "POSTTRAIN_DEVICE"]:
        monkeypatch.setenv(name, "around")
    found = command.build_reproduction_environment(ExecutionRecord("a", {}, environment={"threads": "2"}), tmp_path)
    assert set(around).isdisjoint(found)
    assert (found["POSTTRAIN_DEVICE"], found["OMP_NUM_THREADS"]) == ("around", "2")


@pytest.mark.parametrize(("recorded", "expected"), [({"products": "onednn"}, "onednn"), ({}, "torch")])
def test_the_command_has_the_recorded_products(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: dict[str, str], expected: str
) -> None:
    """A record from before they were chosen names none."""
    monkeypatch.setenv("POSTTRAIN_PRODUCTS", "torch")
    assert (
        command.build_reproduction_environment(ExecutionRecord("a", {}, environment=recorded), tmp_path)[
            "POSTTRAIN_PRODUCTS"
        ]
        == expected
    )

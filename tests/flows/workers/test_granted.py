"""What the command of a stage on a worker gets beside its text."""

from pathlib import Path

import pytest

from flows.machine import devices, resources
from flows.workers.attempt import Attempt, UnwantedError
from flows.workers.job import Job
from flows.workers.prefect_api import Api


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8,9")
    monkeypatch.setattr(resources, "POLL_SECONDS", 0.05)
    return Attempt(Api("http://127.0.0.1:1/api"), "a run", tmp_path)


def job(**more: object) -> Job:
    return Job("sft", "an attempt", "shared", "a checkout", {"cmd": "true"}, **more)  # type: ignore[arg-type]


def test_an_attempt_holds_its_devices_while_the_command_runs(attempt: Attempt) -> None:
    first = devices.try_lease_devices(["8"], 1)
    assert first is not None
    with attempt.hold_resource_grant(job(gpu=1), {"A": "1"}, 77) as grant:
        assert grant.environ == {"A": "1", "CUDA_VISIBLE_DEVICES": "9", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert grant.keep[0] == 77
        assert attempt.status.devices == ["9"]
        assert devices.list_device_holders(["9"])["9"].startswith(f"sft of {attempt.root} (pid ")
    assert devices.list_device_holders(["8", "9"]).keys() == {"8"}
    first.release()


def test_a_stage_without_a_gpu_sees_none_and_one_behind_a_launcher_what_the_worker_sees(attempt: Attempt) -> None:
    with attempt.hold_resource_grant(job(), {}) as grant:
        assert grant.environ["CUDA_VISIBLE_DEVICES"] == ""
    with attempt.hold_resource_grant(job(gpu=1, launcher="srun '--comment=a b'"), {"A": "1"}, 77) as grant:
        assert (grant.environ, grant.keep, grant.launcher) == ({"A": "1"}, (77,), ("srun", "--comment=a b"))
        assert devices.list_device_holders(["8", "9"]) == {}


def test_an_attempt_that_must_end_waits_for_no_device(attempt: Attempt) -> None:
    both = devices.try_lease_devices(["8", "9"], 2, "grpo of /other (pid 1 on host)")
    assert both is not None

    seen = []
    phase = attempt.phase

    def told(text: str) -> None:
        seen.append(text)
        attempt.stop("its worker was stopped", True)
        phase(text)

    attempt.phase = told  # type: ignore[method-assign]
    with pytest.raises(UnwantedError, match="its worker was stopped"):
        attempt.hold_resource_grant(job(gpu=1), {}).__enter__()
    held_by = "held by grpo of /other (pid 1 on host)"
    assert seen == [f"waits for device 8, {held_by}; waits for device 9, {held_by}"]
    both.release()
    assert devices.list_device_holders(["8", "9"]) == {}

import threading
import time
from typing import Any

import pytest

from flows.machine import devices, resources
from flows.machine.devices import Lease
from flows.machine.resources import Slots
from tests.flows.machine.test_supervisor import wait_for


def test_slots_never_exceed_the_machine_and_gpus_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    slots, using, most, seen = Slots(jobs=3), 0, 0, set()
    changing = threading.Lock()

    def work(cpu: int, gpu: int) -> None:
        nonlocal using, most
        with slots.hold(cpu, gpu) as held:
            names = held.names
            with changing:
                using += cpu
                most = max(most, using)
                assert not seen.intersection(names)
                seen.update(names)
            assert len(names) == gpu
            time.sleep(0.01)
            with changing:
                using -= cpu
                seen.difference_update(names)

    threads = [threading.Thread(target=work, args=(1 + index % 3, index % 2)) for index in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert using == 0
    assert most == 3


def test_the_longest_chain_goes_first_and_a_stage_of_many_cores_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both cores are held while four stages wait: two of one core without a successor, one of two cores with two
    successors, and one for a GPU.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    slots, order, free = Slots(jobs=2), [], threading.Event()

    def hold(name: str, cpu: int, gpu: int, rank: int) -> None:
        with slots.hold(cpu, gpu, rank):
            order.append(name)
            if name == "first":
                free.wait(60)

    def start(*arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=hold, args=arguments)
        waiting = len(slots._waiting)
        thread.start()
        wait_for(lambda: len(slots._waiting) > waiting or arguments[0] in order, 60)
        return thread

    with slots.hold(0, 1):  # the GPU is in use, so the stage that waits for it holds up no other
        threads = [start("first", 2, 0, 0), start("leaf", 1, 0, 0), start("other", 1, 0, 0), start("chain", 2, 0, 2)]
        threads.append(start("gpu", 1, 1, 9))
        free.set()
        for thread in threads[:4]:
            thread.join(timeout=60)
        assert order[:2] == ["first", "chain"]
        assert sorted(order[2:]) == ["leaf", "other"]
    threads[4].join(timeout=60)
    assert order[4] == "gpu"


@pytest.fixture
def outsider(monkeypatch: pytest.MonkeyPatch) -> Lease:
    """A lease of device 4 that Slots know nothing of: as another process holds it. They look at it often."""
    monkeypatch.setattr(resources, "POLL_SECONDS", 0.05)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    held = devices.try_lease_devices(["4"], 1, "grpo of /other (pid 123 on host)")
    assert held is not None
    return held


def test_a_stage_waits_for_other_processes_and_says_for_whom(outsider: Lease) -> None:
    slots, told, got = Slots(jobs=2), [], []

    def work() -> None:
        with slots.hold(1, 1, holder="sft of /here (pid 1 on host)", tell=told.append) as held:
            got.append(held.names)
            assert devices.list_device_holders(["4"]) == {"4": "sft of /here (pid 1 on host)"}

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: told, 60)
    with slots.hold(2, 0) as held:
        assert held == Lease(), "a stage without a GPU goes on meanwhile"
    assert told == ["waits for device 4, held by grpo of /other (pid 123 on host)"]
    assert not got
    outsider.release()
    thread.join(10)
    assert got == [("4",)]
    assert told == ["waits for device 4, held by grpo of /other (pid 123 on host)"], "once"
    assert devices.list_device_holders(["4"]) == {}


def test_the_longest_chain_goes_first_when_another_process_frees_a_device(outsider: Lease) -> None:
    slots, order = Slots(jobs=4), []

    def work(rank: int) -> None:
        with slots.hold(1, 1, rank):
            order.append(rank)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1, 2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(slots._waiting) == 3, 60)
    outsider.release()
    for thread in threads:
        thread.join(10)
    assert order == [2, 1, 0]


def test_a_run_that_is_stopped_waits_for_no_device(outsider: Lease) -> None:
    stopped, got, told = threading.Event(), [], []
    slots = Slots(jobs=2, stopped=stopped.is_set)

    def work() -> None:
        with slots.hold(1, 1, tell=told.append) as held:
            got.append(held)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: told, 60)
    stopped.set()
    thread.join(10)
    assert got == [Lease()]
    assert slots._waiting == []
    outsider.release()
    assert devices.list_device_holders(["4"]) == {}


def test_a_stage_that_lacks_cores_leaves_the_device_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    slots, told = Slots(jobs=1), []

    def work() -> None:
        with slots.hold(1, 1, tell=told.append):
            pass

    thread = threading.Thread(target=work)
    with slots.hold(1, 0):
        thread.start()
        wait_for(lambda: slots._waiting, 60)
        other = devices.try_lease_devices(["4"], 1)
        assert other is not None
        other.release()
    thread.join(10)
    assert not thread.is_alive()
    assert told == [], "it did not wait for a device"

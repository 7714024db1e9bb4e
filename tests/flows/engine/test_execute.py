import threading
import time
from typing import Any

import pytest

from flows.engine import resources
from flows.engine.execute import ranks
from flows.engine.resources import Slots
from tests.flows.engine.test_supervisor import wait_for
from tests.flows.engine.toy import Toy

MEET = "mkdir -p data; touch {me}.here; for i in $(seq 100); do test -e {other}.here && break; sleep 0.05; done; "


def test_independent_stages_overlap(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "cores", lambda: 2)
    for me, other in (("a", "b"), ("b", "a")):
        toy.stage(me, cmd=MEET.format(me=me, other=other) + f"test -e {other}.here && echo met > data/{me}")
    results = toy.run_parallel()
    assert {name: result.state for name, result in results.items()} == {"a": "ran", "b": "ran"}
    assert toy.dvc("status").strip() == "Data and pipelines are up to date."


def test_jobs_limits_the_cores(toy: Toy) -> None:
    count = "mkdir -p data running; touch running/{me}; sleep 0.3; ls running | wc -l > data/{me}; rm running/{me}"
    for me in ("a", "b", "c"):
        toy.stage(me, cmd=count.format(me=me))
    toy.run_parallel(jobs=1)
    assert [toy.read(f"data/{me}").strip() for me in ("a", "b", "c")] == ["1", "1", "1"]


def test_a_failure_costs_only_what_depends_on_it(toy: Toy) -> None:
    toy.diamond()
    toy.stage("e", "d")
    toy.stages["b"]["cmd"] = "echo no; exit 1"
    toy.save()
    results = toy.run_parallel()
    states = {name: result.state for name, result in results.items()}
    assert states == {"a": "ran", "b": "failed", "c": "ran", "d": "skipped", "e": "skipped"}
    assert results["e"].reason == "b failed"
    assert [event.stage for event in toy.events if event.state == "skipped"] == ["d", "e"]
    assert toy.lock["stages"].keys() == {"a", "c"}
    toy.stages["b"]["cmd"] = "python work.py data/b data/a"
    toy.save()
    assert set(toy.states("e").values()) == {"up-to-date", "ran"}


def test_slots_never_exceed_the_machine_and_gpus_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    slots, using, most, seen = Slots(jobs=3), 0, 0, set()
    changing = threading.Lock()

    def work(cpu: int, gpu: int) -> None:
        nonlocal using, most
        with slots.hold(cpu, gpu) as names:
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
        thread.join(timeout=20)
    assert using == 0
    assert most == 3


def test_the_longest_chain_goes_first_and_a_stage_of_many_cores_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both cores are held while four stages wait: two of one core without a successor, one of two cores with two successors, and one for a GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    slots, order, free = Slots(jobs=2), [], threading.Event()

    def hold(name: str, cpu: int, gpu: int, rank: int) -> None:
        with slots.hold(cpu, gpu, rank):
            order.append(name)
            if name == "first":
                free.wait(20)

    def start(*arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=hold, args=arguments)
        thread.start()
        waiting = len(slots._waiting)
        wait_for(lambda: len(slots._waiting) > waiting or arguments[0] in order, 1)
        return thread

    with slots.hold(0, 1):  # the GPU is in use, so the stage that waits for it holds up no other
        threads = [start("first", 2, 0, 0), start("leaf", 1, 0, 0), start("other", 1, 0, 0), start("chain", 2, 0, 2)]
        threads.append(start("gpu", 1, 1, 9))
        free.set()
        for thread in threads[:4]:
            thread.join(timeout=20)
        assert order[:2] == ["first", "chain"]
        assert sorted(order[2:]) == ["leaf", "other"]
    threads[4].join(timeout=20)
    assert order[4] == "gpu"


def test_ranks_are_the_longest_chains(toy: Toy) -> None:
    toy.diamond()
    toy.stage("e", "a")
    toy.stage("f")
    assert ranks(toy.plan()) == {"a": 2, "b": 1, "c": 1, "d": 0, "e": 0, "f": 0}


def test_a_stage_sees_only_its_gpus(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    show = 'mkdir -p data; echo "gpus:$CUDA_VISIBLE_DEVICES" > data/{me}'
    toy.stage("a", cmd=show.format(me="a"), meta={"resources": {"gpu": 1}})
    toy.stage("b", cmd=show.format(me="b"))
    toy.run_parallel()
    assert (toy.read("data/a"), toy.read("data/b")) == ("gpus:5\n", "gpus:\n")

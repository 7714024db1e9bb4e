import pytest

from flows.engine.execute import ranks
from flows.machine import resources
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

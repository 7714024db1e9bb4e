import time

import pytest

from flows.engine import execute
from flows.engine.coordinator import Coordinator
from flows.engine.execute import Execution, compute_stage_ranks
from flows.engine.stage_types import Event
from flows.machine import resources
from tests.flows.engine import in_order
from tests.flows.engine.toy import Toy

MEET = "mkdir -p data; touch {me}.here; for i in $(seq 600); do test -e {other}.here && break; sleep 0.02; done; "


def test_independent_stages_overlap(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "count_cores", lambda: 2)
    for me, other in (("a", "b"), ("b", "a")):
        toy.stage(me, cmd=MEET.format(me=me, other=other) + f"test -e {other}.here && echo met > data/{me}")
    results = toy.run_parallel()
    assert {name: result.state for name, result in results.items()} == {"a": "ran", "b": "ran"}
    assert toy.dvc("status").strip() == "Data and pipelines are up to date."


@pytest.mark.usefixtures("plain_commands")
def test_a_stage_starts_when_the_last_that_it_needs_has_succeeded(toy: Toy) -> None:
    """And not before; it waits for none that it does not need."""
    toy.stage("quick", cmd="mkdir -p data; echo > data/quick")
    toy.stage("after_quick", "quick", cmd="cp data/quick data/after_quick")
    toy.stage(
        "slow",
        cmd="mkdir -p data; for i in $(seq 600); do test -e data/after_quick && break; sleep 0.02; done; sleep "
        "0.1; cp data/after_quick data/slow",
    )
    toy.stage("both", "after_quick", "slow", cmd="cat data/after_quick data/slow > data/both")
    results = toy.run_parallel(jobs=2)
    assert {result.state for result in results.values()} == {"ran"}
    ended = [event.stage for event in toy.events if event.state == "ran"]
    assert ended == ["quick", "after_quick", "slow", "both"]


@pytest.mark.usefixtures("plain_commands")
def test_jobs_limits_the_cores(toy: Toy) -> None:
    count = "mkdir -p data running; touch running/{me}; sleep 0.15; ls running | wc -l > data/{me}; rm running/{me}"
    for me in ("a", "b", "c"):
        toy.stage(me, cmd=count.format(me=me))
    toy.run_parallel(jobs=1)
    assert [toy.read(f"data/{me}").strip() for me in ("a", "b", "c")] == ["1", "1", "1"]


@pytest.mark.usefixtures("plain_commands")
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


JUDGED = "$(grep -c judgement data/raw/people.jsonl)"
WAITS = f"test {JUDGED} -ge 3 && cp data/raw/people.jsonl data/b || "
WAITS += f"{{ echo waiting for $((3 - {JUDGED})) more: posttrain label; exit 75; }}"
ITEM, JUDGEMENT = "item\n", "judgement\n"


@pytest.fixture
def judged(toy: Toy, plain_commands: None) -> Toy:
    """A diamond with a tail, in which b needs three lines from people, who have written one."""
    toy.write("data/raw/people.jsonl", JUDGEMENT)
    toy.diamond()
    toy.stage("e", "d")
    toy.stages["b"] |= {"cmd": WAITS, "deps": ["data/a", "data/raw/people.jsonl"]}
    toy.save()
    return toy


def test_a_stage_that_waits_for_people_costs_only_what_depends_on_it(judged: Toy) -> None:
    results = judged.run_parallel()
    states = {name: result.state for name, result in results.items()}
    assert states == {"a": "ran", "b": "paused", "c": "ran", "d": "paused", "e": "paused"}
    assert results["b"].reason == "waiting for 2 more: posttrain label"
    assert results["b"].awaits == ("data/a", "data/raw/people.jsonl")
    assert (results["e"].reason, results["e"].awaits) == ("b waits for people", ())
    assert judged.lock["stages"].keys() == {"a", "c"}
    judged.write("data/raw/people.jsonl", JUDGEMENT * 3)
    assert set(judged.states("e").values()) == {"up-to-date", "ran"}


def test_what_waits_leaves_the_outs_of_before(judged: Toy) -> None:
    judged.write("data/raw/people.jsonl", JUDGEMENT * 3)
    judged.run("e")
    before = judged.read("data/b"), (judged.root / "dvc.lock").read_bytes()
    judged.write("data/raw/people.jsonl", JUDGEMENT)
    assert judged.run("b")["b"].state == "paused"
    assert (judged.read("data/b"), (judged.root / "dvc.lock").read_bytes()) == before


@pytest.mark.parametrize(
    ("comes", "said"), [(ITEM + JUDGEMENT, [2, 1]), (JUDGEMENT * 2, [2])], ids=["too few at first", "enough at once"]
)
def test_a_run_that_stays_goes_on_when_people_have_judged_enough(
    judged: Toy, monkeypatch: pytest.MonkeyPatch, comes: str, said: list[int]
) -> None:
    monkeypatch.setattr(execute, "LOOK_SECONDS", 0.05)
    planned, waited = judged.plan(), []
    with Coordinator(judged.root) as coordinator:

        def watch(event: Event) -> None:
            judged.events.append(event)
            if event.stage == "b" and event.state == "paused":
                waited.append(event.reason)
                with (judged.root / "data/raw/people.jsonl").open("a") as file:
                    file.write(comes)

        execution = Execution(coordinator, planned, 2, watch, wait=True)
        ended = in_order.run(execution)[:2]
        assert execution.awaited == {}
    assert [result.state for result in ended] == ["ran", "ran"]
    assert waited == [f"waiting for {count} more: posttrain label" for count in said]
    assert judged.read("data/b").count("judgement") == 3


def test_stopping_ends_a_run_that_stays(judged: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "LOOK_SECONDS", 0.05)
    with Coordinator(judged.root) as coordinator:
        execution = Execution(coordinator, judged.plan(), 2, judged.events.append, wait=True)
        results = in_order.start(execution)
        while not execution.awaited:
            time.sleep(0.02)
        assert execution.awaited == {"b": "waiting for 2 more: posttrain label"}
        coordinator.stop()
        assert [result.state for result in results()][:2] == ["ran", "paused"]


def test_ranks_are_the_longest_chains(toy: Toy) -> None:
    toy.diamond()
    toy.stage("e", "a")
    toy.stage("f")
    assert compute_stage_ranks(toy.plan()) == {"a": 2, "b": 1, "c": 1, "d": 0, "e": 0, "f": 0}


def test_a_stage_sees_only_its_gpus(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    show = 'mkdir -p data; echo "gpus:$CUDA_VISIBLE_DEVICES" > data/{me}'
    toy.stage("a", cmd=show.format(me="a"), meta={"resources": {"gpu": 1}})
    toy.stage("b", cmd=show.format(me="b"))
    toy.run_parallel()
    assert (toy.read("data/a"), toy.read("data/b")) == ("gpus:5\n", "gpus:\n")

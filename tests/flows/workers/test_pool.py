"""The coordinator's side of a work pool, against a server in memory; time is the test's own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.engine import attempt_notes
from flows.engine.dvc_command import StageFailed, StageWaiting, WorkerLost
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.workers import pool
from flows.workers.job import LOST_SECONDS, Job, Status
from flows.workers.pool import Pool
from tests.flows.workers.fake_server import FakeServer

ENTRY = {
    "cmd": "true",
    "deps": [{"path": "data/a", "hash": "md5", "md5": "0" * 32}],
    "outs": [{"path": "data/b"}],
}


class World:
    """A coordinator that waits for one attempt; `acts` are done one at each of its looks."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, transport: str = "clone") -> None:
        self.root, self.server, self.now = root, FakeServer(), 0.0
        self.job = Job("b", "attempt-1", transport, "checkout", ENTRY)  # type: ignore[arg-type]
        self.acts: list[Callable[[], object]] = []
        self.said: list[str] = []
        self.steps: list[tuple[int, int]] = []
        self.stop = False
        monkeypatch.setattr(pool.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(pool.time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.acts:
            self.acts.pop(0)()
        assert self.now < 10_000, "it waits for ever"

    def report(self, **facts: Any) -> Callable[[], object]:
        """The attempt reports; its beat goes on by one."""

        def act() -> None:
            run = next(reversed(self.server.runs))
            beat = self.server.statuses.get(run, {}).get("beat", 0) + 1
            self.server.statuses[run] = Status(beat=beat, worker="w1", **facts).json()
            if self.server.runs[run].state == "SCHEDULED":
                self.server.runs[run] = replace(self.server.runs[run], state="RUNNING")

        return act

    def state(self, state: str) -> Callable[[], object]:
        return lambda: self.server.set_state(next(reversed(self.server.runs)), state)

    def run(self) -> Status:
        log = self.root / "b.log"
        log.touch()
        where = Pool(self.server, "gpu", self.root)  # type: ignore[arg-type]
        return where.run(self.job, log, lambda *at: self.steps.append(at[:2]), self.said.append, lambda: self.stop)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_progress_and_log_come_as_the_attempt_reports_them(world: World) -> None:
    def write() -> None:
        world.server.write_log("run-0", ["one", "two"])
        world.report(step=1, total=4)()

    world.acts = [world.report(), write, world.report(step=3, total=4), world.report(step=4, total=4, ended=True)]
    status = world.run()
    assert status.ended
    assert world.steps == [(1, 4), (3, 4), (4, 4)]
    assert world.said == ["waits for a worker of pool gpu", "on w1"]
    assert (world.root / "b.log").read_text() == "one\ntwo\n"
    assert [note.run for note in attempt_notes.list_attempt_notes(world.root)] == ["run-0"], (
        "until what it made is here"
    )


def test_a_pool_that_hands_out_nothing_says_why_however_idle_its_workers_are(world: World) -> None:
    def resume() -> None:
        world.server.holding = ""

    world.server.holding = "pool gpu is paused on Prefect's server; there it can be resumed"
    world.acts = [lambda: None, resume, world.report(), world.report(ended=True)]
    assert world.run().ended
    assert world.said == [
        "waits: pool gpu is paused on Prefect's server; there it can be resumed",
        "waits for a worker of pool gpu",
        "on w1",
    ]


def test_in_a_shared_checkout_the_worker_writes_the_log_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, "shared")
    world.acts = [lambda: world.server.write_log("run-0", ["one"]), world.report(ended=True)]
    world.run()
    assert (tmp_path / "b.log").read_text() == ""


def test_a_failure_is_the_stages_own_line(world: World) -> None:
    world.acts = [world.report(), world.report(ended=True, failure="loss is nan (exit status 1)")]
    with pytest.raises(StageFailed, match=r"^loss is nan \(exit status 1\)$"):
        world.run()


@pytest.mark.parametrize("between", [False, True], ids=["", "between two looks"])
def test_a_stage_that_waits_for_people_is_neither_failed_nor_lost(world: World, between: bool) -> None:
    """Even where it ends after its report was read, and before its state is."""
    line = "waiting for 3 more: posttrain label"

    def end() -> None:
        world.report(ended=True, waiting=line)()
        world.state("CANCELLED")()

    def end_at_the_next_question() -> None:
        world.report()()
        state = world.server.flow_run

        def late(run: str) -> object:
            world.server.flow_run = state  # type: ignore[method-assign]
            end()
            return state(run)

        world.server.flow_run = late  # type: ignore[method-assign, assignment]

    world.acts = [world.report(), end_at_the_next_question if between else end]
    with pytest.raises(StageWaiting, match=f"^{line}$"):
        world.run()


@pytest.mark.parametrize("state", ["CRASHED", "CANCELLED", "CANCELLING"])
def test_an_attempt_that_prefect_ended_is_lost(world: World, state: str) -> None:
    world.acts = [world.report(), world.state(state)]
    with pytest.raises(WorkerLost, match=f"worker w1 was {state.lower()}"):
        world.run()


def test_an_attempt_that_says_so_is_lost(world: World) -> None:
    world.acts = [world.report(), world.report(ended=True, lost="its worker was stopped")]
    with pytest.raises(WorkerLost, match="worker w1: its worker was stopped"):
        world.run()


def test_silence_is_noticed_within_thirty_seconds_and_the_late_result_is_refused(world: World) -> None:
    world.acts = [world.report()]
    with pytest.raises(WorkerLost, match="w1 has not reported for"):
        world.run()
    assert LOST_SECONDS < world.now < 30
    assert world.server.runs["run-0"].state == "CANCELLED", "by which the attempt knows that nobody waits for it"


def test_a_server_that_is_away_is_no_silence(world: World) -> None:
    def away() -> None:
        world.server.away = 200  # looks, of half a second each

    world.acts = [world.report(), away, *[lambda: None] * 199, world.report(ended=True)]
    world.run()
    assert world.now > 2 * LOST_SECONDS
    assert any(line.startswith("Prefect's server is away") for line in world.said)


def test_a_server_that_is_away_at_the_start_is_asked_again_and_makes_one_run(world: World) -> None:
    world.server.away = 5
    world.acts = [*[lambda: None] * 6, world.report(ended=True)]
    world.run()
    assert list(world.server.runs) == ["run-0"]


def test_a_server_that_stays_away_at_the_start_is_one_line(world: World) -> None:
    world.server.away = 10_000
    with pytest.raises(PlanError, match="Prefect's server cannot be reached"):
        world.run()


def test_a_pool_whose_last_worker_went_says_how_to_start_one(world: World) -> None:
    world.server.online = []
    with pytest.raises(StageFailed, match="pool gpu has no live worker; start one with `posttrain worker --pool gpu`"):
        world.run()
    assert world.now < 40


def test_an_attempt_waits_as_long_as_its_workers_are_busy(world: World) -> None:
    world.acts = [*[lambda: None] * 2000, world.report(ended=True)]
    world.run()
    assert world.now > 900


def test_a_worker_that_took_it_and_never_began_is_lost(world: World) -> None:
    world.acts = [world.state("PENDING")]
    with pytest.raises(WorkerLost, match="has not begun"):
        world.run()
    assert pool.START_SECONDS < world.now < pool.START_SECONDS + 5


def test_a_cluster_may_take_longer_to_begin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_START_SECONDS", "900")
    world.acts = [world.state("PENDING"), *[lambda: None] * 600, world.report(ended=True)]
    world.run()


def test_stopping_the_run_gives_the_attempt_up(world: World) -> None:
    def stop() -> None:
        world.stop = True

    world.acts = [world.report(), stop]
    with pytest.raises(StageFailed, match="stopped"):
        world.run()
    assert world.server.runs["run-0"].state == "CANCELLED"
    assert attempt_notes.list_attempt_notes(world.root) == []


def note(world: World, **more: Any) -> attempt_notes.AttemptNote:
    run = world.server.submit("gpu", "b", {}, "earlier")
    world.server.set_state(run, "RUNNING")
    fields = {
        "stage": "b",
        "attempt": "earlier",
        "shared": False,
        "key": compute_run_cache_key(ENTRY),
        "url": world.server.url,
    }
    found = attempt_notes.AttemptNote(**{**fields, "run": run, **more})
    attempt_notes.write_attempt_note(world.root, found)
    return found


def test_a_new_coordinator_adopts_the_attempt_of_a_killed_one(world: World) -> None:
    note(world)
    world.acts = [world.report(), world.report(ended=True)]
    assert world.run().ended
    assert list(world.server.runs) == ["run-0"], "no second attempt was made"


def test_an_attempt_at_something_else_is_given_up(world: World) -> None:
    note(world, key="other params")
    world.acts = [world.report(), world.report(ended=True)]
    world.run()
    assert [run.state for run in world.server.runs.values()] == ["CANCELLED", "RUNNING"]


@pytest.mark.parametrize("more", [{"url": "http://elsewhere/api"}, {"run": ""}, {"run": "deleted"}])
def test_an_attempt_that_cannot_be_found_is_made_again(world: World, more: dict[str, str]) -> None:
    note(world, **more)
    world.acts = [world.report(ended=True)]
    assert world.run().ended
    assert len(world.server.runs) == 2

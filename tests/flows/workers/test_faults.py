"""Faults of stages on workers, each at the moment at which it once did harm."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.engine import attempt_notes
from flows.engine.attempt_notes import AttemptNote
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_command import StageFailed, WorkerLost
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import Event, PlannedStage
from flows.machine import stage_lock
from flows.workers import attempt as attempt_module
from flows.workers import dvc_transfer, heartbeat, in_copy, prefect_worker
from flows.workers.attempt import Attempt
from flows.workers.heartbeat import Reporter
from flows.workers.job import Job, Status
from flows.workers.prefect_api import PoolWorker
from tasks.common import mlflow_address
from tests.flows.engine.toy import Toy
from tests.flows.workers.fake_server import FakeServer

ENTRY = {"cmd": "echo new > data/b", "outs": [{"path": "data/b"}]}
ON_WORKER = PlannedStage("b", "never run", (), 1, 0, pool="gpu")


def submitted(server: FakeServer, root: Path, **more: object) -> Attempt:
    """An attempt at `b` that a worker is about to begin."""
    job = Job("b", "attempt-1", "shared", mlflow_address.load_or_create_clone_id(root), ENTRY, **more)  # type: ignore[arg-type]
    run = server.submit("gpu", "b", {"job": job.json()}, "key")
    return Attempt(server, run, root)  # type: ignore[arg-type]


def note(root: Path, attempt: str = "attempt-1") -> None:
    attempt_notes.write_attempt_note(root, AttemptNote("b", attempt, True, "key", "http://fake/api", "run-0"))


def good(root: Path) -> Path:
    """The outs of a run that has ended well."""
    out = root / "data/b"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("good\n")
    return out


@pytest.mark.parametrize("other", [None, "attempt-2"])
def test_an_attempt_that_begins_late_leaves_the_outs_alone(tmp_path: Path, other: str | None) -> None:
    """The coordinator was killed, and the next one has made the outs without it, or waits for another attempt."""
    out, server = good(tmp_path), FakeServer()
    if other:
        note(tmp_path, other)
    late = submitted(server, tmp_path)
    late.run_attempt()
    assert out.read_text() == "good\n"
    assert server.runs["run-0"].state == "CANCELLED", "it is not listed as running"
    assert not server.statuses["run-0"]["ended"], "and it reports no result"


def test_an_attempt_that_is_still_wanted_makes_the_outs(tmp_path: Path) -> None:
    """The control of the test above."""
    out, server = good(tmp_path), FakeServer()
    note(tmp_path)
    submitted(server, tmp_path).run_attempt()
    assert out.read_text() == "new\n"
    assert server.runs["run-0"].state == "COMPLETED"


def test_an_attempt_given_up_at_the_moment_it_begins_does_not_begin(tmp_path: Path) -> None:
    """Prefect's server lets a cancelled run go on, so the state alone does not show it."""
    out, server = good(tmp_path), FakeServer()
    note(tmp_path)
    late = submitted(server, tmp_path)
    set_state = server.set_state

    def beaten(run: str, state: str, message: str = "", force: bool = False) -> bool:
        if state == "RUNNING":
            set_state(run, "CANCELLED")
        return set_state(run, state, message, force)

    server.set_state = beaten  # type: ignore[method-assign]
    assert late.run_attempt() == 0
    assert out.read_text() == "good\n"
    assert server.runs["run-0"].state == "CANCELLED"


class Writer:
    """A worker that has the stage's lock, as one that is stopped has it, until `end`."""

    def __init__(self, root: Path) -> None:
        self._ended, self._has = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write, args=(root,))
        self._thread.start()
        self._has.wait()

    def _write(self, root: Path) -> None:
        with stage_lock.hold_stage_lock(root, "b", "worker w1 on host, process 1", lambda line: None):
            self._has.set()
            self._ended.wait()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class Elsewhere:
    """Workers of which each does what a test says."""

    def __init__(self, *acts: Callable[[], None]) -> None:
        self.acts = list(acts)

    def run(self, *_: object) -> Mapping[str, str]:
        self.acts.pop(0)()
        return {}


@pytest.fixture
def made(toy: Toy, plain_commands: None, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A stage that ran well, whose parameter has changed."""
    monkeypatch.setattr(attempt_notes, "END_SECONDS", 0.05)
    monkeypatch.setattr(stage_lock, "LOOK_SECONDS", 0.02)
    toy.stage("b")
    toy.run()
    toy.set(b=2)
    return toy


def test_the_next_attempt_waits_until_the_lost_one_has_ended(made: Toy) -> None:
    """Its worker was stopped, and may go on to write at any moment."""
    writers: list[Writer] = []

    def lost() -> None:
        writers.append(Writer(made.root))
        raise WorkerLost("worker w1 has not reported for 20 s")

    def watch(event: Event) -> None:
        made.events.append(event)
        if event.reason.startswith("waits until"):
            writers[0].end()

    def ours() -> None:
        assert stage_lock.find_stage_lock_holder(made.root, "b") is None, "two writers"
        made.write("data/b", "b 2\n")

    with Coordinator(made.root, workers=Elsewhere(lost, ours)) as coordinator:
        result = coordinator.execute("b", watch, on_worker=ON_WORKER)
    assert (result.state, made.read("data/b")) == ("ran", "b 2\n")
    assert "waits until worker w1 on host, process 1 has ended" in [event.reason for event in made.events]


def test_old_outs_are_not_put_back_under_a_worker_that_still_writes(made: Toy) -> None:
    writers: list[Writer] = []

    def failed() -> None:
        made.write("data/b", "half")
        writers.append(Writer(made.root))
        raise StageFailed("stopped")

    with Coordinator(made.root, workers=Elsewhere(failed)) as coordinator:
        result = coordinator.execute("b", made.events.append, on_worker=ON_WORKER)
    assert result.state == "failed"
    assert result.reason == (
        "stopped; worker w1 on host, process 1 may still write its outs, and the next run puts the old ones back"
    )
    assert made.read("data/b") == "half"
    with pytest.raises(PlanError, match="b: still being written by worker w1"), Coordinator(made.root):
        pass
    writers[0].end()
    with Coordinator(made.root):
        assert made.read("data/b") == "b 1\n"


def test_an_attempt_whose_worker_died_before_it_began_to_report_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)
    said: list[tuple[str, bool]] = []
    one = Reporter(FakeServer(), "run-0", Status(), lambda *why: said.append(why), parent=os.getppid() + 1)  # type: ignore[arg-type]
    one.start()
    deadline = time.monotonic() + 60
    while not said and time.monotonic() < deadline:
        time.sleep(0.01)
    one.stop()
    assert said == [("its worker ended", True)]


@pytest.mark.parametrize("away", [0, 1, 3])
def test_a_worker_that_is_stopped_says_at_once_which_attempts_end_with_it(
    away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server too busy to answer the first of it hears it later."""
    monkeypatch.setattr(prefect_worker, "LEAVING_SECONDS", 0.0)
    server = FakeServer()
    withdrawn = []
    server.withdraw = withdrawn.append  # type: ignore[attr-defined]
    server.forget_worker = lambda pool, name: withdrawn.append(name)  # type: ignore[attr-defined]
    runs = [server.submit("gpu", "b", {}, key) for key in ("running", "done", "another worker's")]
    server.set_state(runs[0], "RUNNING")
    server.set_state(runs[1], "COMPLETED")
    server.away = away
    prefect_worker._deregister_worker(server, "gpu", "w1", "variable", runs[:2])  # type: ignore[arg-type]
    assert [server.runs[run].state for run in runs] == ["CRASHED", "COMPLETED", "SCHEDULED"]
    assert withdrawn == ["variable", "w1"]


def test_what_killed_workers_announced_is_forgotten_after_a_day() -> None:
    """A live one of the same age stays, and so do a young one that nothing was heard of yet, and one that has been away
    for an hour.
    """
    server, now = FakeServer(), time.time()
    heard = {"lives": (True, 0.0), "away": (False, 3600.0), "killed": (False, 1.1 * prefect_worker.OLD_SECONDS)}
    server.workers = lambda pool: [  # type: ignore[method-assign]
        PoolWorker(name, online, datetime.fromtimestamp(now - age, UTC).isoformat())
        for name, (online, age) in heard.items()
    ]
    for name, age in (("lives", 10.0), ("away", 10.0), ("killed", 1.2), ("unlisted", 1.1), ("young", 0.9)):
        server.facts[name] = {"name": name, "pool": "gpu", "since": now - age * prefect_worker.OLD_SECONDS}
    withdrawn: list[str] = []
    server.withdraw = withdrawn.append  # type: ignore[attr-defined]
    prefect_worker._withdraw_dead_workers(server)  # type: ignore[arg-type]
    assert withdrawn == ["killed", "unlisted"]


@pytest.fixture
def store(toy: Toy) -> tuple[Path, Path, str]:
    """A repository whose remote has an object; the object's place there, and its hash."""
    remote = toy.root.parent / "remote"
    with (toy.root / ".dvc/config").open("a") as config:
        config.write(f"    remote = store\n['remote \"store\"']\n    url = {remote}\n")
    dvc_transfer.create_remote_folder(toy.root)
    md5 = str(dvc_transfer.store_in_cache(toy.root, toy.write("data/x", "0123456789"))["md5"])
    dvc_transfer.push_objects(toy.root, [md5])
    place = remote / "files/md5" / md5[:2] / md5[2:]
    assert place.read_text() == "0123456789"
    return toy.root, place, md5


def test_a_torn_object_of_the_remote_is_sent_again(store: tuple[Path, Path, str]) -> None:
    root, place, md5 = store
    place.chmod(0o644)
    place.write_text("01234")
    dvc_transfer.push_objects(root, [md5])
    assert place.read_text() == "0123456789"


def test_a_remote_that_is_away_is_not_made_anew(store: tuple[Path, Path, str]) -> None:
    """What is sent to the place where a disk is to be mounted is lost under it."""
    root, _, md5 = store
    remote = root.parent / "remote"
    remote.rename(root.parent / "away")
    for transfer in (dvc_transfer.push_objects, dvc_transfer.fetch_objects):
        with pytest.raises(dvc_transfer.TransferError, match=r"remote: .*/remote is not there"):
            transfer(root, [md5])
    assert not remote.exists()
    (root.parent / "away").rename(remote)
    dvc_transfer.push_objects(root, [md5])


@pytest.mark.parametrize("bytes_there", ["01234", "0123X56789"])
def test_a_damaged_object_of_the_remote_is_named_and_put_aside(store: tuple[Path, Path, str], bytes_there: str) -> None:
    """One of the right size as well; only its reader can see that."""
    root, place, md5 = store
    place.chmod(0o644)
    place.write_text(bytes_there)
    cached = root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    kept = cached.rename(root / "kept")
    expected = f"{place} does not have the bytes of {md5}, and was put aside"
    with pytest.raises(dvc_transfer.DamagedError, match=expected):
        dvc_transfer.retry_transfer(lambda: dvc_transfer.fetch_objects(root, [md5]), lambda line: None)
    assert not cached.exists()
    assert place.with_name(f"{place.name}.damaged").read_text() == bytes_there, "nothing is lost"
    kept.rename(cached)
    dvc_transfer.push_objects(root, [md5])
    cached.unlink()
    dvc_transfer.fetch_objects(root, [md5])
    assert cached.read_text() == "0123456789"


def test_an_attempt_with_a_damaged_input_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator sends the input again before the next attempt."""
    server = FakeServer()

    class Place:
        def run_attempt(self) -> None:
            raise dvc_transfer.DamagedError("DVC's remote: x does not have the bytes of y, and was put aside")

    monkeypatch.setattr(attempt_module.Attempt, "_choose_attempt_site", lambda *_: Place())
    submitted(server, tmp_path).run_attempt()
    assert server.statuses["run-0"]["lost"] == "DVC's remote: x does not have the bytes of y, and was put aside"
    assert server.statuses["run-0"]["failure"] == ""
    assert server.runs["run-0"].state == "CRASHED"


def test_a_result_waits_for_a_server_that_is_away_when_it_is_to_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage has not failed; only whether its result is still wanted cannot be asked at this moment."""
    monkeypatch.setattr(attempt_module, "RETRY_SECONDS", 0.01)
    server = FakeServer()
    attempt = submitted(server, tmp_path)
    server.away = 3
    attempt.check_wanted()
    assert server.away == 0
    server.set_state("run-0", "CANCELLED")
    server.away = 3
    with pytest.raises(attempt_module.UnwantedError, match="does not wait for it any more"):
        attempt.check_wanted()
    server.away = 10**6
    attempt.stopped = "its worker was stopped"
    with pytest.raises(attempt_module.UnwantedError, match="its worker was stopped"):
        attempt.check_wanted()


def test_a_copy_that_its_owner_deletes_beside_the_clean_up_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two folders is gone when it comes to its turn."""
    home, remove = tmp_path / "copies", in_copy.delete_path
    for name in ("a", "b"):
        (home / name).mkdir(parents=True)

    def remove_all(_: Path) -> None:
        for folder in home.iterdir():
            remove(folder)

    monkeypatch.setattr(in_copy, "delete_path", remove_all)
    in_copy.delete_abandoned_folders(home)
    assert [*home.iterdir()] == []


def test_scratch_copies_of_killed_attempts_are_deleted_and_others_are_not(tmp_path: Path) -> None:
    home = tmp_path / "copies"
    with in_copy.open_scratch_folder(home, "b-") as (living, _):
        (living / "file").write_text("b")
        left = home / "b-left"
        (left / "copy").mkdir(parents=True)
        with in_copy.open_scratch_folder(home, "b-") as (second, lock):
            assert (left.exists(), living.exists()) == (False, True)
            child = os.dup(lock)  # as the command has it
    assert not living.exists()
    assert not second.exists()
    os.close(child)
    (home / "b-left").mkdir()
    in_copy.delete_abandoned_folders(home)
    assert [*home.iterdir()] == []

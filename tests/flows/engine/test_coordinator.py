import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows.console.summary import read_log_tail
from flows.engine import dvc_command, dvc_lock
from flows.engine.coordinator import Coordinator
from flows.engine.plan import PlanError
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import wait_for


@pytest.mark.usefixtures("dvc_memory")
def test_records_are_those_of_plain_dvc_repro(make_toy: Callable[[str], Toy]) -> None:
    ours, plain = make_toy("ours"), make_toy("plain")
    for toy in (ours, plain):
        toy.stage("a")
        toy.stage("b", "a")
        many = "mkdir -p data/m && echo 1 > data/m/x && echo 2 > data/m/y && echo '{\"a\": 0.5}' > metrics.json"
        toy.stage("m", "b", cmd=many, outs=["data/m"], metrics=[{"metrics.json": {"cache": False}}])
    assert set(ours.states().values()) == {"ran"}
    plain.dvc("repro")
    assert ours.lock == plain.lock
    assert ours.read("dvc.lock").splitlines()[:20] == plain.read("dvc.lock").splitlines()[:20], "the same text, too"
    assert ours.dvc("repro").count("didn't change, skipping") == 3
    runs = [
        sorted(file.relative_to(toy.root) for file in toy.root.glob(".dvc/cache/runs/*/*/*")) for toy in (ours, plain)
    ]
    assert runs[0] == runs[1] != []


@pytest.mark.usefixtures("plain_commands", "dvc_memory")
def test_the_run_cache_is_shared_both_ways(toy: Toy) -> None:
    toy.stage("a")
    toy.stage("b", "a")
    toy.stage("c", "b")
    toy.run()
    toy.set(b=2)
    toy.dvc("repro")
    assert set(toy.reasons().values()) == {None}, "what dvc ran is up to date for us"
    toy.set(b=1)
    assert toy.states() == {"a": "up-to-date", "b": "restored", "c": "restored"}
    toy.set(b=2)
    assert toy.states()["c"] == "restored", "what dvc ran is restored by us"
    toy.set(b=1)
    assert toy.dvc("repro").count("is cached - skipping run") == 2, "what we ran is restored by dvc"
    assert toy.read("data/c").count("b 1") == 1


def test_a_coordinator_that_cannot_begin_holds_nothing(toy: Toy) -> None:
    toy.stage("a")
    toy.run()
    lock, here = toy.read("dvc.lock"), Path.cwd()
    toy.write("dvc.lock", "{")
    with pytest.raises(Exception, match=r"dvc\.lock"), Coordinator(toy.root):
        pass
    assert Path.cwd() == here
    toy.write("dvc.lock", lock)
    with Coordinator(toy.root):
        pass


@pytest.mark.usefixtures("plain_commands")
def test_the_same_bytes_leave_what_follows_up_to_date(toy: Toy) -> None:
    toy.diamond()
    toy.stages["a"]["deps"].append("other.py")
    toy.write("other.py", "# 1\n")
    toy.save()
    toy.run()
    toy.write("other.py", "# 2\n")
    assert toy.states() == {"a": "ran", "b": "up-to-date", "c": "up-to-date", "d": "up-to-date"}


@pytest.mark.usefixtures("plain_commands")
def test_a_forced_stage_runs_although_it_is_cached(toy: Toy) -> None:
    toy.diamond()
    toy.run()
    assert toy.states(force=["a"]) == {"a": "ran", "b": "up-to-date", "c": "up-to-date", "d": "up-to-date"}


def test_a_dep_that_changes_meanwhile_is_not_recorded(toy: Toy) -> None:
    toy.stage("a", cmd="echo ${a} > data/a; echo '#' >> work.py")
    toy.write("data/.keep", "")
    before = toy.read("work.py")
    result = toy.run()["a"]
    assert result.state == "failed"
    assert "work.py changed while the stage ran" in result.reason
    assert not (toy.root / "dvc.lock").exists()
    assert not (toy.root / "data/a").exists()
    toy.write("work.py", before)
    assert toy.reasons() == {"a": "never run"}


@pytest.mark.usefixtures("plain_commands")
def test_raw_data_that_grows_meanwhile_is_read_again(toy: Toy) -> None:
    """People go on judging while a stage reads what they have judged."""
    toy.write("data/raw/people.jsonl", "{}\n")
    grow = "test $(wc -l < data/raw/people.jsonl) -ge 3 || echo {} >> data/raw/people.jsonl"
    toy.stage("a", cmd=f"cp data/raw/people.jsonl data/a; {grow}")
    toy.stages["a"]["deps"] = ["data/raw/people.jsonl"]
    toy.save()
    assert toy.run()["a"].state == "ran"
    assert toy.read("data/a") == "{}\n" * 3
    assert sum("changed while it ran; runs again" in event.reason for event in toy.events) == 2
    assert toy.reasons() == {"a": None}
    toy.stages["a"]["cmd"] = "cp data/raw/people.jsonl data/a; echo {} >> data/raw/people.jsonl"
    toy.save()
    assert "changed while the stage ran" in toy.run()["a"].reason, "it has an end"


FAILURES = {
    "exit status": ("echo half > data/a; echo it broke >&2; exit 3", "it broke (exit status 3)"),
    "killed": ("echo half > data/a; kill -9 $$", "exit status 137"),
    "no out": ("true", "data/a: the command ended without writing it"),
    "empty out": (": > data/a", "data/a: the command left it empty"),
    "not a number": (
        'echo half > data/a; echo \'{"loss": {"x": NaN}}\' > m.json',
        "m.json: loss.x: expected a finite number, got nan",
    ),
    "not JSON": ("echo half > data/a; echo '{' > m.json", "m.json: not JSON"),
    "disk full": (
        "ulimit -f 1; python -c \"open('data/a', 'wb').write(b'x' * 10**6)\"",
        "File too large",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_rerun_leaves_everything_as_it_was(toy: Toy, failure: str, request: pytest.FixtureRequest) -> None:
    cmd, expected = FAILURES[failure]
    if failure not in ("exit status", "killed", "disk full"):
        request.getfixturevalue("plain_commands")
    good = "mkdir -p data; echo whole > data/a; echo '{\"loss\": 1}' > m.json"
    toy.stage("a", cmd=good, metrics=[{"m.json": {"cache": False}}])
    toy.run()
    toy.write("data/a", "edited by hand, in no cache\n")
    lock = toy.read("dvc.lock")
    toy.stage("a", cmd=cmd, metrics=[{"m.json": {"cache": False}}])

    result = toy.run()["a"]
    assert result.state == "failed"
    assert expected in result.reason
    assert toy.read("data/a") == "edited by hand, in no cache\n"
    assert json.loads(toy.read("m.json")) == {"loss": 1}
    assert toy.read("dvc.lock") == lock
    assert not list((toy.root / ".dvc/tmp/posttrain/previous").iterdir())


@pytest.mark.usefixtures("plain_commands")
def test_a_disk_that_fills_while_the_record_is_written_loses_nothing(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.stage("a")
    toy.run()
    lock, made = toy.read("dvc.lock"), toy.read("data/a")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    toy.set(a=2)
    with monkeypatch.context() as patch:
        patch.setattr(dvc_lock.os, "fsync", full)
        assert "No space left on device" in toy.run()["a"].reason
    assert (toy.read("dvc.lock"), toy.read("data/a")) == (lock, made)
    assert toy.states() == {"a": "restored"}, "it had reached the run cache"


@pytest.mark.usefixtures("plain_commands")
def test_a_record_that_lineage_fails_on_is_still_a_record(toy: Toy) -> None:
    class Broken:
        uri = "sqlite://"

        def start(self, *_: object) -> str:
            return "id"

        def variables(self, *_: object) -> dict[str, str]:
            return {}

        def made(self, *_: object) -> None:
            pass

        def end(self, *_: object) -> None:
            raise OSError("the store is gone")

    toy.stage("a")
    result = toy.run(recorder=Broken())["a"]
    assert (result.state, result.reason) == ("failed", "OSError: the store is gone")
    assert toy.read("data/a") == "a 1\n"
    assert toy.reasons() == {"a": None}, "the work is not lost, and not done again"


CHECK = """
import json, pathlib, sys
open("started", "a").write("x")
for line in sys.stdin:
    texts = {name: pathlib.Path(name).read_text() for name in json.loads(line)}
    if any("slow" in text for text in texts.values()):
        import time; open("busy", "w"); time.sleep(60)
    if any("broken" in text for text in texts.values()):
        raise ValueError("the check itself is broken")
    print(json.dumps([f"{name}: row 3: reward: expected a number" for name in texts if "bad" in texts[name]]), flush=True)
"""  # noqa: E501


@pytest.fixture
def checked(toy: Toy, plain_commands: None) -> Toy:
    """A project with a check of its own, and two stages that have passed it."""
    toy.write("tasks/__init__.py", "")
    toy.write("tasks/check.py", CHECK)
    toy.stage("a")
    toy.stage("b")
    assert toy.states() == {"a": "ran", "b": "ran"}
    return toy


def test_the_projects_own_check_guards_the_cache(checked: Toy) -> None:
    assert checked.read("started") == "x", "one process for both stages"
    checked.set(a="bad")
    result = checked.run()["a"]
    assert result.state == "failed"
    assert result.reason == f"{checked.root}/data/a: row 3: reward: expected a number"
    assert result.log is not None
    assert result.log.read_text().endswith(f"{result.reason}\n")
    assert checked.read("data/a") == "a 1\n"


def test_a_check_that_breaks_fails_its_stage_and_no_other(checked: Toy) -> None:
    checked.set(a="broken", b=2)
    results = checked.run()
    assert {name: result.state for name, result in results.items()} == {"a": "failed", "b": "ran"}
    told = "python -m tasks.check: ValueError: the check itself is broken; see mlruns/logs/check.log"
    assert results["a"].reason == told
    assert checked.read("data/a") == "a 1\n"


def test_a_check_at_work_is_stopped_with_the_run(checked: Toy) -> None:
    checked.set(a="slow")
    with Coordinator(checked.root) as coordinator, ThreadPoolExecutor(1) as pool:
        future = pool.submit(coordinator.execute, "a", checked.events.append)
        wait_for((checked.root / "busy").exists, 20)
        coordinator.stop()
        result = future.result(timeout=60)
    assert (result.state, result.reason) == ("failed", "stopped")
    assert checked.read("data/a") == "a 1\n"


def test_output_goes_to_the_log_and_progress_to_the_watcher(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dvc_command, "LOOK_SECONDS", 0.02)
    report = 'echo "{\\"step\\": $i, \\"total\\": 3}" >> $POSTTRAIN_PROGRESS; echo at $i; sleep 0.2'
    toy.stage("a", cmd=f"mkdir -p data; for i in 1 2 3; do {report}; done; echo $DVC_STAGE > data/a")
    result = toy.run()["a"]
    assert result.log is not None
    assert result.log.read_text() == "at 1\nat 2\nat 3\n"
    told = [(event.step, event.total) for event in toy.events if event.step]
    assert told
    assert told == sorted(set(told)), "each step is told once"
    assert all(total == 3 for _, total in told)
    assert toy.read("data/a") == "a\n", "the command has dvc's own variables"


def test_one_run_at_a_time(toy: Toy) -> None:
    toy.stage("a")
    with (
        Coordinator(toy.root),
        pytest.raises(PlanError, match="another `posttrain run` is at work"),
        Coordinator(toy.root),
    ):
        pass
    assert toy.states() == {"a": "ran"}


def test_several_commands_run_in_order_until_one_fails(toy: Toy) -> None:
    toy.stage("a", cmd=["mkdir -p data", "echo one > data/a", "echo two >> data/a"])  # type: ignore[arg-type]
    assert toy.states() == {"a": "ran"}
    assert toy.read("data/a") == "one\ntwo\n"
    toy.stage("a", cmd=["echo one > data/a", "false", "touch reached"])  # type: ignore[arg-type]
    assert toy.states() == {"a": "failed"}
    assert not Path(toy.root, "reached").exists()


def test_what_a_killed_run_reserved_stops_nothing_though_its_pid_is_in_use_again(toy: Toy) -> None:
    """This test's own process has the pid. Reservations of plain DVC stay."""
    toy.stage("a")
    ours = {"pid": os.getpid(), "cmd": "posttrain run a"}
    theirs = {"pid": os.getpid(), "cmd": "dvc repro"}
    held = {
        "write": {str(toy.root / "data/a"): ours, "/elsewhere": theirs},
        "read": {"/read": [ours, theirs], "/b": [ours]},
    }
    toy.write(".dvc/tmp/rwlock", json.dumps(held))
    assert toy.states() == {"a": "ran"}
    left = json.loads(toy.read(".dvc/tmp/rwlock"))
    assert (left["write"], left["read"]) == ({"/elsewhere": theirs}, {"/read": [theirs]})


@pytest.mark.usefixtures("plain_commands")
def test_an_empty_folder_in_the_run_cache_stops_no_stage(toy: Toy) -> None:
    """A kill leaves such a folder if it comes after the folder of a key is made and before the record is moved
    there.
    """
    toy.stage("a")
    toy.set(a=1)
    assert toy.states() == {"a": "ran"}
    [key] = {path.parent for path in (toy.root / ".dvc/cache").glob("**/runs/*/*/*")}
    toy.set(a=2)
    assert toy.states() == {"a": "ran"}
    for record in key.iterdir():
        record.unlink()
    toy.set(a=1)
    assert toy.states() == {"a": "ran"}, "it could be restored, were the record there"
    toy.set(a=2)
    assert toy.states() == {"a": "restored"}
    toy.set(a=1)
    assert toy.states() == {"a": "restored"}, "the folder has a record again"


def test_plain_dvc_at_work_on_the_same_outs_is_respected(toy: Toy) -> None:
    toy.stage("a", cmd="mkdir -p data; echo 1 > data/a; sleep 5")
    busy = {"write": {str(toy.root / "data/a"): {"pid": 1, "cmd": "dvc repro"}}, "read": {}}
    toy.write(".dvc/tmp/rwlock", json.dumps(busy))
    result = toy.run()["a"]
    assert result.state == "failed"
    assert "is busy" in result.reason
    assert not (toy.root / "data/a").exists()


def test_what_never_started_was_not_failed_by_a_stop(toy: Toy) -> None:
    toy.diamond()
    with Coordinator(toy.root) as coordinator:
        coordinator.stop()
        result = coordinator.execute("a", toy.events.append)
    assert (result.state, result.reason) == ("skipped", "the run was stopped")
    assert not (toy.root / "data").exists()


def test_a_last_line_without_end_is_shown_in_part(toy: Toy) -> None:
    """The line has three megabytes and a control sequence that would clear the screen."""
    toy.stage("a", cmd="python -c \"print('\\x1b[2J' + 'no! ' * 750000)\"; exit 3")
    result = toy.run()["a"]
    assert result.state == "failed"
    assert "no! no! " in result.reason
    assert result.reason.isprintable()
    assert result.reason.endswith(" ... (exit status 3)")
    assert len(result.reason) < 330
    assert max(map(len, read_log_tail(result.log))) <= 500

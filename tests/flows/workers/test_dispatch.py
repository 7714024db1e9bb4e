"""Stages on workers from the plan to dvc.lock, with both ways in which a worker gets at the files."""

import shutil
import subprocess
from pathlib import Path

import pytest

from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import iterate_run_cache_entries
from flows.engine.plan import plan_stages
from flows.workers import dispatch, in_checkout
from tests.flows.engine.toy import Toy
from tests.flows.workers.fleet import Fleet, gpu

pytestmark = pytest.mark.usefixtures("plain_commands")


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(monkeypatch)


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def pipeline(toy: Toy) -> Toy:
    """One stage for this machine, two for workers, and raw data in git."""
    toy.write("raw/words", "a few words\n")
    toy.write("raw/none/keep.pyc", "of a folder without data\n")
    toy.stage("a")
    gpu(toy, "b", "a")
    toy.stages["b"]["deps"] += ["raw/words", "raw/none"]
    gpu(toy, "c", "b")
    toy.stages["c"]["cmd"] += " && mkdir -p data/folder/in && cp data/c data/folder/in/c && touch data/folder/x.pyc"
    toy.stages["c"]["outs"].append("data/folder")
    toy.write(".dvcignore", "*.pyc\n")
    toy.save()
    return toy


@pytest.fixture
def twin(pipeline: Toy) -> Path:
    """A clone with the same remote."""
    remote = pipeline.root.parent / "remote"
    remote.mkdir()
    with (pipeline.root / ".dvc/config").open("a") as config:
        config.write(f"    remote = store\n['remote \"store\"']\n    url = {remote}\n")
    git(pipeline.root, "add", ".")
    git(pipeline.root, "commit", "--message", "toy")
    clone = pipeline.root.parent / "clone"
    git(pipeline.root.parent, "clone", str(pipeline.root), str(clone))
    return clone


def states(results: object) -> dict[str, str]:
    return {name: result.state for name, result in results.items()}  # type: ignore[attr-defined]


def undisturbed(toy: Toy, root: Path) -> Toy:
    """The same repository, run here."""
    shutil.copytree(toy.root, root, ignore=shutil.ignore_patterns("mlruns", "data", "cache", "posttrain"))
    (root / "dvc.lock").unlink(missing_ok=True)
    other = Toy(root)
    other.stages, other.params = toy.stages, toy.params
    other.save()
    other.run()
    return other


def test_workers_in_the_checkout(pipeline: Toy, fleet: Fleet, tmp_path: Path) -> None:
    with fleet.worker(pipeline.root):
        assert states(fleet.run(pipeline)) == {"a": "ran", "b": "ran", "c": "ran"}
    assert pipeline.lock == undisturbed(pipeline, tmp_path / "other").lock
    assert pipeline.dvc("status").strip() == "Data and pipelines are up to date."
    assert [run.name for run in fleet.server.runs.values()] == ["b", "c"]
    assert {run.state for run in fleet.server.runs.values()} == {"COMPLETED"}
    assert (pipeline.root / "mlruns/logs/b.log").read_text() == "made data/b\n"
    assert fleet.server.logs["run-0"] == ["made data/b"], "Prefect's page shows the log too"


@pytest.mark.usefixtures("dvc_memory")
def test_workers_with_a_clone(pipeline: Toy, twin: Path, fleet: Fleet, tmp_path: Path) -> None:
    """The params travel with the job, and the remote has what a push would have brought."""
    pipeline.set(b="uncommitted")
    with fleet.worker(twin):
        assert states(fleet.run(pipeline)) == {"a": "ran", "b": "ran", "c": "ran"}
    assert "b uncommitted" in pipeline.read("data/b")
    assert pipeline.lock == undisturbed(pipeline, tmp_path / "other").lock
    assert pipeline.dvc("status").strip() == "Data and pipelines are up to date."
    assert not (twin / "data").exists(), "the clone's own files are as they were"
    assert not (twin / "dvc.lock").exists()
    assert list((twin / ".dvc/tmp/posttrain/copies").iterdir()) == []
    assert (pipeline.root / "mlruns/logs/b.log").read_text() == "made data/b\n"
    _has_all_of_it(pipeline)

    pipeline.set(a=2)
    pipeline.run("b")
    pipeline.set(a=1)
    assert states(pipeline.run("b")) == {"a": "restored", "b": "restored"}, "from the run cache"


def _has_all_of_it(pipeline: Toy) -> None:
    """The remote has the runs of the workers' stages, and another clone pulls all outs from it."""
    runs, remote = pipeline.root / ".dvc/cache/runs", pipeline.root.parent / "remote"
    keys = {
        entry["cmd"]: key for key in runs.glob("*/*") for entry in iterate_run_cache_entries(pipeline.root, key.name)
    }
    for name in "bc":
        [here] = keys[pipeline.stages[name]["cmd"]].iterdir()
        there = remote / "runs" / here.relative_to(runs)
        assert there.read_text() == here.read_text()
    git(pipeline.root, "add", "dvc.lock", "params.yaml")
    git(pipeline.root, "commit", "--message", "results")
    git(pipeline.root.parent, "clone", str(pipeline.root), "third")
    third = Toy(pipeline.root.parent / "third")
    third.stages, third.params = pipeline.stages, pipeline.params
    third.dvc("pull")
    assert states(third.run()) == dict.fromkeys("abc", "up-to-date")


def test_an_edit_is_refused_or_goes_along_as_a_patch(pipeline: Toy, twin: Path, fleet: Fleet) -> None:
    (pipeline.root / "work.py").write_text((pipeline.root / "work.py").read_text() + "print('edited')\n")
    with fleet.worker(twin):
        with pytest.raises(PlanError, match=r"^work.py: not committed, and workers check out the commit; commit first"):
            fleet.run(pipeline, "b")
        assert states(fleet.run(pipeline, "b", with_patch=True)) == {"a": "ran", "b": "ran"}
    assert (pipeline.root / "mlruns/logs/b.log").read_text() == "made data/b\nedited\n"


def test_a_commit_that_the_worker_cannot_get_fails_the_stage(pipeline: Toy, twin: Path, fleet: Fleet) -> None:
    git(twin, "remote", "remove", "origin")
    pipeline.write("note", "new")
    git(pipeline.root, "add", ".")
    git(pipeline.root, "commit", "--message", "later")
    with fleet.worker(twin):
        results = fleet.run(pipeline, "b")
    assert results["b"].state == "failed"
    assert "push it first" in results["b"].reason


def test_a_stage_that_fails_on_a_worker_says_its_own_line_and_keeps_what_was_there(
    pipeline: Toy, twin: Path, fleet: Fleet
) -> None:
    pipeline.run("b")
    before = pipeline.read("data/b")
    pipeline.write("work.py", "raise SystemExit('no luck')")
    git(pipeline.root, "commit", "--all", "--message", "broken")
    with fleet.worker(twin):
        results = fleet.run(pipeline, "b")
    assert (results["b"].state, results["b"].reason) == ("failed", "no luck (exit status 1)")
    assert pipeline.read("data/b") == before


@pytest.mark.parametrize("clone", [False, True])
def test_a_stage_on_a_worker_waits_for_people_as_one_here(pipeline: Toy, twin: Path, fleet: Fleet, clone: bool) -> None:
    pipeline.write("work.py", "import sys; print('waiting for 3 more: posttrain label'); sys.exit(75)")
    git(pipeline.root, "commit", "--all", "--message", "waits")
    del pipeline.stages["a"]["deps"][0]
    pipeline.stage("a", cmd="mkdir -p data; echo a > data/a")
    git(pipeline.root, "commit", "--all", "--message", "a does not")
    with fleet.worker(twin if clone else pipeline.root):
        results = fleet.run(pipeline, "b")
    assert (results["b"].state, results["b"].reason) == ("paused", "waiting for 3 more: posttrain label")
    assert fleet.server.runs[next(iter(fleet.server.runs))].state == "CANCELLED"
    assert not (pipeline.root / "data/b").exists()


@pytest.mark.parametrize("clone", [False, True])
def test_an_out_that_is_missing_is_found(pipeline: Toy, twin: Path, fleet: Fleet, clone: bool) -> None:
    pipeline.stages["b"]["cmd"] = "true"
    pipeline.save()
    git(pipeline.root, "commit", "--all", "--message", "makes nothing")
    with fleet.worker(twin if clone else pipeline.root):
        results = fleet.run(pipeline, "b")
    assert results["b"].reason == "data/b: the command ended without writing it"


def test_a_lost_attempt_is_made_again(pipeline: Toy, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    perform, times = in_checkout.InCheckout.run_attempt, []

    def lost_at_first(self: in_checkout.InCheckout) -> None:
        times.append(self.job.stage)
        if len(times) == 1:
            self.attempt.stop("its worker was stopped", True)
        perform(self)

    monkeypatch.setattr(in_checkout.InCheckout, "run_attempt", lost_at_first)
    with fleet.worker(pipeline.root):
        assert states(fleet.run(pipeline)) == {"a": "ran", "b": "ran", "c": "ran"}
    assert times == ["b", "b", "c"]
    assert any("its worker was stopped; tries again" in event.reason for event in pipeline.events)


def test_a_stage_whose_workers_are_always_lost_fails(
    pipeline: Toy, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: in_checkout.InCheckout) -> None:
        self.attempt.stop("its worker was stopped", True)
        self.attempt.check()

    monkeypatch.setattr(in_checkout.InCheckout, "run_attempt", lost)
    with fleet.worker(pipeline.root):
        results = fleet.run(pipeline, "b")
    assert results["b"].reason == "worker w1: its worker was stopped; it was tried 3 times"


def test_what_lacks_is_told_before_anything_runs(pipeline: Toy, fleet: Fleet) -> None:
    planned = plan_stages(pipeline.root, ("c",), (), True, "gpu")
    with pytest.raises(PlanError, match=r"^pool gpu has no live worker; start one with `posttrain worker --pool gpu`"):
        dispatch.prepare_dispatch(pipeline.root, planned, False)
    fleet.server.online = ["elsewhere"]
    with pytest.raises(PlanError, match=r"^the workers have clones of their own, so DVC needs a remote"):
        dispatch.prepare_dispatch(pipeline.root, planned, False)
    pipeline.dvc("remote", "add", "--default", "store", str(pipeline.root.parent / "remote"))
    with pytest.raises(PlanError, match="they need a git commit to check out; there is none here"):
        dispatch.prepare_dispatch(pipeline.root, planned, False)


def test_without_stages_for_workers_no_server_is_asked(toy: Toy) -> None:
    toy.stage("a")
    assert dispatch.prepare_dispatch(toy.root, plan_stages(toy.root, ("a",), (), True, "gpu"), False) is None


@pytest.mark.parametrize(
    ("resources", "pool"),
    [
        ({}, ""),
        ({"gpu": 1}, "gpu"),
        ({"gpu": 1, "pool": "big"}, "big"),
        ({"pool": "cpus"}, "cpus"),
        ({"gpu": 1, "pool": ""}, ""),
    ],
)
def test_which_pool_a_stage_goes_to(toy: Toy, resources: dict[str, object], pool: str) -> None:
    toy.stage("a", meta={"resources": resources})
    assert plan_stages(toy.root, ("a",), (), True, "gpu")[0].pool == pool
    assert plan_stages(toy.root, ("a",))[0].pool == "", "without pools all run here"

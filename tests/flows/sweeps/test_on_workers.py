"""A sweep whose stages with a GPU run on workers, in clones and in the checkout itself."""

import subprocess
from pathlib import Path

import pytest

from flows.engine.execute import Execution
from flows.engine.stage_types import Event
from flows.sweeps import axes
from flows.sweeps import sweep as sweeping
from flows.workers import dispatch
from tests.flows.engine import in_order
from tests.flows.engine.toy import Toy
from tests.flows.sweeps.swept import Swept, in_shell
from tests.flows.workers.fleet import Fleet, gpu


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(monkeypatch)


@pytest.fixture
def pipeline(toy: Toy) -> Toy:
    """A stage for this machine, and one for workers that takes a parameter, in a commit and with a remote."""
    toy.stage("a")
    gpu(toy, "b", "a")
    toy.stage("c", "b")
    toy.set(a={"x": 1}, b={"x": 1}, c={"x": 1})
    in_shell(toy)
    remote = toy.root.parent / "remote"
    remote.mkdir()
    with (toy.root / ".dvc/config").open("a") as config:
        config.write(f"    remote = store\n['remote \"store\"']\n    url = {remote}\n")
    commit(toy)
    return toy


def commit(toy: Toy) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for words in (["add", "."], ["commit", "--message", "toy"]):
        subprocess.run(["git", *who, *words], cwd=toy.root, check=True, capture_output=True)


def swept(toy: Toy, *varied: str) -> Swept:
    points = axes.build_grid_points([axes.parse_axis(text) for text in varied], None)
    events: list[Event] = []
    with (
        sweeping.prepare_sweep(toy.root, points, tuple(toy.stages), pools=True, pool="gpu") as sweep,
        sweep.owner as owner,
    ):
        owner.workers = dispatch.prepare_dispatch(toy.root, sweep.planned, with_patch=False, copies=True)
        execution = Execution(owner, sweep.planned, 2, events.append)
        results = {result.stage: result for result in in_order.run(execution)}
        return Swept({stage.name: stage.reason for stage in sweep.planned}, results, sweep.ended(results))


@pytest.mark.parametrize("place", ["clone", "checkout"])
def test_points_run_on_workers_and_come_back_to_the_cache(
    place: str, pipeline: Toy, fleet: Fleet, tmp_path: Path
) -> None:
    root = pipeline.root
    if place == "clone":
        root = tmp_path / "clone"
        subprocess.run(["git", "clone", "--quiet", pipeline.root, root], check=True)
    before = sorted(str(path) for path in pipeline.root.iterdir())
    with fleet.worker(root):
        found = swept(pipeline, "b.x=1,2")
    assert set(found.states.values()) == {"ran"}, found.results
    assert [run.name for run in fleet.server.runs.values()] == ["b"] * 2
    for number in (1, 2):
        assert found.content(pipeline, number, "data/c").splitlines()[1] == f'"b": {{"x": {number}}}'
    assert sorted(str(path) for path in pipeline.root.iterdir()) in (
        before,
        sorted([*before, f"{pipeline.root}/mlruns"]),
    )
    pipeline.set(b={"x": 2})
    assert pipeline.states() == dict.fromkeys("abc", "restored")
    assert "made data/b" in (pipeline.root / "mlruns/logs/b@x=2.log").read_text()


def test_a_worker_that_fails_fails_its_point_alone(pipeline: Toy, fleet: Fleet) -> None:
    with fleet.worker(pipeline.root):
        fails = """if [ $name = b ] && grep -q '"b": {"x": 2}' params.yaml; then echo no; exit 1; fi\n"""
        pipeline.write("work.sh", pipeline.read("work.sh").replace("mkdir", f"{fails}mkdir", 1))
        commit(pipeline)
        found = swept(pipeline, "b.x=1,2")
    assert {name: state for name, state in found.states.items() if state != "ran"} == {
        "b@x=2": "failed",
        "c@x=2": "skipped",
    }
    assert found.results["b@x=2"].reason == "no (exit status 1)"

"""The profile of a flow, by a case worked out by hand."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.profile import Cost, Profile, costs, longest, render
from flows.engine.mlflow_recording import FlowRun
from flows.engine.state import PlannedStage
from tests.flows.conftest import make_toy, template  # noqa: F401  # fixtures


def stage(name: str, *upstream: str) -> PlannedStage:
    return PlannedStage(name, None, upstream, 2, 0)


def test_the_longest_chain_is_of_stages_that_wait_for_each_other() -> None:
    planned = [stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"), stage("e")]
    assert longest(planned, {"a": 1, "b": 2, "c": 5, "d": 1, "e": 6}) == 7
    assert longest(planned, {"a": 1, "b": 2, "c": 5, "d": 1, "e": 8}) == 8


def test_a_page_has_the_shares_of_the_work() -> None:
    stages = [Cost("sft", 60.0, 2, 700.0), Cost("problems", 40.0, 1, 80.0)]
    found = render({"language": asdict(Profile("a machine", 75.0, 61.0, 0.5, stages))})
    assert (
        "On a machine: 1 min 15 s in all (load of the machine when it began: 0.5); 1 min 01 s along the longest chain"
        in found
    )
    assert "2 min 40 s of cores" in found
    assert "| sft | 60.0 | 2 | 75.0 % | 700 |\n| problems | 40.0 | 1 | 25.0 % | 80 |" in found


def test_costs_are_those_of_the_last_finished_runs(make_toy: Any) -> None:  # noqa: F811
    toy = make_toy("toy")
    toy.stage("a", cmd="sleep 0.4; python work.py data/a")
    toy.stage("b", "a")
    recorder = FlowRun(toy.root, "language")
    toy.run(recorder=recorder)
    recorder.close([])
    first, second = costs(Path(toy.root), toy.plan())
    assert (first.stage, second.stage) == ("a", "b")
    assert 0.4 < first.seconds < 30
    assert 5 < second.megabytes < 1000

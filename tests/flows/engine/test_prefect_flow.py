"""The flow on a Prefect server of the user's: its tasks show how the stages ended, and decide nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.engine import prefect_flow
from flows.engine.execute import Execution
from flows.engine.state import PlannedStage, StageResult


@pytest.fixture
def server() -> Iterator[None]:
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield


class Owner:
    """Has the stages end as told, in the order in which they are executed."""

    recorder, stopped = None, False

    def __init__(self, root: Path, ends: dict[str, str]) -> None:
        self.root, self.ends, self.executed = root, ends, list[str]()

    def log_of(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def execute(self, name: str, *_: object) -> StageResult:
        self.executed.append(name)
        return StageResult(name, self.ends.get(name, "ran"), self.ends.get(name, ""))  # type: ignore[arg-type]


def stage(name: str, *upstream: str, after: tuple[str, ...] = ()) -> PlannedStage:
    return PlannedStage(name, "new", upstream, 1, 0, after=after)


@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_what_goes_on_is_not_kept_by_what_is_behind(tmp_path: Path) -> None:
    """`b1` is behind, so that `b` and `score` are. `a` waits until that is known, and runs; so it does where `b1` fails."""
    for end, kind in (("behind", "COMPLETED"), ("failed", "FAILED")):
        owner = Owner(tmp_path, {"b1": end})
        planned = [
            stage("a1"),
            stage("b1"),
            stage("a", "a1", after=("b1",)),
            stage("b", "b1", after=("a1",)),
            stage("score", "b"),
        ]
        execution = Execution(owner, planned, 2, lambda _: None)  # type: ignore[arg-type]
        execution.start_ready()
        state = prefect_flow._flow("toy", execution)(return_state=True)
        assert state.type.value == kind, state.message
        ends = {result.stage: result.state for result in execution.results()}
        left = "behind" if end == "behind" else "skipped"
        assert ends == {"a1": "ran", "b1": end, "a": "ran", "b": left, "score": left}
        assert sorted(owner.executed) == ["a", "a1", "b1"]
        assert owner.executed[-1] == "a"

"""Workers in threads of the test's process, which take attempts from a server in memory; the rest is the real thing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.engine.coordinator import Coordinator
from flows.engine.plan import plan_stages
from flows.engine.stage_types import StageResult
from flows.workers import dispatch, heartbeat, pool, prefect_servers
from flows.workers.attempt import Attempt
from tasks.common import mlflow_address
from tests.flows.engine.toy import Toy
from tests.flows.workers.fake_server import FakeServer


class Fleet:
    """A server with workers, each in a checkout of its own or in the coordinator's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = FakeServer()
        self.server.online = []
        self.attempts: list[Attempt] = []
        monkeypatch.setattr(prefect_servers, "connect_to_prefect", lambda root: self.server)
        monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.05)
        monkeypatch.setattr(pool, "LOOK_SECONDS", 0.05)

    @contextmanager
    def worker(self, root: Path, name: str = "w1") -> Iterator[None]:
        """A worker at `root` that takes one attempt after the other."""
        self.server.online.append(name)
        self.server.facts[name] = {
            "name": name,
            "pool": "gpu",
            "checkout": mlflow_address.load_or_create_clone_id(root),
        }
        ended = threading.Event()
        thread = threading.Thread(target=self._work, args=(root, name, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _work(self, root: Path, name: str, ended: threading.Event) -> None:
        while not ended.wait(0.02):
            for run in [run for run in self.server.runs.values() if run.state == "SCHEDULED"]:
                self.server.set_state(run.id, "PENDING")
                attempt = Attempt(self.server, run.id, root)  # type: ignore[arg-type]
                attempt.status.worker = name
                self.attempts.append(attempt)
                attempt.run_attempt()

    def run(self, toy: Toy, *targets: str, with_patch: bool = False) -> dict[str, StageResult]:
        """Bring all stages, or these and what they need, up to date; those with a GPU run on workers."""
        planned = plan_stages(toy.root, targets or tuple(toy.stages), (), True, "gpu")
        workers = dispatch.prepare_dispatch(toy.root, planned, with_patch)
        results = {}
        with Coordinator(toy.root, workers=workers) as coordinator:
            for stage in planned:
                on_worker = stage if stage.pool else None
                results[stage.name] = coordinator.execute(stage.name, toy.events.append, on_worker=on_worker)
        return results


def gpu(toy: Toy, name: str, *upstream: str, **more: object) -> None:
    """Add a stage that asks for a GPU."""
    toy.stage(name, *upstream, meta={"resources": {"gpu": 1, **more}})

"""A Prefect server in memory, with the methods of Api that coordinator and attempts call, and faults that a test turns
on.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from flows.workers.prefect_api import Away, PoolWorker, PrefectFlowRun

ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class FakeServer:
    """Stands for an Api and for the server behind it."""

    def __init__(self) -> None:
        self.url = "http://fake/api"
        self.runs: dict[str, PrefectFlowRun] = {}
        self.keys: dict[str, str] = {}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, list[str]] = {}
        self.online = ["w1"]
        self.facts: dict[str, dict[str, Any]] = {}
        self.holding = ""  # why the pool hands out nothing
        self.away = 0  # so many calls fail
        self.history: dict[str, list[str]] = {}
        self._ids = count()

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise Away(f"{self.url} (test)")

    def check(self) -> None:
        self._answer()

    def close(self) -> None:
        pass

    def workers(self, pool: str) -> list[PoolWorker] | None:
        self._answer()
        return [PoolWorker(name, True, "") for name in self.online]

    def held(self, pool: str) -> str:
        self._answer()
        return self.holding

    def list_announced_workers(self) -> dict[str, dict[str, Any]]:
        return self.facts

    def submit(self, pool: str, name: str, parameters: Mapping[str, Any], key: str) -> str:
        self._answer()
        if key not in self.keys:
            run = self.keys[key] = f"run-{next(self._ids)}"
            self.runs[run] = PrefectFlowRun(run, name, "SCHEDULED", parameters)
        return self.keys[key]

    def flow_run(self, run: str) -> PrefectFlowRun | None:
        self._answer()
        return self.runs.get(run)

    def set_state(self, run: str, state: str, message: str = "", force: bool = False) -> bool:
        self._answer()
        before = self.runs[run]
        self.history.setdefault(run, []).append(state)
        self.runs[run] = PrefectFlowRun(run, before.name, state, before.parameters)
        return True

    def states(self, run: str) -> list[str]:
        self._answer()
        return self.history.get(run, [])

    def post_status(self, run: str, status: Mapping[str, Any]) -> str:
        self._answer()
        self.statuses[run] = dict(status)
        return run

    def update_status(self, artifact: str, status: Mapping[str, Any]) -> None:
        self._answer()
        self.statuses[artifact] = dict(status)

    def status(self, run: str) -> dict[str, Any]:
        self._answer()
        return self.statuses.get(run, {})

    def write_log(self, run: str, lines: Sequence[str]) -> None:
        self._answer()
        self.logs.setdefault(run, []).extend(lines)

    def log(self, run: str, after: int) -> list[str]:
        self._answer()
        return self.logs.get(run, [])[after:]

"""One Prefect server for all tests of this process, so that none of their runs has to start one."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from flows.orchestration import server


@cache
def variables() -> dict[str, str]:
    """The environment variables with which a run uses it."""
    root = Path(tempfile.mkdtemp(prefix="posttrain-prefect-"))
    own = server.Server(root)

    def end() -> None:
        own.close()
        server.stop_server(root)
        shutil.rmtree(root, ignore_errors=True)

    atexit.register(end)
    own.wait()
    return {**server.build_client_environment(root), "PREFECT_HOME": str(root / "home")}


def ask(path: str, **body: object) -> Any:
    """What the server answers to a POST with this body."""
    name, _, secret = variables()["PREFECT_API_AUTH_STRING"].partition(":")
    answer = httpx.post(f"{variables()['PREFECT_API_URL']}{path}", json=body, auth=(name, secret))
    answer.raise_for_status()
    return answer.json()


def flow_states(root: Path) -> list[tuple[str, str]]:
    """Type and name of each state that flow runs of the clone at `root` have been in, one run after the other."""
    found = []
    name, _, secret = variables()["PREFECT_API_AUTH_STRING"].partition(":")
    url = f"{variables()['PREFECT_API_URL']}/flow_run_states/"
    for run in ask(
        "/flow_runs/filter", flow_runs={"tags": {"all_": [server.build_clone_tag(root)]}}, sort="START_TIME_ASC"
    ):
        answer = httpx.get(url, params={"flow_run_id": run["id"]}, auth=(name, secret))
        answer.raise_for_status()
        found += [(state["timestamp"], state["type"], state["name"]) for state in answer.json()]
    return [(kind, state) for _, kind, state in sorted(found)]

"""A run's own server: if it is ended, the run and the history go on."""

import signal
from pathlib import Path

import httpx
import psutil
import pytest

from flows.engine.dvc_repository import PlanError
from flows.engine.prefect_flow import _reachable
from flows.engine.prefect_server import TemporaryServer
from tests.flows.engine.test_supervisor import wait_for


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_server_that_somebody_ends_is_there_again(tmp_path: Path, number: signal.Signals) -> None:
    server = TemporaryServer(tmp_path)
    try:
        server.wait()
        server.keep_alive()
        [child] = [one for one in psutil.Process().children(recursive=True) if "flows.engine.guard" in one.cmdline()]
        child.send_signal(number)
        child.wait(10)
        wait_for(lambda: _answers(server), 60)
        assert _answers(server)
    finally:
        server.stop()
    assert not _answers(server)
    assert wait_for(lambda: _answers(server), 2) >= 2, "it was stopped, and stays so"


def _answers(server: TemporaryServer) -> bool:
    try:
        return httpx.get(f"{server.url}/health", headers=server.headers).is_success
    except httpx.HTTPError:
        return False


def test_a_server_out_of_reach_is_one_line() -> None:
    with (
        pytest.raises(
            PlanError, match=r"^Prefect's server cannot be reached \(refused twice\); what had finished is kept"
        ),
        _reachable(),
    ):
        raise httpx.ConnectError("refused\ntwice")


def test_so_it_is_where_prefect_wraps_that() -> None:
    """`SyncPrefectClient.__enter__` asks for the API's version, and turns any error into a RuntimeError."""
    with pytest.raises(PlanError, match=r"^Prefect's server cannot be reached"), _reachable():
        raise RuntimeError("Failed to reach API at http://127.0.0.1:1/api/") from httpx.ConnectError("refused")
    with pytest.raises(RuntimeError, match="incompatible"), _reachable():
        raise RuntimeError("Found incompatible versions")

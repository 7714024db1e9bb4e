"""A run's own server: if it is ended, the run and the history go on."""

import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx
import psutil
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.engine import prefect_flow
from flows.engine.dvc_repository import PlanError
from flows.engine.execute import Execution
from flows.engine.prefect_flow import _reachable
from flows.engine.prefect_server import TemporaryServer, may_be_configured, temporary_server
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import wait_for


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


class Answer(BaseHTTPRequestHandler):
    status, text = 200, b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.text)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (401, b"{}", r"it asks who this is: set PREFECT_API_AUTH_STRING \(USER:PASSWORD\) or PREFECT_API_KEY$"),
        (403, b"{}", "it refuses this user$"),
        (404, b"{}", "expected the address of Prefect's API, which ends with /api$"),
        (200, b"<html>welcome</html>", ""),
        (500, b"made-up-word", ""),
        (None, b"", r".*Connection refused$"),
    ],
)
def test_a_configured_server_that_refuses_is_one_line(
    status: int | None, text: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    monkeypatch.setattr(Answer, "text", text)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        port = server.server_port if status else 9
        address = f"http://me:made-up-word@127.0.0.1:{port}/api"
        monkeypatch.setenv("PREFECT_API_URL", address)
        with (
            temporary_settings({PREFECT_API_URL: address}),
            pytest.raises(PlanError, match=rf"^PREFECT_API_URL: http://127\.0\.0\.1:{port}/api: {said}") as caught,
        ):
            temporary_server(tmp_path)
        server.shutdown()
        thread.join()
    assert "\n" not in str(caught.value)
    assert "made-up-word" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "no server of our own was started"


# Without Prefect a process that records makes its database, which takes half a minute.
@pytest.mark.parametrize("in_prefect", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_interrupt_that_is_dropped_below_still_ends_the_run_as_stopped(
    toy: Toy, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch, in_prefect: bool
) -> None:
    """Python drops a KeyboardInterrupt that is raised in a finalizer; the children have been stopped all the same."""
    toy.diamond()
    if in_prefect:
        (toy.root / "mlruns").mkdir(exist_ok=True)
        shutil.copy(empty_mlflow, toy.root / "mlruns/mlflow.db")
    monkeypatch.setattr(prefect_flow, "may_be_configured", lambda root: in_prefect)
    monkeypatch.setattr(Execution, "join", lambda self: self.coordinator.stop())

    def flow(name: str, execution: Execution) -> Callable[..., None]:
        return lambda return_state: execution.coordinator.stop()

    monkeypatch.setattr(prefect_flow, "_flow", flow)
    monkeypatch.setattr(prefect_flow, "temporary_server", lambda root: None)
    monkeypatch.setattr(prefect_flow, "using", lambda server, root: nullcontext())
    with pytest.raises(KeyboardInterrupt):
        prefect_flow.run_flow(toy.root, toy.plan(), flow_name="language", jobs=1, watch=lambda event: None)
    with closing(sqlite3.connect(toy.root / "mlruns/mlflow.db")) as records:
        assert records.execute("SELECT status FROM runs WHERE name LIKE 'language%'").fetchall() == [("KILLED",)]


def test_whether_prefect_may_be_configured_is_known_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_PROFILES_PATH", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["prefect"]\nurls = "x"\n')
    assert not may_be_configured(tmp_path)
    places = {
        "home/profiles.toml": '[profiles.mine]\nPREFECT_API_URL = "http://x/api"\n',
        ".env": "PREFECT_API_URL=http://x/api\n",
        "prefect.toml": '[api]\nurl = "http://x/api"\n',
        "pyproject.toml": '[tool.prefect.api]\nurl = "http://x/api"\n',
    }
    for path, text in places.items():
        before = (tmp_path / path).read_text() if (tmp_path / path).exists() else ""
        (tmp_path / path).write_text(text)
        assert may_be_configured(tmp_path), path
        (tmp_path / path).write_text(before)
    monkeypatch.setenv("PREFECT_API_URL", "http://x/api")
    assert may_be_configured(tmp_path)

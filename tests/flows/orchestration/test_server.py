"""Which Prefect server a run uses, and the repository's own: who keeps it, for how long, and what a configured one
answers.
"""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import flow_run, running
from flows.console.summary import PlainConsole
from flows.engine.dvc_repository import PlanError
from flows.orchestration import server, server_keeper
from flows.orchestration.server import can_have_configured_server
from tests.flows.machine.test_supervisor import wait_for
from tests.flows.orchestration.fake_prefect import FAKE
from tests.flows.toy_pipeline import call, make_pipeline, quietly


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
def test_a_configured_server_is_named_and_one_that_refuses_is_one_line(
    status: int | None, text: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    monkeypatch.setattr(Answer, "text", text)
    lines: list[str] = []
    with HTTPServer(("127.0.0.1", 0), Answer) as answering:
        thread = Thread(target=answering.serve_forever, args=[0.01])
        thread.start()
        port = answering.server_port if status else 9
        address = f"http://me:made-up-word@127.0.0.1:{port}/api"
        monkeypatch.setenv("PREFECT_API_URL", address)
        with (
            temporary_settings({PREFECT_API_URL: address}),
            pytest.raises(PlanError, match=rf"^PREFECT_API_URL: http://127\.0\.0\.1:{port}/api: {said}") as caught,
        ):
            server.start_own_server_unless_configured(tmp_path, lines.append)
        answering.shutdown()
        thread.join()
    assert lines == [f"Prefect's server: http://127.0.0.1:{port}/api"], "before anything is sent there"
    assert "\n" not in str(caught.value)
    assert "made-up-word" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "no server of our own was started"


def test_whether_prefect_may_be_configured_is_known_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_PROFILES_PATH", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["prefect"]\nurls = "x"\n')
    assert not can_have_configured_server(tmp_path)
    places = {
        "home/profiles.toml": '[profiles.mine]\nPREFECT_API_URL = "http://x/api"\n',
        ".env": "PREFECT_API_URL=http://x/api\n",
        "prefect.toml": '[api]\nurl = "http://x/api"\n',
        "pyproject.toml": '[tool.prefect.api]\nurl = "http://x/api"\n',
    }
    for path, text in places.items():
        before = (tmp_path / path).read_text() if (tmp_path / path).exists() else ""
        (tmp_path / path).write_text(text)
        assert can_have_configured_server(tmp_path), path
        (tmp_path / path).write_text(before)
    monkeypatch.setenv("PREFECT_API_URL", "http://x/api")
    assert can_have_configured_server(tmp_path)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose server is a small program in the place of Prefect's, which answers the same question for its
    health.
    """
    package = tmp_path / "path/prefect"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), *sys.path]))
    (tmp_path / "repository").mkdir()
    return tmp_path / "repository"


def test_two_users_share_one_server_which_ends_when_the_last_has_left(root: Path) -> None:
    first = server.Server(root, minutes="0")
    first.wait()
    second = server.Server(root, minutes="0")
    second.wait()
    assert first.url == second.url
    assert server.build_client_environment(root)["PREFECT_API_AUTH_STRING"].startswith("posttrain:")
    environ = json.loads((root / "mlruns/prefect/environ.json").read_text())
    assert environ["PREFECT_SERVER_API_AUTH_STRING"] == server.build_client_environment(root)["PREFECT_API_AUTH_STRING"]
    assert environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert environ["PREFECT_HOME"] == str(root / "mlruns/prefect")
    first.close()
    time.sleep(3 * server_keeper.LOOK_SECONDS)
    assert server.is_server_answering(root), "the second still uses it"
    second.close()
    wait_for(lambda: not server.is_keeper_running(root), 20)
    assert not server.is_keeper_running(root)
    assert not server.is_server_answering(root)


def test_who_comes_while_it_ends_gets_one_that_stays(root: Path) -> None:
    for _ in range(4):
        own = server.Server(root, minutes="0")
        own.wait()
        time.sleep(0.2)
        assert server.is_server_answering(root)
        own.close()
        time.sleep(server_keeper.LOOK_SECONDS)  # about when its keeper sees that nobody uses it
    wait_for(lambda: not server.is_keeper_running(root), 20)


def test_it_stays_for_the_next_run_until_it_is_stopped_and_comes_back_at_the_same_port(root: Path) -> None:
    first = server.Server(root, minutes="5")
    first.wait()
    url = first.url
    first.close()
    time.sleep(3 * server_keeper.LOOK_SECONDS)
    assert server.is_server_answering(root)
    assert server.stop_server(root)
    assert not server.is_server_answering(root)
    assert not server.stop_server(root)
    again = server.Server(root, minutes="0")
    again.wait()
    assert again.url == url
    again.close()
    wait_for(lambda: not server.is_keeper_running(root), 20)


def test_it_ends_with_the_repository(root: Path) -> None:
    own = server.Server(root, minutes="5")
    own.wait()
    process = server_keeper.read_server_note(root).process  # type: ignore[union-attr]
    root.rename(root.with_name("renamed"))
    wait_for(lambda: not Path(f"/proc/{process}").exists() or _zombie(process), 20)
    assert not Path(f"/proc/{process}").exists() or _zombie(process)
    own.close()


def _zombie(process: int) -> bool:
    return ") Z " in Path(f"/proc/{process}/stat").read_text()


def test_a_server_that_cannot_start_is_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "path/prefect/__main__.py").write_text("raise SystemExit('no such table')")
    lines: list[str] = []
    own = server.Server(root, minutes="0")
    with pytest.raises(PlanError, match=r"^Prefect's server did not start; see mlruns/logs/prefect-server\.log$"):
        own.wait(lines.append)
    own.close()
    assert "no such table" in (root / server_keeper.LOG).read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_keeper_that_is_ended_before_the_server_answers_is_started_again(number: signal.Signals, root: Path) -> None:
    starting = server.Server(root, minutes="0")
    wait_for(lambda: server.is_keeper_running(root), 20)
    [process] = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if str(root).encode() in (folder / "cmdline").read_bytes().split(b"\0")
    ]
    os.kill(process, number)
    starting.wait()
    assert server.is_server_answering(root)
    starting.close()
    wait_for(lambda: not server.is_keeper_running(root), 20)


def test_a_keeper_that_is_killed_in_use_is_started_again_at_the_same_address(root: Path) -> None:
    in_use = server.Server(root, minutes="0")
    in_use.wait()
    url, process = in_use.url, server_keeper.read_server_note(root).process  # type: ignore[union-attr]
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: server.is_server_answering(root) and _keeper(root) != process, 60)
    assert server.is_server_answering(root)
    assert _keeper(root) != process
    assert in_use.url == url
    in_use.close()
    wait_for(lambda: not server.is_keeper_running(root), 20)


def _keeper(root: Path) -> int | None:
    note = server_keeper.read_server_note(root)
    return note.process if note else None


def test_a_server_that_a_person_stops_stays_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WATCH_SECONDS", 0.05)
    in_use = server.Server(root, minutes="5")
    in_use.wait()
    assert server.stop_server(root)
    time.sleep(1)
    assert not server.is_keeper_running(root)
    in_use.close()


def test_a_slow_start_is_said_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SAY_SECONDS", 0.0)
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.01)
    lines: list[str] = []
    own = server.Server(root, minutes="0")
    own.wait(lines.append)
    own.close()
    assert lines == ["waits until Prefect's server has started"]
    wait_for(lambda: not server.is_keeper_running(root), 20)


@pytest.mark.parametrize("minutes", ["soon", "-1", "inf", "nan"])
def test_minutes_that_are_no_number_are_one_line(minutes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_SERVER_MINUTES", minutes)
    with pytest.raises(PlanError, match=r"^POSTTRAIN_SERVER_MINUTES: ") as caught:
        server.Server(tmp_path)
    assert "\n" not in str(caught.value)


def test_loopback_never_goes_through_a_proxy(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    own = server.Server(root, minutes="0")
    own.wait()
    own.close()
    assert server.build_no_proxy_variables({"NO_PROXY": "example.org"})["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    wait_for(lambda: not server.is_keeper_running(root), 20)


def test_a_database_that_set_up_has_left_is_laid_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.db").write_text("empty")
    monkeypatch.setattr(server_keeper, "get_database_template_path", lambda: tmp_path / "empty.db")
    (tmp_path / "mlruns").mkdir()
    server_keeper._create_database_from_template(tmp_path)
    assert (tmp_path / "mlruns/prefect.db").read_text() == "empty"
    (tmp_path / "mlruns/prefect.db").write_text("history")
    server_keeper._create_database_from_template(tmp_path)
    assert (tmp_path / "mlruns/prefect.db").read_text() == "history"
    monkeypatch.setattr(server_keeper, "get_database_template_path", lambda: tmp_path / "none.db")
    (tmp_path / "mlruns/prefect.db").unlink()
    server_keeper._create_database_from_template(tmp_path)
    assert [*(tmp_path / "mlruns").iterdir()] == []


def test_pages_may_ask_their_own_server_alone(tmp_path: Path) -> None:
    (tmp_path / "v2").mkdir()
    page = tmp_path / "v2/index.html"
    page.write_text("<html><head><title>x</title></head></html>")
    for _ in range(2):
        server_keeper._add_content_security_policy(tmp_path)
        assert page.read_text() == f"<html><head>{server_keeper.POLICY}<title>x</title></head></html>"
    assert [file.name for file in page.parent.iterdir()] == ["index.html"]


@pytest.mark.parametrize(("wanted", "url"), [(True, ""), (False, ""), (True, "http://127.0.0.1:9/api")])
def test_a_run_starts_the_server_ahead_unless_another_may_be_configured(
    wanted: bool, url: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setenv("POSTTRAIN_SERVER_MINUTES", "0")
    with flow_run.open_server_starter(root, wanted) as start:
        start()
        start()
        if wanted and not url:
            wait_for(lambda: server.is_server_answering(root), 20)
        assert server.is_server_answering(root) == (wanted and not url)
    wait_for(lambda: not server.is_keeper_running(root), 20)
    assert not server.is_keeper_running(root)


def test_the_server_starts_while_a_run_still_plans_and_only_where_there_is_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, events = make_pipeline(tmp_path / "toy"), []

    @contextmanager
    def planned(*arguments: Any) -> Iterator[Any]:
        events.append("planned")
        yield flow_run.Begun("language")

    quietly(monkeypatch)
    monkeypatch.setattr(
        flow_run, "open_server_starter", lambda root, wanted: nullcontext(lambda: events.append("server"))
    )
    with monkeypatch.context() as patch:
        patch.setattr(flow_run, "open_flow_run", planned)
        running.run_targets(root, PlainConsole(io.StringIO()), ["dpo"])
    assert events[0] == "server"
    assert events[-1] == "planned"
    assert call(root, "run")[0] == 0
    events.clear()
    running.run_targets(root, PlainConsole(io.StringIO()))
    assert events == [], "nothing has changed"
    monkeypatch.setattr("flows.engine.plan.plan_stages", lambda *arguments: events.append("planning") or [])
    with suppress(running.WrongUseError):
        running.run_targets(root, PlainConsole(io.StringIO()), ["dpo"], force=["dpo"])
    assert events == ["server", "planning"]


PRIVATE = """
import ast, pathlib, sys
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    for node in ast.walk(ast.parse(file.read_text())):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{one.name}" for one in node.names]
        for name in names:
            words = name.split(".")
            if words[0] == "prefect" and ("server" in words[1:2] or any(word.startswith("_") for word in words[1:])):
                print(f"{file}: {name}")
"""


def test_nothing_private_of_prefect_is_imported() -> None:
    flows = Path(server.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", PRIVATE, flows], capture_output=True, text=True, check=True)
    assert done.stdout == ""

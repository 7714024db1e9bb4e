"""The guard before Prefect's and MLflow's servers: which requests pass, and what refused ones get."""

import asyncio
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from flows.engine import server_guard
from flows.engine.server_guard import Message, ServerGuard

TOKEN = "secret"
HERE = {"host": "127.0.0.1:4200"}
KNOWN = {**HERE, "x-posttrain-token": TOKEN}


async def served(scope: Message, receive: Any, send: Any) -> None:
    await server_guard.send_asgi_response(send, 200, b"served", [])


def ask(
    headers: dict[str, str], query: str = "", kind: str = "http", method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer; for a refused websocket the code with which it is closed."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {}

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": method, "path": "/api/runs", "query_string": query.encode(), "headers": raw}
    asyncio.run(ServerGuard(served, TOKEN, 4200)(scope, receive, send))
    if sent[0]["type"] == "websocket.close":
        return sent[0]["code"], {}, b""
    return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, sent[1]["body"]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_with_the_token_everything_is_served(method: str) -> None:
    assert ask(KNOWN, method=method)[::2] == (200, b"served")
    assert ask({**KNOWN, "host": "localhost:4200", "origin": "http://localhost:4200"}, method=method)[0] == 200
    assert ask(KNOWN, kind="websocket")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        HERE,
        {},
        {"x-posttrain-token": TOKEN},
        {**HERE, "x-posttrain-token": "secre"},
        {**HERE, "x-posttrain-token": ""},
        {**HERE, "cookie": "posttrain=secret"},
        {**HERE, "cookie": "\x00=;;=,"},
        {**KNOWN, "host": "evil.example"},  # a name that resolves to loopback
        {**KNOWN, "host": "evil.example:4200"},
        {**KNOWN, "host": "127.0.0.1:4201"},
        {**KNOWN, "origin": "http://evil.example"},
        {**KNOWN, "origin": "http://127.0.0.1:8888"},  # another server of this machine, such as a notebook
        {**KNOWN, "origin": "https://127.0.0.1:4200"},
        {**KNOWN, "origin": "null"},
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_without_it_or_from_elsewhere_nothing_is(headers: dict[str, str], kind: str) -> None:
    status, _, body = ask(headers, kind=kind)
    assert status == (403 if kind == "http" else 1008)
    assert b"served" not in body
    assert TOKEN.encode() not in body


def test_the_printed_address_leads_to_the_pages_by_a_cookie_of_their_own() -> None:
    status, headers, _ = ask(HERE, "token=secret&tab=runs")
    assert (status, headers["location"]) == (303, "/api/runs?tab=runs")
    cookie = SimpleCookie(headers["set-cookie"])
    [(name, kept)] = cookie.items()
    assert (kept["httponly"], kept["samesite"], kept["path"]) == (True, "Strict", "/")
    assert ask({**HERE, "cookie": f"other=1; {name}={kept.value}"})[::2] == (200, b"served")
    assert ServerGuard(served, "another", 4200).cookie != name, "two repositories' pages on one host"
    assert ask(HERE, "token=wrong")[0] == ask(HERE, "token=secret", method="POST")[0] == 403
    assert ask({"host": "evil.example"}, "token=secret")[0] == 403


def test_the_repository_s_token_is_its_owner_s_alone(tmp_path: Path) -> None:
    first = server_guard.load_or_create_token(tmp_path)
    file = tmp_path / "mlruns/token"
    assert len(first) >= 32
    assert first == server_guard.load_or_create_token(tmp_path) == file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    assert server_guard.load_or_create_token(tmp_path) == first
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("")  # torn
    assert server_guard.load_or_create_token(tmp_path) not in ("", first)
    assert server_guard.load_or_create_token(tmp_path / "other") != server_guard.load_or_create_token(tmp_path)

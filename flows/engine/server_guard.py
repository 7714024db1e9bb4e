"""A guard before MLflow's server, which accepts every caller, while any web page may call loopback.

`python -m flows.engine.server_guard PORT` serves it on 127.0.0.1. A request must have the repository's token, in a
header, in a cookie or once in the address, and must name this host and origin. So no page of another origin, no name
that was rebound to loopback and no other user of the machine can read, write or delete there.
"""

import gc
import hashlib
import hmac
import os
import secrets
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from flows.machine.supervisor import Command

HOST = "127.0.0.1"
HEADER = "X-Posttrain-Token"
REFUSAL = "open the address that `posttrain ui` prints, which has the token"
TOKEN = Path("mlruns/token")
VARIABLE = "POSTTRAIN_TOKEN"
START_SECONDS = 90.0
HEALTH = "/health"  # the path that answers once the server is up

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def load_or_create_token(root: Path, file: Path = TOKEN) -> str:
    """The repository's token, made on first use; only its owner can read the file."""
    path = root / file
    if not path.is_file() or not path.read_text().strip():
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text(secrets.token_urlsafe(32))
        new.replace(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return path.read_text().strip()


def build_server_command(port: int) -> list[str]:
    """The command that starts the guarded server; the token is passed in the environment as VARIABLE."""
    return [sys.executable, "-P", "-m", "flows.engine.server_guard", str(port)]


class GuardedServer:
    """MLflow's server, guarded, over the records that `environ` names; it starts at once and writes to `log`."""

    def __init__(self, root: Path, port: int, environ: Mapping[str, str], log: Path) -> None:
        self.url = f"http://{HOST}:{port}"
        self.log = log
        self.headers = {HEADER: load_or_create_token(root)}
        self._root = root
        self._command_line = build_server_command(port)
        self._health = self.url + HEALTH
        self._environ = {**os.environ, **environ, VARIABLE: self.headers[HEADER]}
        self.start()

    def start(self) -> None:
        """Start the server, or start it again at the same address."""
        self._command = Command([self._command_line], self._root, self._environ, self.log)

    def ended(self, seconds: float = 0) -> bool:
        """Whether the server has ended, or ends within so many seconds."""
        return self._command.wait(seconds) is not None

    def wait_until_ready(self) -> bool:
        """Wait until the server answers; False if it ends, or has not answered after START_SECONDS."""
        request = urllib.request.Request(self._health, headers=self.headers)
        deadline = time.monotonic() + START_SECONDS
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy
        while time.monotonic() < deadline:
            try:
                with direct.open(request, timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                if self.ended(0.1):
                    return False
        return False

    def stop(self) -> None:
        """End the server."""
        self._command.stop()


def find_free_port(usual: int = 0) -> int:
    """The usual port if it is free, else any free port."""
    for wanted in (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, wanted))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port
    raise RuntimeError("no free port on loopback")


class ServerGuard:
    """An ASGI application that passes to `app` only requests with the token, to this host, from its own pages."""

    def __init__(self, app: App, token: str, port: int) -> None:
        self.app = app
        self.token = token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        self.cookie = f"posttrain-{hashlib.sha256(token.encode()).hexdigest()[:8]}"  # a host's ports share its cookies

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        origin = headers.get("origin")
        if headers.get("host") not in self.hosts or origin not in (None, f"http://{headers['host']}"):
            return await send_refusal(scope, send, "this server answers its own pages on loopback only")
        if self._is_valid_token(headers.get(HEADER.lower())) or self._is_valid_token(self._read_token_cookie(headers)):
            return await self.app(scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "GET" and self._is_valid_token(dict(query).get("token")):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            return await self._redirect_with_token_cookie(quote(scope["path"]) + (f"?{rest}" if rest else ""), send)
        return await send_refusal(scope, send, REFUSAL)

    def _is_valid_token(self, candidate: str | None) -> bool:
        return candidate is not None and hmac.compare_digest(candidate.encode(), self.token.encode())

    def _read_token_cookie(self, headers: dict[str, str]) -> str | None:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return None
        return morsel.value if morsel else None

    async def _redirect_with_token_cookie(self, path: str, send: Send) -> None:
        """Keep the token in a cookie, and send the browser to the address without it."""
        cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        location = f"/{path.lstrip('/')}"  # never //another.host
        await send_asgi_response(send, 303, b"", [(b"location", location.encode()), (b"set-cookie", cookie.encode())])


async def send_refusal(scope: Message, send: Send, why: str) -> None:
    """Answer 403, or close a websocket before it is open."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await send_asgi_response(send, 403, f"{why}\n".encode(), [(b"content-type", b"text/plain")])


async def send_asgi_response(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Send a whole answer."""
    length = [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})


def load_mlflow_application() -> App:
    """MLflow's own ASGI application, configured by its environment variables."""
    import uvicorn  # noqa: F401  # MLflow's own checks of host and origin are there only after it
    from mlflow.server.fastapi_app import app

    served: App = app
    return served


def main() -> None:
    """Serve until a signal comes."""
    gc.set_threshold(100_000, 50, 50)  # garbage collection among the imports costs half a second
    port = int(sys.argv[1])
    secret = os.environ.pop(VARIABLE)
    import uvicorn

    guarded = ServerGuard(load_mlflow_application(), secret, port)
    uvicorn.run(guarded, host=HOST, port=port, log_level="error", lifespan="on", access_log=False)


if __name__ == "__main__":
    main()

"""Prefect's and MLflow's servers behind a guard: neither of them asks who calls, and any web page may call loopback.

`python -m flows.engine.guard prefect|mlflow PORT` serves one on 127.0.0.1 to whoever has the repository's token, in a header, a
cookie or once in the address, and calls it by its own name: so no page of another origin, no name that was rebound to
loopback, and no other user of the machine reads, writes or deletes there.
"""

import gc
import hashlib
import hmac
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

HOST = "127.0.0.1"
HEADER = "X-Posttrain-Token"
TOKEN = Path("mlruns/token")
VARIABLE = "POSTTRAIN_TOKEN"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def token(root: Path) -> str:
    """The repository's token, made on first use; only its owner can read the file."""
    path = root / TOKEN
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


def command(server: str, port: int) -> list[str]:
    """The command that serves it; the token is passed in the environment as VARIABLE."""
    return [sys.executable, "-P", "-m", "flows.engine.guard", server, str(port)]


class Guard:
    """An ASGI application that passes on to `app` what comes with the token, for this host and from its own pages."""

    def __init__(self, app: App, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        self.cookie = (
            f"posttrain-{hashlib.sha256(token.encode()).hexdigest()[:8]}"  # cookies of a host are for all its ports
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        origin = headers.get("origin")
        if headers.get("host") not in self.hosts or origin not in (None, f"http://{headers['host']}"):
            return await refuse(scope, send, "this server answers its own pages on loopback only")
        if self._knows(headers.get(HEADER.lower())) or self._knows(self._cookie(headers)):
            return await self.app(scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "GET" and self._knows(dict(query).get("token")):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            return await self._welcome(quote(scope["path"]) + (f"?{rest}" if rest else ""), send)
        return await refuse(scope, send, "open the address that `posttrain ui` prints, which has the token")

    def _knows(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def _cookie(self, headers: dict[str, str]) -> str | None:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return None
        return found.value if found else None

    async def _welcome(self, path: str, send: Send) -> None:
        """Keep the token in a cookie, and send the browser to the address without it."""
        cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        place = f"/{path.lstrip('/')}"  # never //elsewhere
        await respond(send, 303, b"", [(b"location", place.encode()), (b"set-cookie", cookie.encode())])


async def refuse(scope: Message, send: Send, why: str) -> None:
    """Answer 403, or close a websocket before it is open."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await respond(send, 403, f"{why}\n".encode(), [(b"content-type", b"text/plain")])


async def respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """A whole answer."""
    length = [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})


def application(server: str) -> App:
    """The server's own ASGI application, configured by its environment variables."""
    if server == "prefect":
        from prefect.server.api.server import create_app

        app: App = create_app()
    else:
        import uvicorn  # noqa: F401  # MLflow's own checks of host and origin are there only after it
        from mlflow.server.fastapi_app import app
    return app


def main() -> None:
    """Serve until a signal comes."""
    gc.set_threshold(100_000, 50, 50)  # looking for garbage among what they import costs half a second
    server, port = sys.argv[1], int(sys.argv[2])
    secret = os.environ.pop(VARIABLE)
    import uvicorn

    guarded = Guard(application(server), secret, port)
    uvicorn.run(guarded, host=HOST, port=port, log_level="error", lifespan="on", access_log=False)


if __name__ == "__main__":
    main()

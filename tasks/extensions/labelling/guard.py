"""The door of the label page: who may call it, how much a call may bring, and what a browser may do with the answers.

A request must have the token (in the address, from then on in a cookie, or in a header), and must name a host that the
server has, so that no name that was rebound to this machine reaches it; a page of another origin is refused. The token
stays compulsory on loopback, where every program and every page of a browser may call.
"""

import hmac
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

import psutil

HEADER = "x-posttrain-token"
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
EVERYWHERE = ("0.0.0.0", "::")
LARGEST = 2**20  # bytes of a request's body
KEPT_SECONDS = 30 * 24 * 3600  # how long a browser keeps the cookie
REFUSAL = "open the address that `posttrain label` prints, which has the token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # the address has the token
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether a server that binds to `host` is for this machine alone."""
    return host in LOOPBACK or host.startswith("127.")


def list_allowed_hosts(host: str) -> frozenset[str]:
    """The names by which a browser may call a server that binds to `host`."""
    if is_loopback(host):
        return LOOPBACK | {host}
    named = {host, socket.gethostname().lower(), socket.getfqdn().lower()} - {*EVERYWHERE, ""}
    addresses = {
        network_address.address.partition("%")[0] for many in psutil.net_if_addrs().values() for network_address in many
    }
    return LOOPBACK | named | addresses


def list_printed_hosts(host: str) -> list[str]:
    """The names to print for a server that binds to `host`: of a server for everybody, those of this machine in its
    networks.
    """
    if host not in EVERYWHERE:
        return [f"[{host}]" if ":" in host else host]
    names = [
        network_address.address
        for many in psutil.net_if_addrs().values()
        for network_address in many
        if network_address.family == socket.AF_INET
    ]
    return sorted(names, key=is_loopback)


class LabelGuard:
    """An ASGI application that passes to `app` only requests with the token, to one of `hosts`, from its own pages."""

    def __init__(self, app: App, token: str, hosts: frozenset[str]) -> None:
        self.app = app
        self.token = token
        self.hosts = hosts
        self.cookie = f"label-{sha256(token.encode()).hexdigest()[:8]}"  # a host's ports share its cookies

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        guarded = _wrap_send_with_headers(send, HEADERS)
        host = headers.get("host", "")
        origin = headers.get("origin")
        if _strip_port(host) not in self.hosts or origin not in (None, f"http://{host}", f"https://{host}"):
            return await _send_refusal(guarded, 403, "this server answers its own pages only")
        by_address = scope["method"] == "GET" and self._is_valid_token(_get_query_token(scope))
        if not (
            by_address
            or self._is_valid_token(headers.get(HEADER))
            or self._is_valid_token(self._get_cookie_token(headers))
        ):
            return await _send_refusal(guarded, 403, REFUSAL)
        if by_address:
            kept = f"{self.cookie}={self.token}; Path=/; Max-Age={KEPT_SECONDS}; HttpOnly; SameSite=Strict"
            guarded = _wrap_send_with_headers(guarded, {"set-cookie": kept})
        body = await _read_request_body(receive)
        if body is None:
            return await _send_refusal(guarded, 413, f"at most {LARGEST} bytes fit in a request")
        await self.app(scope, _build_replaying_receive(body, receive), guarded)

    def _is_valid_token(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def _get_cookie_token(self, headers: dict[str, str]) -> str | None:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return None
        return cookie.value if cookie else None


def _strip_port(host: str) -> str:
    """A host without its port: a tunnel may have another."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] if ":" in host else host
    return name.lower()


def _get_query_token(scope: Message) -> str | None:
    tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
    return tokens[0] if len(tokens) == 1 else None


async def _read_request_body(receive: Receive) -> bytes | None:
    """The request's body; None if it is too long."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
        if len(body) > LARGEST:
            return None
    return body


def _build_replaying_receive(body: bytes, receive: Receive) -> Receive:
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _wrap_send_with_headers(send: Send, headers: dict[str, str]) -> Send:
    """`send`, with headers added to the beginning of the answer."""
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in encoded}
            others = [(name, value) for name, value in message.get("headers", []) if name.lower() not in names]
            message = {**message, "headers": [*others, *encoded]}
        await send(message)

    return sent


async def _send_refusal(send: Send, status: int, why: str) -> None:
    body = f"{why}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

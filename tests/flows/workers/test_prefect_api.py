"""What a client of Prefect's server says when it cannot be reached: one line, without a password."""

from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from flows.engine import guard
from flows.engine.dvc_repository import PlanError
from flows.workers.prefect_api import Api, Away


def test_a_password_in_the_address_is_in_no_message() -> None:
    with closing(Api("http://ann:s3cret-word@127.0.0.1:9/api", {})) as api:
        assert "s3cret-word" not in api.url
        with pytest.raises(Away) as raised:
            api.flow_run("1")
    assert "127.0.0.1:9" in str(raised.value)
    assert "s3cret-word" not in str(raised.value)


ANSWERS = [
    (503, "locked", r"^Prefect.s server does not answer: http://127.0.0.1:\d+/api \(status 503\)$"),
    (403, guard.REFUSAL, r"/api is the `posttrain ui` of another clone, .* `prefect server start` serves several$"),
    (403, "not you", r"^Prefect's server at http://127.0.0.1:\d+/api refuses GET /health: 403 not you$"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "text", "expected"), ANSWERS)
def test_what_a_server_says_is_one_line(status: int, text: str, expected: str) -> None:
    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        with (
            closing(Api(f"http://127.0.0.1:{server.server_port}/api", {})) as api,
            pytest.raises(PlanError, match=expected),
        ):
            api.check()
        server.shutdown()

"""What a client of Prefect's server says when it cannot be reached: one line, without a password."""

from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

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
    (401, "", r"/api: it asks who this is: set PREFECT_API_AUTH_STRING \(USER:PASSWORD\) or PREFECT_API_KEY$"),
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


HOLDING = {
    "": ({}, {}),
    "pool gpu is paused": ({"is_paused": True}, {}),
    "pool gpu has a concurrency limit of 0": ({"concurrency_limit": 0}, {}),
    "the queue default of pool gpu is paused": ({"concurrency_limit": 3}, {"is_paused": True}),
    "the queue default of pool gpu has a concurrency limit of 0": ({}, {"concurrency_limit": 0}),
}


@pytest.mark.parametrize("said", HOLDING)
def test_why_a_pool_hands_out_nothing(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the forms in which Prefect's API has a work pool and its queues; another queue than the pool's own does not
    count.
    """
    pool, queue = HOLDING[said]
    answers = {
        "/work_pools/gpu": {"id": "1", "default_queue_id": "q", "is_paused": False, "concurrency_limit": None, **pool},
        "/work_pools/gpu/queues/filter": [
            {"id": "p", "name": "other", "is_paused": True, "concurrency_limit": 0},
            {"id": "q", "name": "default", "is_paused": False, "concurrency_limit": None, **queue},
        ],
    }
    with closing(Api("http://127.0.0.1:9/api", {})) as api:
        monkeypatch.setattr(api, "_send_request", lambda _, path, *__, **___: answers[path])
        assert api.held("gpu").startswith(said)
        assert bool(api.held("gpu")) == bool(said)

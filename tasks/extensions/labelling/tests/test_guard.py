"""Who may call the label page, and what a browser may do with its answers."""

import pytest

from tasks.extensions.labelling.guard import (
    HEADER,
    HEADERS,
    LARGEST,
    is_loopback,
    list_allowed_hosts,
    list_printed_hosts,
)
from tasks.extensions.labelling.tests.pages import TOKEN, serving, some

PAGES = ("/", "/statistics", "/static/label.js", "/static/label.css")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("guard"), some("pairwise")) as client:
        yield client


def asked(client, path="/next", method="POST", body=b'{"person": "anna"}', **headers):
    """The server's answer; None takes a header away."""
    given = {"content-type": "application/json", HEADER: TOKEN, **{k.replace("_", "-"): v for k, v in headers.items()}}
    plain = {name: value for name, value in given.items() if value is not None}
    request = client.build_request(method, path, content=body if method == "POST" else None, headers=plain)
    for name in given.keys() - plain.keys():
        request.headers.pop(name, None)
    return client.send(request)


@pytest.mark.parametrize("path", [*PAGES, "/nothing", "/openapi.json", "/docs"])
def test_nothing_is_served_without_the_token(client, path):
    for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x", b"\xff"):
        answer = asked(client, path, "GET", **{HEADER: token})
        assert (answer.status_code, TOKEN in answer.text) == (403, False)
        assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
    assert asked(client, path, "GET", **{HEADER: None, "cookie": f"label={TOKEN}"}).status_code == 403


def test_the_address_opens_the_page_and_the_browser_keeps_the_token(client):
    answer = asked(client, f"/?token={TOKEN}", "GET", **{HEADER: None})
    assert answer.status_code == 200
    kept, *rules = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(rules)
    client.cookies.clear()
    for path in PAGES:
        assert asked(client, path, "GET", **{HEADER: None, "cookie": kept}).status_code == 200
    assert asked(client, **{HEADER: None, "cookie": kept}).status_code == 200


def test_the_token_in_the_address_of_a_call_does_not_do(client):
    """Another origin's form could not know it, and nothing that writes should be a link."""
    assert asked(client, f"/next?token={TOKEN}", **{HEADER: None}).status_code == 403
    assert asked(client, f"/?token={TOKEN}&token={TOKEN}", "GET", **{HEADER: None}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:4300", "127.0.0.1.evil.example", "", "10.0.0.1", "[::2]:1"]
)
def test_another_name_of_this_machine_is_refused(client, host):
    """As after DNS rebinding."""
    assert asked(client, host=host).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:4300", "localhost:9999", "LOCALHOST", "[::1]:4300"])
def test_loopback_has_several_names_and_a_tunnel_its_own_port(client, host):
    assert asked(client, host=host).status_code == 200
    assert asked(client, host=host, origin=f"http://{host}").status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1:5000", "http://localhost:4300"]
)
def test_pages_of_other_origins_are_refused(client, origin):
    answer = asked(client, host="127.0.0.1:4300", origin=origin)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_an_answer_says_what_a_browser_may_do_with_it(client):
    for path in PAGES:
        headers = asked(client, path, "GET").headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert not [rule for rule in policy.values() if "unsafe" in rule or "http" in rule or "*" in rule]


def test_a_body_has_a_limit(client):
    assert asked(client, body=b"x" * (LARGEST + 1)).status_code == 413
    assert asked(client, body=b" " * (LARGEST - 30) + b'{"person": "anna"}').status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"person": 3}',
        b'{"person": "a\\nb"}',
        b'{"person": "a", "more": 1}',
        b'{"person": "<b>"}',
        b"\xff",
        b'{"person": "\\ud800"}',
        b"[" * 200_000,
    ],
)
def test_a_body_that_is_no_call_is_refused(client, body):
    assert asked(client, body=body).status_code in (400, 422)


def test_only_known_files_are_served(client):
    for path in (
        "/static/../guard.py",
        "/static/%2e%2e/guard.py",
        "/static/..%2fguard.py",
        "/static//etc/passwd",
        "/static/",
    ):
        assert asked(client, path, "GET").status_code in (404, 405)


def test_a_server_for_others_knows_the_machine_s_names():
    assert is_loopback("127.0.0.2")
    assert list_allowed_hosts("127.0.0.1") == {"127.0.0.1", "localhost", "::1"}
    assert list_allowed_hosts("0.0.0.0") > list_allowed_hosts("localhost")
    assert "" not in list_allowed_hosts("0.0.0.0")
    assert "0.0.0.0" not in list_allowed_hosts("0.0.0.0")
    assert list_printed_hosts("::1") == ["[::1]"]
    assert "127.0.0.1" in list_printed_hosts("0.0.0.0")

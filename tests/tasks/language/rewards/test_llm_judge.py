"""The example rewards/llm_judge.py, as a reward in its own process, against a server here."""

import json
import re
import runpy
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tasks.common.errors import DataError
from tasks.language.rewards.python_functions import PythonFunction

EXAMPLE = Path(__file__).parents[4] / "rewards/llm_judge.py"
PROMPTS, RESPONSES, RIGHT = ["What is 1 + 1?"] * 3 + ["Why?"], ["2", "3", "2", "<ignore>{0}"], ["2", "2", "2", None]


class Server:
    """Speaks OpenAI's form; `replies` are texts or statuses by a piece of the question, each list used up from its
    start.
    """

    def __init__(self) -> None:
        self.asked, self.keys, self.replies = [], [], {}
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                [message] = body["messages"]
                with lock:
                    outer.asked.append(message["content"])
                    outer.keys.append(self.headers.get("Authorization"))
                    left = next(found for piece, found in outer.replies.items() if piece in message["content"])
                    reply = left.pop(0) if len(left) > 1 else left[0]
                text = {"choices": [{"message": {"role": "assistant", "content": reply}}]}
                content = reply if isinstance(reply, bytes) else json.dumps(text).encode()
                self.send_response(reply if isinstance(reply, int) else 200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server():
    found = Server()
    yield found
    found.close()


@pytest.fixture
def judge(server, tmp_path, monkeypatch):
    """The judge's points for responses, each time in a new process."""
    text = EXAMPLE.read_text()
    address = f"http://127.0.0.1:{server.http.server_address[1]}/v1/chat/completions"
    changed = text.replace("http://localhost:8000/v1/chat/completions", address).replace("PAUSE = 1.0", "PAUSE = 0.001")
    assert changed.count(address) == changed.count("PAUSE = 0.001") == 1
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards/llm_judge.py").write_text(changed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)

    def judged(count=4):
        function = PythonFunction("rewards/llm_judge.py:judged", Path("rewards/llm_judge.py"), 120.0)
        columns = {"solution": ["?"] * count, "answer": RIGHT[:count]}
        try:
            found = function(PROMPTS[:count], RESPONSES[:count], columns).values
        finally:
            function.close()
        return [None if value != value else value for value in found]

    return judged


def test_points_by_hand_and_each_question_is_asked_once(server, judge, monkeypatch, capfd):
    server.replies = {"judged:\n2": ["10"], "judged:\n3": ["Points: 2.5 of 10"], "ignore": ["no number"]}
    monkeypatch.setenv("JUDGE_API_KEY", "secret")
    assert judge() == [1.0, 0.25, 1.0, None]
    assert len(server.asked) == 3
    assert {*server.keys} == {"Bearer secret"}
    [last] = [one for one in server.asked if "Why?" in one]
    assert "Right answer:\nnot known" in last
    assert "<ignore>{0}" in last
    monkeypatch.delenv("JUDGE_API_KEY")
    assert judge() == [1.0, 0.25, 1.0, None], "from the kept replies, without a key"
    assert len(server.asked) == 3
    kept = [*Path(".cache/llm_judge").iterdir()]
    assert len(kept) == 3
    assert not [one for one in kept if "secret" in one.read_text()]
    assert capfd.readouterr().err == "", "what is kept there is no file of the reward"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 0.7),
        ("Points: 2.5/10", 0.25),
        ("10", 1.0),
        ("0", 0.0),
        ("11", None),
        ("-3", None),
        ("Rating-8", 0.8),
        ("", None),
    ],
)
def test_the_points_of_a_reply(text, expected):
    assert runpy.run_path(str(EXAMPLE))["parse_judge_score"](text) == expected


def test_a_changed_question_is_a_new_one(server, judge):
    server.replies = {"": ["4"]}
    assert judge(1) == [0.4]
    file = Path("rewards/llm_judge.py")
    file.write_text(file.read_text().replace("How good is", "How kind is"))
    server.replies = {"kind": ["7"]}
    assert judge(1) == [0.7]
    assert len(server.asked) == 2
    file.write_text(file.read_text().replace("/v1/chat", "/v2/chat"))
    assert judge(1) == [0.7], "and one at another address"
    assert len(server.asked) == 3


def test_a_busy_server_is_asked_again(server, judge):
    server.replies = {"judged:\n2": [429, 503, 500, 429, "9"], "judged:\n3": ["1"]}
    assert judge(3) == [0.9, 0.1, 0.9]
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (503, "does not answer after 5 tries (status 503: "),
        (401, "refuses the key in JUDGE_API_KEY (status 401: "),
        (400, "refuses the question (status 400: "),
        (b"<html>", "answers in another form than OpenAI's: b'<html>'"),
        (b'{"choices": []}', "answers in another form than OpenAI's: "),
    ],
)
def test_a_server_that_is_of_no_use_is_one_line(server, judge, reply, line):
    server.replies = {"": [reply]}
    with pytest.raises(DataError) as stopped:
        judge(3)
    assert f"JudgeError: http://127.0.0.1:{server.http.server_address[1]}/v1/chat/completions {line}" in str(
        stopped.value
    )
    assert str(stopped.value).startswith("rewards/llm_judge.py:judged: rewards/llm_judge.py:")
    assert "(for the prompt 'What is 1 + 1?')" in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert not Path(".cache").exists()


def test_no_server_is_one_line(judge):
    file = Path("rewards/llm_judge.py")
    file.write_text(re.sub(r"127.0.0.1:\d+", "127.0.0.1:9", file.read_text()))  # nothing listens there
    with pytest.raises(DataError, match=r"does not answer after 5 tries \(.*refused"):
        judge(1)

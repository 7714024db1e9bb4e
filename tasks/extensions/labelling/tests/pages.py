"""What the tests of the label page share: items of every mode, a server in this process, and one in a process of its
own.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fastapi.testclient import TestClient

from tasks.extensions.labelling.__main__ import main
from tasks.extensions.labelling.assignment import Assignment, AssignmentSettings
from tasks.extensions.labelling.guard import HEADER, LOOPBACK
from tasks.extensions.labelling.server import build_label_app
from tasks.extensions.labelling.session import Session
from tasks.extensions.labelling.statistics_text import build_statistics_context
from tasks.language.judgements.judgement_log import Writer
from tasks.language.judgements.lines import compute_item_id, parse_line_object, split_steps
from tests.tasks import forks

ROOT = Path(__file__).parents[4]
TOKEN = "the-token-of-the-tests"
COUNTS = {"pairwise": 2, "ranking": 4, "steps": 1, "edit": 2}
QUIET = AssignmentSettings(seed=0, overlap=2, gold=0.0, repeats=0.0, gap=0)


def item(mode, number, texts=None, gold=None, prompt="", history=""):
    """An item of a mode; the answers' sources are secrets that no page may show."""
    texts = texts or [f"answer {number}.{place}\nit is {place}" for place in range(COUNTS[mode])]
    prompt = prompt or f"question {number}"
    answers = [
        {
            "sample": 70000077 + place,
            "source": f"secret-{'ab'[place % 2]}",
            "text": text,
            "ended": True,
            "tokens": [90000019],
        }
        for place, text in enumerate(texts)
    ]
    given = {"kind": "item", "mode": mode, "prompt_id": f"hidden-{number}", "prompt": prompt, "history": history}
    steps = {"steps": split_steps(texts[0])} if mode == "steps" else {}
    return parse_line_object(
        {**given, "item": compute_item_id(mode, prompt, history, texts), "answers": answers, "gold": gold, **steps}
    )


def some(mode, count=6):
    """So many items of a mode."""
    return [item(mode, number) for number in range(count)]


@contextmanager
def serving(folder, items, settings=QUIET, wanted=None):
    """A client of a server over a record in `folder`; opened again it goes on."""
    with Writer(Path(folder) / "people.jsonl") as writer:
        assignment = Assignment(items, settings)
        session = Session(writer, assignment, TOKEN, wanted)
        app = build_label_app(
            session,
            TOKEN,
            LOOPBACK,
            lambda: build_statistics_context(writer.record, assignment, session.compute_pipeline_progress()),
        )
        yield TestClient(app, base_url="http://127.0.0.1:4300", headers={HEADER: TOKEN})


def call(client, path, **body):
    """What the server answers to a page's call."""
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def judge(client, told, value, person="anna", seconds=1.5):
    """Say `value` of the item that a page was told of; the next one."""
    return call(
        client, "/judge", judgement=told["judgement"], item=told["item"], person=person, value=value, seconds=seconds
    )


class Server:
    """`python -m tasks.extensions.labelling serve` in a process of its own, over a file of items; to be killed and
    started again.
    """

    def __init__(self, folder: Path, file: Path, mode: str, port: int, *options: str) -> None:
        self.record, self.port = folder / "judgements" / "people.jsonl", port
        given = {"record": self.record, "file": file, "mode": mode, "port": port, "host": "127.0.0.1", "seed": 0}
        self._command = [sys.executable, "-m", "tasks.extensions.labelling", "serve"]
        self._command += [f"--{name}={value}" for name, value in {**given, "overlap": 2, "repeats": 0}.items()]
        self._command += options
        self.start()

    def start(self, token: str = TOKEN) -> None:
        """Start it, and wait until it can be called."""
        environ = {**os.environ, "POSTTRAIN_LABEL_TOKEN": token, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)
        self._wait(self._process.stdout)

    def _wait(self, stdout: IO[str]) -> None:
        told = ""
        while "Ctrl-C" not in told:
            line = stdout.readline()
            assert line, f"the server has ended: {told}"
            told += line
        self.address = re.search(r"http://\S+", told)[0]

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def interrupt(self) -> str:
        """Ctrl-C; what it says at the end."""
        self._process.send_signal(2)
        said, _ = self._process.communicate(timeout=30)
        assert self._process.returncode == 0
        return said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self.kill()


class ForkedServer(Server):
    """The same command in a child of this process, which has imported what it needs."""

    def start(self, token: str = TOKEN) -> None:
        """Start it, and wait until it can be called."""
        ours, theirs = os.pipe()
        self._child = forks.start(lambda: self._serve(theirs, token))
        os.close(theirs)
        self._stdout = os.fdopen(ours)
        self._wait(self._stdout)

    def _serve(self, stdout: int, token: str) -> None:
        os.environ["POSTTRAIN_LABEL_TOKEN"] = token
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdout = os.fdopen(stdout, "w")
        status = main(self._command[3:])
        sys.stdout.flush()
        os._exit(status)

    def kill(self) -> None:
        """kill -9."""
        os.kill(self._child, signal.SIGKILL)
        forks.ended(self._child)
        self._stdout.close()
        self._child = 0

    def interrupt(self) -> str:
        """Ctrl-C; what it says at the end."""
        os.kill(self._child, signal.SIGINT)
        with self._stdout:
            said = self._stdout.read()
        assert forks.ended(self._child) == 0
        self._child = 0
        return said

    def __exit__(self, *_):
        if self._child:
            self.kill()

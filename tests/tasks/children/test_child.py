"""A child process that answers: replies are matched to questions, and have limits of size and time."""

import os
import sys
from contextlib import closing

import psutil
import pytest

from tasks.children import child
from tasks.children.child import READY, Child, ChildEnded, WrongReply
from tests.tasks import forks

ECHO = """
import json, os, sys, time
def say(**message): os.write(1, json.dumps(message).encode() + b"\\n")
say(call=0)
for line in sys.stdin:
    asked = json.loads(line)
    call = asked["call"]
    {0}
"""


def made(what: str) -> Child:
    """A child that does this with each question."""
    return Child([sys.executable, "-c", ECHO.replace("{0}", what)], os.environ)


def test_replies_belong_to_questions_in_whatever_order_they_come():
    with closing(made("say(call=call, of=asked['of'])")) as answers:
        assert answers.reply(READY) == {"call": 0}
        numbers = [answers.ask({"of": of}) for of in "abc"]
        assert [answers.reply(number)["of"] for number in reversed(numbers)] == ["c", "b", "a"]
        assert answers.alive()


WRONG = {
    "say(call=call), say(call=call)": "no reply to what it was asked",
    "say(call=call - 1)": "no reply to what it was asked",
    "say(call=call + 1)": "no reply to what it was asked",
    "say(call=True)": "no reply to what it was asked",
    "say(call=float(call))": "no reply to what it was asked",
    "say(value=1)": "no reply to what it was asked",
    "os.write(1, b'[]\\n')": r"said '\[\]', which is no reply",
    "os.write(1, b'{}\\n')": r"said '{}', which is no reply",
    "os.write(1, b'\\xff\\xfe\\n')": "no reply to what it was asked",
    "os.write(1, b'[' * 100000 + b'\\n')": r"said '\[\[\[\[.*\.\.\.', which is no reply",
    "os.write(1, b'7' * 100000 + b'\\n')": r"said '7777.*\.\.\.', which is no reply",
    "sys.stdout.write('x' * (2**20 + 1)), sys.stdout.flush()": "said more than 1 MiB at once",
    "say(call=call, text='x' * 2**21)": "said more than 1 MiB at once",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_reply_ends_the_child(what, monkeypatch):
    monkeypatch.setattr(child, "LARGEST", 2**20)
    monkeypatch.setattr(child, "draw_first_call_number", lambda: 1)  # which is also True and 1.0
    answers = made(what)

    def twice() -> None:  # the second reply to one question is read with the next one
        for _ in range(2):
            answers.reply(answers.ask({}))

    with pytest.raises(WrongReply, match=WRONG[what]) as stopped:
        twice()
    assert len(str(stopped.value)) < 200
    assert not answers.alive()


ENDS = {
    "os._exit(3)": r"^ended \(exit status 3\)$",
    "os.kill(os.getpid(), 9)": r"^ended \(signal 9\)$",
    "os.dup2(os.open(os.devnull, os.O_RDWR), 0), os.dup2(0, 1), time.sleep(600)": "^closed its connection$",
    "os.write(1, b'{\"call\": '), time.sleep(600)": "^took longer than 0.2 s$",
    "[(os.write(1, b' '), time.sleep(0.01)) for _ in range(60000)]": "^took longer than 0.2 s$",
    "time.sleep(600)": "^took longer than 0.2 s$",
}


@pytest.mark.parametrize("what", ENDS)
def test_a_child_that_says_nothing_more_is_ended(what, monkeypatch):
    monkeypatch.setattr(child, "GRACE_SECONDS", 0.2 if "closed" in ENDS[what] else 60.0)
    answers = made(what)
    answers.reply(READY)
    with pytest.raises(ChildEnded, match=ENDS[what]):
        answers.reply(answers.ask({}), 0.2 if "took" in ENDS[what] else 60.0)
    assert not answers.alive()
    with pytest.raises(ChildEnded):  # and again
        answers.reply(answers.ask({}))


def test_a_question_that_nobody_reads_does_not_wait_for_ever():
    """It is larger than what the kernel keeps for a process that has stopped reading."""
    answers = Child([sys.executable, "-c", "import time; time.sleep(600)"], os.environ)
    with pytest.raises(ChildEnded, match=r"^took longer than 0.2 s$"):
        answers.reply(answers.ask({"text": "x" * 2**24}, 0.2), 0.2)


def test_what_the_child_started_ends_with_it():
    what = "import subprocess; say(call=call, pid=subprocess.Popen(['sleep', '600']).pid)"
    answers = made(what)
    started = psutil.Process(answers.reply(answers.ask({}))["pid"])
    answers.close()
    forks.wait_for_end([started])

"""Rewards in Python whose processes fork, lie, or are loud: replies are those of their calls, or the stage ends with
one line.
"""

import pytest

from tasks.children import child
from tasks.common.errors import DataError
from tests.tasks.language.rewards.functions import PROMPTS, RESPONSES, values

DRAWN = child.draw_first_call_number


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are numbered from 1 on, so that what is said here can repeat their numbers."""
    monkeypatch.setattr(child, "draw_first_call_number", lambda: 1)


LENGTHS = "return [len(one) for one in responses]"
FORKS = {  # what is done in each call, in which the answers of the forks arrive at the same time as those of the call
    "os.fork": "import os\ndef f(responses):\n os.fork(); " + LENGTHS,
    "a fork that answers first": "import os\ndef f(responses):\n if os.fork(): time.sleep(0.05)\n " + LENGTHS,
    "a fork of a fork": "import os\ndef f(responses):\n os.fork(), os.fork()\n " + LENGTHS,
    "a fork that Python does not know of": "import ctypes\ndef f(responses):\n ctypes.CDLL(None).fork(); " + LENGTHS,
    "a fork that raises": "import os\ndef f(responses):\n assert os.fork(), 'in the fork'\n " + LENGTHS,
    "a fork at import": "import os\nos.fork()\ndef f(responses): " + LENGTHS,
    "a pool": (
        "from multiprocessing import get_context\n"
        "def f(responses):\n with get_context('fork').Pool(2) as pool: return pool.map(len, responses)"
    ),
    "a thread": "import threading\ndef f(responses):\n threading.Thread(target=print, args=['{}']).start(); " + LENGTHS,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", FORKS)
def test_replies_are_those_of_their_calls(make, how):
    function = make("import time\n" + FORKS[how])
    for sizes in ([1, 2, 3], [5, 0], [7, 1, 4], [9], [2, 2, 8]):
        assert values(function, ["x" * size for size in sizes]) == sizes, how


def socket_of(text):
    """A function that does this with `line`, the descriptor of its connection."""
    found = "import os, stat\ndef f(responses):\n line = max(n for n in range(3, 64) if is_socket(n))\n "
    open_one = "def is_socket(n):\n try: return stat.S_ISSOCK(os.fstat(n).st_mode)\n except OSError: return False\n"
    return open_one + found + text + "\n " + LENGTHS


LIES = {
    r"os.write(line, b'[]\n')": r"^rewards/mine.py:f: its process said '\[\]', which is no reply to what it was asked$",
    r"os.write(line, b'{}\n')": "^rewards/mine.py:f: its process said '{}', which is no reply",
    r"os.write(line, bytes(range(256)) + b'\n')": "^rewards/mine.py:f: its process said '.*', which is no reply",
    r"""[os.write(line, b'{"call": %d, "values": [1, 2, 3], "imported": [], "read": []}\n' % n) for n in range(9)]""": (
        "which is no reply to what it was asked$"
    ),
    r"""os.write(line, b'{"call": 1, "values": [1, 2], "imported": [], "read": []}\n')""": "was asked for 3 rewards and said something",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "values": [1, NaN, 3], "imported": [], "read": []}\n')""": "was asked for 3 rewards and said",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "values": [1, true, 3], "imported": [], "read": []}\n')""": "was asked for 3 rewards and said",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "values": [1, 1e999, 3], "imported": [], "read": []}\n')""": "was asked for 3 rewards and said",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "values": "123", "imported": [], "read": []}\n')""": "was asked for 3 rewards and said something",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "error": 7, "imported": [], "read": []}\n')""": "was asked for 3 rewards and said something else",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "error": "no", "at": 3, "imported": [], "read": []}\n')""": "was asked for 3 rewards and said",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "values": [1, 2, 3], "imported": 1, "read": []}\n')""": "was asked for 3 rewards and said",  # noqa: E501
    r"""os.write(line, b'{"call": 1, "values": [1, 2, 3]}\n')""": "was asked for 3 rewards and said something else",
    r"[os.write(line, b'x' * 2**20) for n in range(20)]": r"its process said more than 16 MiB at once$",
}


@pytest.mark.parametrize("how", LIES)
def test_what_is_no_reply_ends_the_stage_with_one_line(make, how):
    function = make(socket_of(f"import time; {how}; time.sleep(60)"))
    with pytest.raises(DataError, match=LIES[how]) as stopped:
        values(function)
    assert "\n" not in str(stopped.value)
    assert len(str(stopped.value)) < 300
    assert function.worker is None


def test_a_reply_too_many_is_no_reply_to_the_next_call(make):
    twice = """os.write(line, b'{"call": 1, "values": [9, 9, 9], "imported": [], "read": []}\\n')"""
    function = make(socket_of(f"if responses == ['a', 'b', 'c']: {twice}"))

    def calls() -> None:
        """The second reply is read with the first, or with the next call."""
        assert values(function, ["a", "b", "c"]) == [9, 9, 9], "whatever the function says of its own call"
        values(function, ["d", "ee", "fff"])

    with pytest.raises(DataError, match=r"which is no reply to what it was asked$"):
        calls()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (r"os.write(line, b'\x7f\xff\xff\xff')", "took longer than 0.3 s"),
        ("os.closerange(3, 64)", r"ended (exit status 1)"),
        ("os.dup2(2, line)", r"took longer than 0.3 s"),
    ],
)
def test_a_reply_that_does_not_come_whole_is_waited_for_no_longer_than_a_call(make, capfd, how, said):
    """Also a header of multiprocessing that announces 2 GB."""
    function = make(
        socket_of(how + "\n " + "import time\n time.sleep(60)" * ("took" in said)),
        seconds=0.3 if "took" in said else 60.0,
    )
    assert function(PROMPTS[:1], RESPONSES[:1], {}).failed == [True]
    assert f"the call {said} for the prompt 'one?'; it has no reward" in capfd.readouterr().err


def test_a_function_does_not_know_the_number_of_its_call(make, monkeypatch):
    """Otherwise a thread that an earlier call has left could answer a later one."""
    monkeypatch.setattr(child, "draw_first_call_number", DRAWN)
    forged = r"""os.write(line, b'{"call": 1, "values": [7, 7, 7], "imported": [], "read": []}\n')"""
    function = make(socket_of(forged))
    with pytest.raises(DataError, match=r"which is no reply to what it was asked$"):
        values(function)


def test_no_program_that_the_function_starts_has_its_connection(make):
    text = (
        "import subprocess\ndef f(responses): return [subprocess.call('echo {} >&%d' % n, shell=True, "
        "close_fds=False) for n in (3, 4, 5)]"
    )
    function = make(text)
    assert 0 not in values(function) or values(function) == [values(function)[0]] * 3


LOUD = {
    "fail(ValueError('x' * 3 * 10**7))": "rewards/mine.py:4: ValueError: xxx",
    "fail(ValueError('\\x1b[31m\\udcff'))": r"rewards/mine.py:4: ValueError: \x1b[31m\udcff",
    "fail(Silent())": "rewards/mine.py:4: Silent: <no text: ZeroDivisionError> (for",
    "fail(type('x' * 10**6, (Exception,), {})())": "rewards/mine.py:4: xxx",
    "['x' * 3 * 10**7] * 3": "expected a finite number or None, got 'xxx",
    "[10**5000] * 3": "expected a finite number or None, got <no text: ValueError> (int)",
    "(n for n in (1, 2, 3))": "expected a list of 3 numbers or None, one for each response; got <generator",
    "numpy.ones((3, 2))": "expected a finite number or None, got [1.0, 1.0] (list)",
    "numpy.array([1, 2, numpy.nan])": "expected a finite number or None, got nan (float)",
}


def test_what_a_function_says_of_itself_is_cut(make):
    """All by one process, which does what the first response says."""
    function = make(
        "class Silent(Exception):\n def __str__(self): return 1 / 0\n"
        "def fail(error):\n raise error\n"
        "import numpy\ndef f(responses): return eval(responses[0])"
    )
    for returned, line in LOUD.items():
        with pytest.raises(DataError) as stopped:
            values(function, [returned, "", ""])
        assert str(stopped.value).startswith(f"rewards/mine.py:f: {line}"), returned
        assert len(str(stopped.value)) < 500, returned
        assert "\n" not in str(stopped.value), returned

"""Hostile programs do no harm and earn nothing, and outputs are compared as people would."""

import math
import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from tasks.language.rewards.code_tests import CodeJudge, build_test_job
from tasks.language.rewards.code_worker import is_same_output

TESTS = {"tests": ["assert f(20) == 6765"]}
PAIRS = {"inputs": ["20"], "outputs": ["6765"]}
RIGHT = "def f(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
RIGHT_BOTH = RIGHT + "if __name__ == '__main__':\n    print(f(int(input())))\n"


@pytest.fixture(scope="module")
def judge():
    with CodeJudge(workers=1, seconds=1) as judge:
        yield judge


def verdicts(judge, source):
    """Of the program tested by code, and by what it prints."""
    return judge([build_test_job("", TESTS, source), build_test_job("", PAIRS, source)])


@pytest.fixture(autouse=True)
def _the_judge_goes_on(judge):
    """Behind every test: a right program is still right, and no process is left over."""
    yield
    assert verdicts(judge, RIGHT_BOTH) == [1, 1]
    [examiner] = [child for child in psutil.Process().children() if "code_worker" in " ".join(child.cmdline())]
    assert len(examiner.children(recursive=True)) == 1  # its runner


def test_what_the_machine_has_ended_nobody_has_judged(judge, capsys):
    """A program that takes too long is wrong; a process of ours that is no more, for want of memory say, says nothing
    of a program.
    """
    [examiner] = [child for child in psutil.Process().children() if "code_worker" in " ".join(child.cmdline())]
    examiner.kill()
    [found] = judge([build_test_job("", {"inputs": [""], "outputs": ["1"]}, "print(1)")])
    assert math.isnan(found)
    assert "the process that judges programs has ended (exit -9)" in capsys.readouterr().err


# Each ends in one second of processor time, or at once.
HOSTILE = {
    "fork bomb": "import os\nwhile True: os.fork()",
    "threads": "import threading\nwhile True: threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "10 GB": "x = bytearray(10**10)",
    "prints for ever": "while True: print('6765' * 1000)",
    "writes to whom it can": "import os\nfor d in range(16):\n    try: os.write(d, b'right\\n')\n    except "
                             "OSError: pass",
    "ends well": "import sys\nsys.exit(0)",
    "ends at once": "import os\nos._exit(0)",
    "claims to pass": "print('right')\nprint('1')\nprint('passed')\nimport os\nos._exit(0)",
    "ends when called": "import os\ndef f(n): os._exit(0)",
    "raises SystemExit": "def f(n): raise SystemExit(0)",
    "always equal": "class A(int):\n    def __eq__(self, other): return True\n    __hash__ = "
                    "None\ndef f(n): return A()",
    "an equal object": "class A:\n    def __eq__(self, other): return True\ndef f(n): return A()",
    "no assertions": "import builtins\nbuiltins.AssertionError = type('E', (Exception,), {})\nimport "
                     "sys\nsys.excepthook = print\ndef f(n): pass",
    "patched JSON": "import json\njson.loads = lambda *a: {'do': 'name', 'name': 'f'}\njson.dumps = lambda *a: "
                    "'{\"value\": true}'\ndef f(n): pass",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)",
    "kills all": "import os\nfor p in range(2, 99999):\n    try: os.kill(p, 9)\n    except OSError: pass",
    "a session": "import os\nos.setsid()\nos.fork()",
    "another program": "import subprocess\nsubprocess.Popen(['sleep', '99'])",
    "crashes": "import ctypes\nctypes.string_at(0)",
    "sleeps": "import time\ntime.sleep(99)",
    "traces": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(print)",
    "closes all": "import os\nos.closerange(0, 99)\ndef f(n): return 6765",
    "deep answer": "def f(n):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "cyclic answer": "def f(n):\n    x = []\n    x.append(x)\n    return x",
    "a megabyte": f"x = '{'a' * 10**6}'",
    "brackets": "(" * 10**6,
    "null": "x = 1\0",
    "surrogate": "x = '\ud800'\nprint(x)",
    "no Python": "Sorry, I cannot.",
    "nothing": "",
}  # fmt: skip


SLOWER = {
    "endless": "while True: pass",
    "forks in spite of errors": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "10 GB by and by": "x = []\nwhile True: x.append(bytearray(10**6))",
    "writes for ever": "import os\nwhile True: os.write(1, b'6765' * 1000)",
    "ignores signals": "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    "
                       "except (OSError, ValueError): pass\nwhile True: pass",
    "more time": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))\nwhile True: pass",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1)\nf(0)",
    "many digits": "def f(n): return 10 ** (10 ** 8)",
    "writes to all": "import os\nwhile True:\n    for d in range(16):\n        try: os.write(d, b'right\\n1')\n    "
                     "    except OSError: pass",
    "long answer": "def f(n): return 'x' * 10**8",
}  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [*HOSTILE.values(), *(pytest.param(source, marks=pytest.mark.slow) for source in SLOWER.values())],
    ids=[*HOSTILE, *SLOWER],
)
def test_a_hostile_program_earns_nothing(judge, source):
    assert verdicts(judge, source) == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "source"),
    [
        (TESTS, "import threading\nthreading.Event().wait()"),
        (TESTS, "import threading\ndef f(n): threading.Event().wait()"),
        (PAIRS, "import threading\nwhile True: threading.Thread(target=threading.Event().wait).start()"),
    ],
)
def test_a_program_that_waits_is_ended(judge, tests, source):
    """For what never comes: no processor time is used, so it takes the limit of real time."""
    assert judge([build_test_job("", tests, source)]) == [0]


def test_a_program_reads_and_writes_no_file(judge, tmp_path):
    (tmp_path / "answer.txt").write_text("6765")
    places = [
        tmp_path / "answer.txt",
        Path(__file__),
        Path.home() / ".ssh/id_rsa",
        "/etc/passwd",
        "/proc/self/mem",
        "/dev/shm/x",
        "/tmp/x",
    ]
    tried = "def refused(act):\n    try: act()\n    except OSError: return True\n"
    for path in map(str, places):
        for way in (
            "open({p!r})",
            "open({p!r}, 'w')",
            "os.open({p!r}, os.O_RDONLY)",
            "os.remove({p!r})",
            "os.chmod({p!r}, 0)",
            "os.symlink('/', {p!r})",
            "os.mkdir({p!r})",
            "os.truncate({p!r}, 0)",
        ):
            tried += f"assert refused(lambda: {way.format(p=path)})\n"
    assert verdicts(judge, "import os\n" + tried + RIGHT_BOTH) == [1, 1]
    assert (tmp_path / "answer.txt").read_text() == "6765"
    assert [*tmp_path.iterdir()] == [tmp_path / "answer.txt"]


def test_tests_are_locked_in_too_and_draws_are_the_same_in_each_run(judge):
    """Tests come from a data set, which somebody else made."""
    assert judge([build_test_job("", {"tests": ["assert open('/etc/passwd') and f(0) == 0"]}, RIGHT)]) == [0]
    draws = "import random\ndef f(): return random.random()\nif __name__ == '__main__':\n    print(f())\n"
    first = "0.8444218515250481"  # of Python's generator behind seed(0)
    forms = {"tests": [f"assert f() == {first}"]}, {"inputs": [""], "outputs": [first]}
    assert judge([build_test_job("", form, draws) for form in forms]) == [1, 1]


def test_a_program_reaches_no_network(judge):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        source = f"import socket\nsocket.create_connection({server.getsockname()})\n"
        assert verdicts(judge, source + RIGHT_BOTH) == [0, 0]
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_program_cannot_find_out_what_is_expected(judge):
    """It looks through all that its process has in memory, also of jobs before; the output is right if it finds the
    text.
    """
    secret = "a text that stands " + "nowhere else"
    look = (
        "import gc, sys\nfound = [x for x in gc.get_objects() if isinstance(x, (dict, list, tuple))]\nfound = "
        "[y for x in found for y in (x.values() if isinstance(x, dict) else x) if isinstance(y, str)]\n"
    )
    look += "match = [x for x in found if 'stands nowhere' in x and len(x) < 99]\n"
    columns = {"inputs": ["?"], "outputs": [secret]}, {"tests": [f"assert f() == {secret!r}"]}
    for form, use in zip(columns, ("print(*match)", "def f(): return match[0]"), strict=True):
        right = f"print({secret!r})" if "inputs" in form else f"def f(): return {secret!r}"
        assert judge([build_test_job("", form, right), build_test_job("", form, look + use)]) == [1, 0]


def test_tests_use_their_own_builtins_and_modules(judge):
    """Each test would pass if the name in it were the program's."""
    lies = (
        "import math\nclass sys: maxsize = 0\nset = sorted = len = abs = lambda *a: 0\nisinstance = "
        "math.isclose = lambda *a, **b: True\n"
    )
    for test in (
        "assert set(f(3)) == set([1])",
        "assert len(f(3)) == len('abc')",
        "assert abs(f(3) - 7) < 1e-6",
        "assert isinstance(f(3), str)",
        "assert math.isclose(f(3), 7)",
        "import math\nassert math.isclose(f(3), 7)",
        "assert f(3) == sys.maxsize",
    ):
        assert judge([build_test_job("", {"tests": [test]}, lies + "def f(n): return 0")]) == [0]
    assert judge([build_test_job("", {"tests": ["assert sum(2, 3) == 6"]}, "def sum(a, b): return a * b")]) == [1]


def test_a_program_s_memory_is_limited_and_its_input_takes_none(judge):
    tried = "import os\ntry:\n    {}\n    raise SystemExit(1)\nexcept {}: pass\n"
    assert verdicts(judge, tried.format("bytearray(3 * 2**30)", "MemoryError") + RIGHT_BOTH) == [1, 1]
    assert judge([build_test_job("", PAIRS, tried.format("os.write(0, b'x')", "OSError") + RIGHT_BOTH)]) == [1]


def test_what_a_program_prints_is_not_kept_for_ever(judge):
    assert judge([build_test_job("", PAIRS, "while True: print('6765' * 10**5)")]) == [0]
    [examiner] = [child for child in psutil.Process().children() if "code_worker" in " ".join(child.cmdline())]
    [most] = [
        line for line in Path(f"/proc/{examiner.pid}/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    assert int(most.split()[1]) < 200_000, "kB at the worst"


def test_a_program_may_have_some_threads_but_not_hundreds(judge):
    start = (
        "import threading, time\nthreading.stack_size(65536)\ngo = threading.Event()\nfor _ in range({}):\n    "
        "threading.Thread(target=go.wait).start()\n"
    )
    start += "while time.process_time() < {}: pass\ngo.set()\n"
    assert verdicts(judge, start.format(20, 0.05) + RIGHT_BOTH) == [1, 1]
    assert verdicts(judge, start.format(200, 0.2) + RIGHT_BOTH) == [0, 0]


def test_a_program_that_takes_too_long_or_fails_at_last_is_wrong(judge):
    spend = "import time\nwhile time.process_time() < {}: pass\n"
    assert verdicts(judge, spend.format(0.1) + RIGHT_BOTH) == [1, 1]
    assert judge([build_test_job("", PAIRS, spend.format(2.5) + RIGHT_BOTH)]) == [
        0
    ]  # "prints for ever" is the other form
    assert verdicts(judge, RIGHT_BOTH + "    raise SystemExit(0)") == [1, 1]
    assert verdicts(judge, RIGHT_BOTH + "    raise SystemExit(1)") == [1, 0]
    assert verdicts(judge, RIGHT_BOTH + "    1 / 0") == [1, 0]


def test_ways_of_right_programs(judge):
    """What a program may do: change an argument, raise, yield, use classes, threads, modules, dataclasses, big
    numbers.
    """
    cases = {
        "x = [3, 1]\nf(x)\nassert x == [1, 3]": "def f(x): x.sort()",
        "try:\n    f(0)\n    assert False\nexcept ZeroDivisionError: pass": "def f(x): return 1 / x",
        "assert list(f(3)) == [0, 1, 2]": "def f(n): yield from range(n)",
        "g = f(9)\nassert next(g) == 0 and next(g) == 1": "import itertools\ndef f(n): return itertools.count()",
        "assert Point(1, 2).norm() == 5": "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: "
                                          "'int'\n    y: int\n    def norm(self): return self.x + 2 * self.y",
        "assert f([Pair(1, 2), Pair(3, 4)]) == 10": "class Pair:\n    def __init__(self, a, b): self.a, self.b = "
                                                    "a, b\ndef f(ps): return sum(p.a + p.b for p in ps)",
        "assert f('é\\n') == ('é\\n', {1: [2.5, None]}, {3}, b'x', 1j, float('inf'))": "def f(s): return s, {1: [2.5, None]}, {3}, b'x', 1j, float('inf')",  # noqa: E501
        "assert f(5000) == 10 ** 5000": "def f(n): return 10 ** n",
        "from math import *\nassert f(9) == sqrt(9)": "def f(n): return 3",
        "assert f(3) == {'a': 1}": "from collections import Counter\ndef f(n): return Counter('a')",
        "assert f() == 5050": "import threading\ndef f():\n    out = []\n    t = threading.Thread(target=lambda: "
                              "out.append(sum(range(101))))\n    t.start(); t.join()\n    return out[0]",
        "assert f(a=1, b=[2]) == [2, 1]": "def f(*, a, b): return [*b, a]",
        "assert f('2024-02-29') == 60": "from datetime import datetime\ndef f(s): return datetime.strptime(s, "
                                        "'%Y-%m-%d').timetuple().tm_yday",
    }  # fmt: skip
    assert judge([build_test_job("", {"tests": [test]}, source) for test, source in cases.items()]) == [1] * len(cases)


@pytest.mark.slow
def test_a_verdict_is_the_same_on_a_busy_machine(judge):
    """The limit is of processor time: a program that needs half of it passes among others that want the processors."""
    needs = "import time\nwhile time.process_time() < 0.3: pass\n" + RIGHT_BOTH
    busy = [psutil.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert verdicts(judge, needs) == [1, 1]
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("1 2\n3", "1 2\n3\n", True),
        ("1  2 \n3\n\n\n", "1 2\n3", True),
        ("\n1", "1", False),
        ("1\n2", "1 2", False),
        ("0.333333", "0.3333333333", True),
        ("0.3333", "0.3333333333", False),
        ("1e-7", "0.0", True),
        ("2000000", "2000000.5", True),
        ("3.0", "3", False),
        ("3", "3.0", True),
        ("003", "3", False),
        ("nan", "0.0", False),
        ("1.2.3", "1.2.3", True),
        ("1.2.4", "1.2.3", False),
        ("YES", "yes", False),
        ("", "", True),
        (None, "", False),
    ],
)
def test_outputs_are_compared_by_lines_and_words(found, expected, same):
    assert is_same_output(found, expected) == same

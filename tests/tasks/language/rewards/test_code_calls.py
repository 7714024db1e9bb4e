"""Calls into a program in another process: values come back equal, of the same types, and nothing else comes back."""

import itertools
import json
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.rewards.code_calls import Channel, Closed, Program, Remote, pack_value, serve_requests, unpack_value
from tasks.language.rewards.code_program import import_modules_and_list_names

hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.complex_numbers(allow_nan=False),  # noqa: E501
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
plain = st.recursive(
    hashable | st.builds(range, st.integers(-9, 9), st.integers(-9, 9)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hashable, inner, max_size=3) | st.sets(hashable, max_size=3),  # noqa: E501
    max_leaves=8,
)  # fmt: skip


def same(one, other):
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, list | tuple):
        return all(map(same, one, other))
    return not isinstance(one, dict) or all(same(one[key], other[key]) for key in one)


@given(plain)
@settings(max_examples=25)
def test_plain_data_comes_back_as_it_was(value):
    assert same(unpack_value(json.loads(json.dumps(pack_value(value, None))), None), value)


def grow(items):
    items.append({"new": [0]})
    return len(items)


def fail(kind):
    raise kind("so it is")


class Pair:
    def __init__(self, first):
        self.first = first

    def __eq__(self, other):
        return True

    __hash__ = None

    def shift(self, by):
        return Pair(self.first + by)


PROGRAM = {
    "double": lambda x: x * 2,
    "grow": grow,
    "Pair": Pair,
    "firsts": lambda pairs: [pair.first for pair in pairs],
    "count": lambda start: itertools.count(start),
    "three": lambda: (n for n in range(3)),
    "error": lambda: 1 / 0,
    "leave": lambda: fail(SystemExit),
    "stop": lambda n: fail(StopIteration),
    "own": lambda: fail(type("Mine", (Exception,), {})),
    "seven": 7,
}


@pytest.fixture
def program():
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve_requests, args=(Channel(theirs.fileno()), PROGRAM))
    thread.start()
    channel = Channel(ours.fileno())
    yield lambda name: Program(channel).ask({"do": "name", "name": name})
    ours.shutdown(socket.SHUT_RDWR)
    thread.join()
    for side in (ours, theirs):
        side.close()


def test_calls(program):
    assert program("double")((1, "a")) == (1, "a", 1, "a")
    assert program("seven") == 7
    assert list(program("three")()) == [0, 1, 2]
    assert list(itertools.islice(program("count")(5), 3)) == [5, 6, 7]
    counted = program("count")(1)
    assert (next(counted), next(counted)) == (1, 2)


def test_an_argument_is_changed_as_the_program_changed_it(program):
    items = [1]
    assert program("grow")(items) == 2
    assert items == [1, {"new": [0]}]


def test_objects_stay_where_they_are_and_equal_themselves_alone(program):
    pair = program("Pair")(3)
    assert isinstance(pair, Remote)
    assert pair.first == 3
    assert pair.shift(4).first == 7
    assert program("firsts")([pair, pair.shift(1)]) == [3, 4]
    assert pair == pair
    assert pair != program("Pair")(3), "its own == says yes to all"
    assert pair != 3


def test_errors_of_the_program_are_raised(program):
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        program("error")()
    with pytest.raises(RuntimeError, match="SystemExit: so it is"):
        program("leave")()
    with pytest.raises(RuntimeError, match="StopIteration: so it is"):
        all(map(program("stop"), [1]))  # which StopIteration would end early, and as true
    with pytest.raises(RuntimeError, match="Mine: so it is"):
        program("own")()
    with pytest.raises(KeyError):
        program("missing")
    with pytest.raises(TypeError, match="a test hands a function to the program"):
        program("double")(lambda: 1)


@pytest.mark.parametrize(
    "reply",
    [b"", b"\n", b"true\n", b"{}\n", b'{"value": {"code": []}}\n', b'{"value": {"list": 3}}\n', b'{"value": {"set": [{"list": []}]}}\n', b'{"value": {"a": 1, "b": 2}}\n', b'{"raised": 3}\n', b"[" * 10**5 + b"\n", b'{"value": {"handle": "x"}}\n', b"\xff\n"],  # noqa: E501
)  # fmt: skip
def test_what_is_no_message_ends_the_tests_process(reply, monkeypatch):
    """No test can catch it: the process ends, which is a failure."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(reply)
        theirs.shutdown(socket.SHUT_WR)
        monkeypatch.setattr("os._exit", lambda status: pytest.exit(f"status {status}", 99))
        with pytest.raises(pytest.exit.Exception, match="status 1"):
            Program(Channel(ours.fileno())).ask({"do": "name", "name": "f"})


def test_a_closed_channel_has_no_message():
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(Closed):
        Channel(ours.fileno()).receive()


@pytest.mark.parametrize(
    ("tests", "entry", "names"),
    [
        (["assert f(1) == 2"], None, ["f"]),
        (["assert set(f(1)) == {g(len('a'))}"], None, ["f", "g"]),
        (["assert sum(1, 2) == 3"], None, ["sum"]),
        (["import math\nassert math.isclose(f(1), 2)"], None, ["f"]),
        (["assert math.isclose(f(1), 2)"], None, ["f"]),
        (["from x import y as z\nassert z(f)"], None, ["f"]),
        (["x = [i for i in f(1)]\nassert x == []"], None, ["f"]),
        (["assert statistics(1) == 2"], None, ["statistics"]),
        (["def check(candidate):\n    assert candidate(1) == helper(2)"], "f", ["helper", "f"]),
        (["def check(c):\n    assert c(1) == known(2)"], "f", ["f"]),
        (["def check(c):\n    assert c(f)"], "f", ["f"]),
    ],
)
def test_names_that_the_program_has_to_define(tests, entry, names):
    namespace = {"known": None}
    assert import_modules_and_list_names(tests, namespace, entry) == names

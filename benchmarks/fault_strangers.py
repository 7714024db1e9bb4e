"""Code and expressions of strangers: rewards that fork, lie, end or are loud, at their import, in a call and in a
thread; patterns that match for ever.
"""

import math
import os
from collections.abc import Iterator
from contextlib import chdir, closing
from pathlib import Path

from tasks.children import patterns
from tasks.common.errors import StageError
from tasks.language.rewards.python_functions import PythonFunction

SIZES = ([3, 1, 4, 1, 5], [9, 2, 6, 5], [3, 5, 8])  # of the responses of each call
LONGEST = 2100  # characters of a line
MOMENTS = {  # where an act stands in a reward's file
    "at its import": "{act}\ndef f(responses):\n return [len(one) for one in responses]",
    "in a call": "def f(responses):\n {act}\n return [len(one) for one in responses]",
    "after a call": (
        "def f(responses):\n threading.Thread(target=late).start()\n return [len(one) for one in responses]\ndef "
        "late(): {act}"
    ),
}
ACTS = (
    *("os.fork()", "os.fork(), os.fork()", "ctypes.CDLL(None).fork()", "os.fork() or sys.exit(1)"),
    *("os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit('no')", "raise KeyboardInterrupt", "os.abort()"),
    *(
        "say(b'[]\\n')",
        "say(b'{}\\n')",
        "say(b'\\x7f\\xff\\xff\\xff')",
        "say(b'\\xff\\n')",
        "say(b'[' * 10**5 + b'\\n')",
    ),
    *("say(b'x' * 2**20 * 20)", *(f"say(forged({call}))" for call in range(4))),
    *("os.closerange(3, 64)", "os.close(0)", "os.close(1)", "sys.stdout.close()", "os.write(1, bytes(range(256)))"),
    *(
        "print('x' * 10**6)",
        "print('\\x1b[31m')",
        "raise ValueError('x' * 3 * 10**7)",
        "raise ValueError('a\\x1b\\nb')",
    ),
)
FILE = """
import ctypes, os, stat, sys, threading
def sockets():
    for n in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(n).st_mode): yield n
        except OSError: pass
def say(text):
    for n in sockets(): os.write(n, text)
def forged(call):
    return b'{"call": %d, "values": [7, 7, 7], "imported": [], "read": []}\\n' % call
"""
NAMES = tuple(f"model.layers.{n}.self_attn.{part}_proj" for n in range(32) for part in "qkvo")
ATOMS = (".", "(?:.|[a-z])")
REPEATS = ("+", "*")
ENDS = ("!", "")


def iterate_stranger_trials() -> Iterator[tuple[str, str, str]]:
    """The kind of a trial, `reward` or `pattern`, where an act stands or nothing, and the act or the pattern."""
    yield from (("reward", moment, act) for moment in MOMENTS for act in ACTS)
    for atom in ATOMS:
        for inner in REPEATS:
            yield from (("pattern", "", f"({atom}{inner}){outer}{end}") for outer in REPEATS for end in ENDS)


def find_stranger_faults(scratch: Path, kind: str, moment: str, text: str) -> list[str]:
    """What is wrong with the response to a stranger's text; `scratch` is an empty folder."""
    if kind == "pattern":
        return _find_line_faults(
            patterns.find_pattern_fault({"target_modules": [text]}, {"target_modules": "{}"}, NAMES)
        )
    (scratch / "rewards").mkdir(exist_ok=True)
    (scratch / "rewards/mine.py").write_text(FILE + MOMENTS[moment].replace("{act}", text))
    with chdir(scratch):
        function = PythonFunction("rewards/mine.py:f", Path("rewards/mine.py"), 60.0)
        with closing(function):
            return [fault for sizes in SIZES for fault in _find_call_faults(function, sizes)]


def _find_call_faults(function: PythonFunction, sizes: list[int]) -> list[str]:
    """Each response has the reward of this call, or none since its process ended, or a line says what is wrong."""
    try:
        judged = function(["?"] * len(sizes), ["x" * size for size in sizes], {})
    except StageError as error:
        return _find_line_faults(str(error))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:200]]
    right = [
        value == size or (failed and math.isnan(value))
        for value, failed, size in zip(judged.values, judged.failed, sizes, strict=True)
    ]
    return [] if all(right) else [f"responses of {sizes} letters got {judged.values}"]


def _find_line_faults(line: str) -> list[str]:
    return (
        []
        if line.isprintable() and len(line) <= LONGEST and os.linesep not in line
        else [f"no short line: {line[:200]!r}"]
    )

"""What a stage's command does with its deps: which are modules that it runs, and which are data that it reads."""

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

Command = str | Sequence[str]
PYTHON = re.compile(r"(.*/)?python[\d.]*")
FLAGS = re.compile(r"-[BEIOPSbqsuv]+")
SHELL = frozenset(";|&<>$`*?\\\n")  # a shell does more with a line that has one of these
DATA = "data/"  # what lies there is read and not run, whatever its name


def runs_module(cmd: Command, deps: Collection[str]) -> bool:
    """Whether the command is plainly `python MODULE.py ...` or `python -m MODULE ...`, of a module that is among the deps.

    Of another program, such as doctest or a shell, nobody knows what it reads.
    """
    started = [_module(line) for line in _lines(cmd)]
    return bool(started) and all(not of.isdisjoint(deps) for of in started)


def is_code(path: str, cmd: Command) -> bool:
    """Whether a dep is a module that may be run, and no data of the command: not below data/, nor given to it as an argument."""
    if not path.endswith(".py") or path.startswith((DATA, "/", "../")) or ":" in path:
        return False
    for line in _lines(cmd):
        words = _words(line)
        if words is None or any(PurePosixPath(path).is_relative_to(given) for given in _given(words)):
            return False
    return True


def _lines(cmd: Command) -> Sequence[str]:
    return [cmd] if isinstance(cmd, str) else cmd


def _words(line: str) -> list[str] | None:
    try:
        return shlex.split(line)
    except ValueError:  # a quotation mark without its partner
        return None


def _module(line: str) -> set[str]:
    """The files that may be the module which the line starts; none where it may start anything else."""
    words = _words(line)
    if not words or SHELL & {*line} or not PYTHON.fullmatch(words[0]):
        return set()
    rest = words[1:]
    while rest and FLAGS.fullmatch(rest[0]):
        rest = rest[1:]
    if rest[:1] == ["-m"] and len(rest) > 1:
        place = rest[1].replace(".", "/")
        return {f"{place}.py", f"{place}/__main__.py"}
    return {PurePosixPath(rest[0]).as_posix()} if rest and not rest[0].startswith("-") else set()


def _given(words: Sequence[str]) -> Iterator[PurePosixPath]:
    """The paths that may be among the arguments; behind python, or python and its flags, stands what it runs."""
    program = 1
    while program < len(words) and FLAGS.fullmatch(words[program]):
        program += 1
    for at, word in enumerate(words):
        if at != program:
            yield from (PurePosixPath(value) for value in {word, word.rpartition("=")[2]} if value)

"""What a command runs, and what it reads."""

import pytest

from flows.engine.edits.command import Command, is_code, runs_module

DEPS = ["a.py", "tasks/sft.py", "tool/__main__.py", "data/x.csv"]


@pytest.mark.parametrize(
    "cmd",
    [
        "python a.py",
        "python3.11 -B -u a.py data/x.csv --flag=1",
        "/usr/bin/python ./a.py",
        "python -m tasks.sft --threads 1",
        "python -P -m tool",
        ["python a.py", "python -m tool"],
    ],
)
def test_a_module_of_the_deps_that_python_runs(cmd: Command) -> None:
    assert runs_module(cmd, DEPS)


@pytest.mark.parametrize(
    "cmd",
    [
        "",
        "cat a.py",
        "python",
        "python b.py",
        "python -c 'print(open(1))' a.py",
        "python -m doctest a.py",
        "python -m pytest",
        "python -W error a.py",
        "python a.py; wc -l *.py",
        "python a.py > out",
        "python a.py && true",
        "python $(ls)",
        "env X=1 python a.py",
        "make",
        "python 'a.py",
        ["python a.py", "make"],
        [],
    ],
)
def test_anything_else_may_read_whatever_it_likes(cmd: Command) -> None:
    assert not runs_module(cmd, DEPS)


@pytest.mark.parametrize(
    ("path", "cmd", "expected"),
    [
        ("a.py", "python a.py data/x", True),
        ("a.py", "python -B a.py data/x", True),
        ("b.py", "python a.py data/x", True),
        ("tasks/sft.py", "python -m tasks.sft --out data/sft", True),
        ("b.py", "python a.py b.py", False),
        ("b.py", "python a.py ./b.py", False),
        ("b.py", "python a.py --file=b.py", False),
        ("tasks/b.py", "python a.py tasks", False),
        ("tasks/b.py", "python a.py tasks/", False),
        ("tasks/b.py", "python a.py .", False),
        ("a.py", "python a.py a.py", False),
        ("data/a.py", "python b.py", False),
        ("/elsewhere/a.py", "python b.py", False),
        ("../a.py", "python b.py", False),
        ("a.txt", "python b.py", False),
        ("a.py", "python 'a.py", False),
    ],
)
def test_a_module_that_is_given_as_data_is_data(path: str, cmd: str, expected: bool) -> None:
    assert is_code(path, cmd) is expected

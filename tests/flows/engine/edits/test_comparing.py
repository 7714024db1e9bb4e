"""Which edits of code have no effect: each kind by a case."""

import pytest

from flows.engine.edits.comparing import Code, same_but_for_words

BASE = '''"""What it does."""
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

RATE: float = 0.5


@dataclass
class Batch:
    """Some rows."""

    rows: int

    def half(self, by: int) -> float:
        """Half of it."""
        return self.rows / by


def mean(values: Iterable[float], names: Mapping[str, int] | None = None) -> float:
    """The mean."""
    total: float = 0.0
    for value in values:
        total += value
    assert total >= 0, "never"
    return total / 2
'''


def kind(old: str, new: str, **others: str) -> str | None:
    modules = {"a.py": new.encode(), **{f"{name}.py": text.encode() for name, text in others.items()}}
    return Code(modules).effectless("a.py", old.encode())


def edited(before: str, after: str, old: str = BASE) -> str:
    assert before in old
    return old.replace(before, after, 1)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("import math\n", "# why\nimport math\n", "comments or layout"),
        ("total / 2", "(total\n            / 2)", "comments or layout"),
        ('"never"', "'never'", "comments or layout"),
        ("    rows: int\n", "    rows: int  # of a table\n", "comments or layout"),
        ("What it does", "What it is for", "docstrings"),
        ('"""What it does."""\n', "", "docstrings"),
        ("Some rows", "Rows", "docstrings"),
        ("Half of it", "A half", "docstrings"),
        ('    """The mean."""\n', "", "docstrings"),
        ("values: Iterable[float]", "values: Iterable[int]", "type annotations"),
        ("by: int) -> float", "by: int)", "type annotations"),
        ("by: int) -> float", 'by: "float") -> "Batch"', "type annotations"),
        ("total: float = 0.0", "total = 0.0", "type annotations"),
        ("total: float = 0.0", "total: anything[at] = 0.0", "type annotations"),
        ('-> float:\n    """The mean.', '-> int:\n    """A mean.', "docstrings and type annotations"),
    ],
)
def test_edits_without_effect(before: str, after: str, expected: str) -> None:
    new = edited(before, after)
    assert kind(BASE, new) == expected
    assert kind(new, BASE) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("total / 2", "total / 3"),
        ("0.0", "0"),
        ('"never"', '"ever"'),
        ("total += value", "total += value; total"),
        ("RATE: float", "RATE: int"),  # modules keep annotations
        ("rows: int", "rows: float"),  # a dataclass reads them
        ("@dataclass\n", ""),
        ("values: Iterable[float], names", "names"),
        ("None = None", "None = 1"),
        ('-> float:\n    """The mean', '-> print(1):\n    """The mean'),  # does something
        ('-> float:\n    """The mean', '-> missing:\n    """The mean'),  # ends the import
        ('-> float:\n    """The mean', '-> int[str]:\n    """The mean'),
        ('-> float:\n    """The mean', '-> \'a\' | None:\n    """The mean'),
        ('-> float:\n    """The mean', '-> math.floats:\n    """The mean'),
        ("total: float = 0.0", "total: (y := float) = 0.0"),
        ("total: float = 0.0", "global total; total: float = 0.0"),
        ("import math", "import  math, os"),
        ("import math", "from __future__ import annotations\nimport math"),
        ("    total: float = 0.0\n", "    total: float = 0.0\n    RATE: float\n"),  # makes RATE local
        ("def mean", "async def mean"),
        ("values:", "*values:"),
        ("return total / 2", "return total / 2\n  "),
    ],
)
def test_edits_that_count(before: str, after: str) -> None:
    new = edited(before, after)
    if after != "return total / 2\n  ":
        assert kind(BASE, new) is None
        return
    assert kind(BASE, new) == "comments or layout"


FUTURE = "from __future__ import annotations\n"


def test_annotations_that_are_never_evaluated_may_name_anything() -> None:
    old = FUTURE + "def f(x: int):\n    return x\n"
    assert kind(old, edited("int", "Missing[int]", old)) == "type annotations"
    assert kind(old, edited("int", "g()", old)) is None, "for whoever evaluates them later"


@pytest.mark.parametrize(
    "reader",
    [
        "import a, inspect\nprint(inspect.getsource(a))\n",
        "from inspect import getsource\n",
        "import inspect as i\n",
        "from pathlib import Path\nText = Path(__file__).read_text()\n",
        "text = open('a.py').read()\n",
        "import traceback\ntraceback.print_stack()\n",
        "import sys\nline = sys._getframe().f_lineno\n",
        "import torch\nscripted = torch.jit.script(f)\n",
        "import logging\nlogging.basicConfig(format='%(lineno)d')\n",
        "from linecache import getline\n",
        "code = f.__code__\n",
        "code = getattr(f, '__code__')\n",
        "import importlib\nimportlib.import_module('dis')\n",
        "import dill\ndill.dumps(f)\n",
    ],
)
def test_where_code_reads_its_text_or_lines_comments_count(reader: str) -> None:
    new = edited("import math\n", "# why\nimport math\n")
    assert kind(BASE, new, other="x = 1\n") == "comments or layout"
    assert kind(BASE, new, other=reader) is None


@pytest.mark.parametrize(
    "reader",
    [
        "print(f.__doc__)\n",
        "import inspect\n",
        "print(getattr(f, '__doc__'))\n",
        "import typer\napp = typer.Typer()\napp.command()(f)\n",
        "from inspect import getdoc\n",
        "import argparse\np = argparse.ArgumentParser(description=__doc__)\np.print_help()\n",
        "import argparse\np = argparse.ArgumentParser(prog=__doc__)\n",
    ],
)
def test_where_code_reads_docstrings_they_count(reader: str) -> None:
    expected = "docstrings" if reader == "import inspect\n" else None
    assert kind(BASE, edited("The mean", "A mean"), other=reader) == expected
    assert kind(BASE, edited("import math", "import math  # x")) == "comments or layout"


def test_a_description_for_help_alone_does_not_count() -> None:
    parser = (
        "import argparse, sys\np = argparse.ArgumentParser(prog='x', description=sys.modules['__main__'].__doc__)\n"
    )
    assert kind(BASE, edited("What it does", "x"), other=parser) == "docstrings"


@pytest.mark.parametrize(
    "reader",
    [
        "print(f.__annotations__)\n",
        "from typing import get_type_hints\nprint(get_type_hints(thing.f))\n",
        "from typing import get_type_hints as hints\n",
        "import inspect\nprint(inspect.signature(f))\n",
        "import beartype\nbeartype.beartype(f)\n",
        "from inspect import signature\nprint(signature(f))\n",
        "print([f for f in globals().values()])\n",
        "def g(p):\n    return p.annotation\n",
    ],
)
def test_where_code_reads_annotations_they_count(reader: str) -> None:
    new = edited('-> float:\n    """The mean', '-> int:\n    """The mean')
    assert kind(BASE, new) == "type annotations"
    assert kind(BASE, new, other=reader) is None


STAGE = '''
import inspect
from typing import get_type_hints

def main(run):
    """Runs it."""
    hints = get_type_hints(run)
    names = [name for name in inspect.signature(run).parameters if name != "config"]
    return run(*names)
'''
RUN = '''"""A stage."""
from stage import main

def run(config: int, out: str) -> None:
    """Writes it."""
    helper(out)

def helper(out: str) -> None:
    """Helps."""

main(run)
'''


def test_the_annotations_of_what_main_is_given_count_and_others_do_not() -> None:
    assert kind(RUN, edited("config: int", "config: str", RUN), stage=STAGE) is None
    assert kind(RUN, edited("def helper(out: str)", "def helper(out: int)", RUN), stage=STAGE) == "type annotations"
    assert kind(RUN, edited("Writes it", "Makes it", RUN), stage=STAGE) == "docstrings"


@pytest.mark.parametrize(
    "call", ["main(getattr(x, y))", "given = [main]", "import stage\nstage.main(f())", "run = 3\nmain(run)"]
)
def test_main_given_something_unknown_may_read_any_annotation(call: str) -> None:
    other = f"from stage import main\n{call}\n"
    new = edited("def helper(out: str)", "def helper(out: int)", RUN)
    assert kind(RUN, new, stage=STAGE, other=other) is None


def test_what_others_are_given_keeps_docstring_and_annotations() -> None:
    old = "import tool\n\ndef f(x: int):\n    'about'\n    return x\n\ntool.register(f)\n"
    assert kind(old, edited("about", "of", old)) is None
    assert kind(old, edited("int", "str", old)) is None
    assert kind(old, edited("import tool", "import tool  #", old)) == "comments or layout"


@pytest.mark.parametrize(
    "head",
    [
        "@tool.command\ndef f",
        "@register\nasync def f",
        "class Model(BaseModel):\n  def f",
        "@attrs.define\nclass Model:\n  def f",
        "class Model(metaclass=Meta):\n  def f",
        "from elsewhere import property\nclass A:\n  @property\n  def f",
        "from elsewhere import contextmanager\n@contextmanager\ndef f",
    ],
)
def test_what_others_make_or_decorate_stays_whole(head: str) -> None:
    old = f"{head}(self, x: int):\n    'about'\n    return x\n"
    assert kind(old, edited("about", "of", old)) is None
    assert kind(old, edited("int", "str", old)) is None


@pytest.mark.parametrize(
    "head",
    [
        "class A:\n  @property\n  def f",
        "from contextlib import contextmanager\n@contextmanager\ndef f",
        "import torch\n@torch.no_grad()\ndef f",
        "from torch import nn\nclass A(nn.Module):\n  def f",
        "class A(ValueError):\n  def f",
    ],
)
def test_what_is_only_wrapped_may_change(head: str) -> None:
    old = f"{head}(self, x: int):\n    'about'\n    return x\n"
    assert kind(old, edited("about", "of", old)) == "docstrings"
    assert kind(old, edited("int", "str", old)) == "type annotations"


def test_a_class_in_a_body_of_pydantic_keeps_its_annotations() -> None:
    old = "class Model(BaseModel):\n    'about'\n    x: int = 1\n"
    assert kind(old, edited("about", "of", old)) is None
    assert kind(old, edited("x: int", "x: str", old)) is None


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "x = '\\ud800'\n" * 0 + "return 1\n", "def f(x, x): pass\n"])
def test_what_is_no_python_counts(text: str) -> None:
    assert kind(BASE, text) is None
    assert kind(text, BASE) is None


def test_the_declared_encoding_is_read() -> None:
    old, new = "# coding: latin-1\nx = 'é'\n".encode("latin-1"), "x = 'é'\n".encode()
    assert Code({"a.py": new}).effectless("a.py", old) == "comments or layout"
    wrong = "# coding: latin-1\nx = 'é'\n".encode()
    assert Code({"a.py": wrong}).effectless("a.py", new) is None


def test_what_differs_in_words_alone_whoever_may_read_them() -> None:
    old = "class M(BaseModel):\n    'about'\n    x: int = 1\n    def f(self, y: int): return y\n"
    assert same_but_for_words(old.encode(), old.replace("about", "of").replace("y: int", "y").encode())
    assert not same_but_for_words(old.encode(), old.replace("= 1", "= 2").encode())
    assert not same_but_for_words(old.encode(), b"def")

"""What a stage reaches: an edit of that changes its digests, and an edit of anything else does not."""

import os
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.code.reachable_code import PackageCode, StageReach
from tasks.code.without_influence import LOOKED_AT
from tests.repository import ROOT

TREE = {
    "work/__init__.py": "",
    "work/stage.py": """
import argparse

from work import shapes, tables as stored
from work.common import helpers
from work.common.helpers import twice
from work.register import REGISTRY

def run(count: int) -> int:
    '''Runs.'''
    return twice(count) + helpers.LIMIT + shapes.Square(count).area() + stored.read()

if __name__ == "__main__":
    print(run, 2)
""",
    "work/shapes.py": """
from work.register import register

class Shape:
    def area(self): raise NotImplementedError

class Square(Shape):
    def __init__(self, side): self.side = side
    def area(self): return self.side ** 2

class Circle(Shape):
    def area(self): return 3

@register
def first(): return 1
""",
    "work/tables.py": """
SIZE = 3

def read():
    from work import lazily
    return lazily.load(SIZE)

def write(): return SIZE + 1
""",
    "work/lazily.py": "def load(size): return size\ndef other(): return 0\nprint\n",
    "work/register.py": "REGISTRY = {}\ndef register(f):\n    REGISTRY[f.__name__] = f\n    return f\n",
    "work/common/__init__.py": "VERSION = 1\n",
    "work/common/helpers.py": """
import re

LIMIT = 10
UNUSED = 11
WORD = re.compile("a")

def twice(n: int) -> int: return _add(n, n)

def thrice(n): return 3 * n

def _add(a: int, b): return a + b
""",
    "work/unrelated.py": "def alone(): return 1\n",
}


def digests(tree, **options):
    def source(path):
        return tree[path].encode() if path in tree else None

    return StageReach(PackageCode(source, "work", **options), "work.stage").digests()


def edited(path, old, new, tree=TREE):
    assert old in tree[path]
    return {**tree, path: tree[path].replace(old, new)}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("work/stage.py", "run, 2", "run, 3"),
        ("work/stage.py", "count: int", "count: str"),
        ("work/stage.py", "twice(count)", "2 + twice(count)"),
        ("work/common/helpers.py", "LIMIT = 10", "LIMIT = 12"),
        ("work/common/helpers.py", "return a + b", "return b + a"),
        ("work/shapes.py", "** 2", "** 3"),
        ("work/shapes.py", "raise NotImplementedError", "return 0"),
        ("work/shapes.py", "return 1", "return 2"),
        ("work/register.py", "return f", "return None"),
        ("work/tables.py", "SIZE = 3", "SIZE = 4"),
        ("work/lazily.py", "return size", "return 1"),
        ("work/lazily.py", "print\n", "print()\n"),
    ],
)
def test_an_edit_of_what_is_reached_is_seen(path, old, new):
    assert digests(edited(path, old, new)) != digests(TREE)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("work/stage.py", "'''Runs.'''", "'''Runs it.'''"),
        ("work/shapes.py", "return 3", "return 4"),
        ("work/tables.py", "SIZE + 1", "SIZE + 2"),
        ("work/lazily.py", "return 0", "return 1"),
        ("work/common/helpers.py", "3 * n", "4 * n"),
        ("work/common/helpers.py", "UNUSED = 11", "OTHER = 12  # and more"),
        ("work/common/helpers.py", "a: int", "a: float"),
        ("work/common/helpers.py", "twice(n: int)", "twice(n)"),
        ("work/common/__init__.py", "1", "2"),
        ("work/unrelated.py", "1", "2"),
    ],
)
def test_an_edit_of_anything_else_is_not(path, old, new):
    assert digests(edited(path, old, new)) == digests(TREE)


def test_a_digest_names_the_definitions_of_each_file():
    found = digests(TREE)
    assert {path: [*of] for path, of in found.items()} == {
        "work/common/helpers.py": ["LIMIT", "_add", "twice"],
        "work/lazily.py": ["import", "load"],
        "work/register.py": ["REGISTRY", "register"],
        "work/shapes.py": ["Shape", "Square", "import", "register"],
        "work/stage.py": ["helpers", "import", "run", "shapes", "stored", "twice"],
        "work/tables.py": ["SIZE", "lazily", "read"],
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from numpy import float32 as kind", "from numpy import float64 as kind"),
        ("import numpy as kind", "import torch as kind"),
        ("try:\n    from numpy import float32 as kind\nexcept ImportError: kind = 3", "kind = 3"),
    ],
)
def test_what_a_name_from_another_package_is_counts_where_it_is_reached(old, new):
    tree = {**TREE, "work/tables.py": f"{old}\n{TREE['work/tables.py'].replace('SIZE)', 'kind)')}"}
    assert digests(edited("work/tables.py", old, new, tree)) != digests(tree)
    unused = {**TREE, "work/tables.py": f"{old}\n{TREE['work/tables.py'].replace('SIZE + 1', 'kind')}"}
    if "try" not in old:  # which runs at the import
        assert digests(edited("work/tables.py", old, new, unused)) == digests(unused)


@pytest.mark.parametrize(
    "line",
    [
        "from work.common import helpers; helpers",  # the module itself, of which anything may be asked
        "from work.common import helpers; getattr(helpers, chosen)()",
        "from work.common import helpers; helpers.__dict__",
        "from work.common import helpers; [helpers for helpers in (helpers,)]",
        "import work.common.helpers as h; h",
        "start('work.common.helpers')",
    ],
)
def test_where_it_cannot_be_seen_what_is_meant_all_of_a_module_counts(line):
    tree = edited("work/tables.py", "return lazily", f"{line}\n    return lazily")
    assert digests(edited("work/common/helpers.py", "3 * n", "4 * n", tree)) != digests(tree)


def test_of_a_module_of_which_all_names_are_imported_all_counts():
    tree = edited("work/tables.py", "SIZE = 3", "from work.common.helpers import *\nSIZE = 3")
    assert digests(edited("work/common/helpers.py", "3 * n", "4 * n", tree)) != digests(tree)


def test_modules_that_import_each_other_s_names_end():
    tree = {**TREE, "work/register.py": f"from work.shapes import lost\n{TREE['work/register.py']}"}
    tree["work/shapes.py"] = f"from work.register import lost\n{TREE['work/shapes.py']}lost\n"
    assert digests(tree)["work/shapes.py"].keys() >= {"lost", "import"}


def test_a_name_of_a_function_s_own_is_no_module():
    tree = edited("work/tables.py", "def write(): return SIZE + 1", "def use(lazily): return lazily\nprint(use)")
    assert digests(edited("work/lazily.py", "return 0", "return 1", tree)) == digests(tree)


@pytest.mark.parametrize(
    "reader",
    [
        "print(run.__doc__)",
        "print(getattr(run, '__doc__'))",
        "print('{0.__doc__}'.format(run))",
        "print(f'{run.__doc__:>10}')",
        "import operator\noperator.attrgetter('__doc__')(run)",
        "print(__doc__)",
        "import sys\nsys.modules[__name__].__doc__",
        "print(vars(run)['__doc__'])",
        "import inspect\ninspect.getdoc(run)",
        "from inspect import getdoc as words\nwords(run)",
        "import ast\nast.get_docstring(tree)",
        "help(run)",
        "import pydoc\npydoc.render_doc(run)",
        "import doctest as d\nd.testmod()",
        "run.__code__.co_consts",
        "parser.print_help()",
        "from transformers.utils import get_json_schema\nget_json_schema(run)",
    ],
)
def test_what_reads_docstrings_keeps_them(reader):
    tree = {**TREE, "work/stage.py": f"{TREE['work/stage.py']}\n{reader}\n"}
    assert digests(edited("work/stage.py", "Runs.", "Runs it.", tree)) != digests(tree)


@pytest.mark.parametrize(
    "reader",
    [
        "import inspect\ninspect.getsource(run)",
        "from inspect import getsourcelines as lines\nlines(run)",
        "open(__file__)",
        "open(helpers.__spec__.origin, __file__)",
        "import sys\nsys._getframe().f_lineno",
        "run.__code__.co_firstlineno",
        "import traceback\ntraceback.format_exc()",
        "import traceback as t\nt.print_exc()",
        "try: run()\nexcept Exception as error: print(error.__traceback__.tb_lineno)",
        "import logging\nlogging.basicConfig(format='%(lineno)d %(message)s')",
        "import linecache\nlinecache.getline(name, 1)",
        "__loader__.get_source('work.stage')",
        "from importlib import util\nutil.find_spec('work.stage').loader.get_data(path)",
        "import marshal\nmarshal.dumps(run.__code__)",
        "import cloudpickle\ncloudpickle.dumps(run)",
        "import dis\ndis.dis(run)",
        "import tokenize\ntokenize.generate_tokens(line)",
    ],
)
def test_what_reads_sources_keeps_them(reader):
    tree = {**TREE, "work/stage.py": f"{TREE['work/stage.py']}\n{reader}\n# a comment\n"}
    assert digests(edited("work/stage.py", "# a comment", "# another", tree)) != digests(tree)


@pytest.mark.parametrize(
    "reader",
    [
        "import inspect\ninspect.signature(twice)",
        "from typing import get_type_hints\nget_type_hints(twice)",
        "twice.__annotations__",
        "getattr(helpers, 'twice').__annotations__",
        "getattr(helpers, name).__annotations__",
        "[*map(hints, [twice])]",
        "helpers.twice.__annotations__",
        "validate_call(twice)(1)",
        "vars(helpers)[name].__annotations__",
        "from work.common.helpers import *\nglobals()[name].__annotations__",
        "print({'first': twice})",
    ],
)
def test_annotations_of_a_function_stay_where_somebody_may_read_them(reader):
    tree = {**TREE, "work/stage.py": f"{TREE['work/stage.py']}\n{reader}\n"}
    assert digests(edited("work/common/helpers.py", "twice(n: int)", "twice(n: str)", tree)) != digests(tree)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SIZE = 3", "SIZE: int = 3"),
        ("SIZE = 3", "@dataclass\nclass Kept:\n    size: int = 3\nSIZE = Kept()"),
        ("SIZE = 3", "@checked\ndef f(n: int): return n\nSIZE = f(3)"),
        ("SIZE = 3", "class Kept:\n    def size(self) -> int: return 3\nSIZE = Kept().size()"),
    ],
)
def test_annotations_of_modules_classes_and_decorated_functions_stay(old, new):
    tree = edited("work/tables.py", old, new)
    assert digests(edited("work/tables.py", "int", "float", tree)) != digests(tree)


def test_who_says_what_a_command_is_for_reads_no_docstring():
    reader = "argparse.ArgumentParser(description=__doc__, epilog=run.__doc__)"
    tree = {**TREE, "work/stage.py": f"{TREE['work/stage.py']}\n{reader}\n"}
    assert digests(edited("work/stage.py", "Runs.", "Runs it.", tree)) == digests(tree)


def test_a_reader_that_was_looked_at_keeps_nothing():
    tree = edited("work/common/helpers.py", "return _add(n, n)", "return _add(n, len(__file__))")
    changed = edited("work/common/helpers.py", "UNUSED", "# a comment\nUNUSED", tree)
    assert digests(changed) != digests(tree)
    looked_at = {"looked_at": ["work.common.helpers.twice"]}
    assert digests(changed, **looked_at) == digests(tree, **looked_at)


def test_a_module_without_influence_counts_for_nothing():
    changed = edited("work/lazily.py", "return size", "return 1")
    without = {"without_influence": ["work.lazily"]}
    assert digests(changed, **without) == digests(TREE, **without)


def test_files_beside_a_module_are_named():
    tree = edited("work/tables.py", "return lazily", "open(Path(__file__).parent / 'pages/a.html')\n    return lazily")
    source = {path: content.encode() for path, content in tree.items()}
    reached = StageReach(PackageCode(source.get, "work"), "work.stage")
    assert reached.files() == {"work/pages/a.html"}
    assert "source" not in reached.digests()["work/tables.py"], "it names a file, and does not read its own"


def test_digests_do_not_hang_on_the_order_of_sets():
    script = (
        "import json\nfrom tests.tasks.code.test_reachable_code import TREE, digests\nprint(json.dumps(digests(TREE)))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(printed) == 1


def test_a_module_that_is_no_python_is_named():
    with pytest.raises(ValueError, match=r"^work/lazily\.py: "):
        digests({**TREE, "work/lazily.py": "def"})


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_what_python_runs_is_reached(tmp_path_factory, seed):
    """Programs drawn at random: each function that Python enters is among those that the digests name."""
    tree = drawn(random.Random(seed))
    folder = tmp_path_factory.mktemp("drawn")
    for path, content in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    traced = (
        "import runpy, sys\n"
        "def entered(frame, event, _):\n"
        "    code = frame.f_code\n"
        f"    if event == 'call' and code.co_filename.startswith({str(folder)!r}) and code.co_name[0] == 'f':\n"
        "        print(code.co_filename.rpartition('/')[2], code.co_name)\n"
        "sys.setprofile(entered)\n"
        "runpy.run_module('work.stage', run_name='__main__')\n"
    )
    run = subprocess.run([sys.executable, "-c", traced], cwd=folder, capture_output=True, text=True, check=True)
    ran = {tuple(line.split()) for line in run.stdout.splitlines()}
    reached = {(path.rpartition("/")[2], name) for path, of in digests(tree).items() for name in of}
    assert ran
    assert ran <= reached


def drawn(rng):
    """Four modules of functions that call each other in many ways; the stage calls one of them."""
    ways = (
        "from work.{m} import {f}\n{f}()",
        "from work import {m}\n{m}.{f}()",
        "from work import {m} as other\nother.{f}()",
        "import work.{m}\nwork.{m}.{f}()",
        "from work import {m}\ngetattr({m}, '{f}')()",
        "from work.{m} import {f} as g\n[*map(lambda _: g(), [1])]",
        "import importlib\nimportlib.import_module('work.{m}').{f}()",
    )
    tree = {"work/__init__.py": ""}
    modules = ["m0", "m1", "m2", "stage"]
    for number, name in enumerate(modules):
        text = ""
        for index in range(4):
            body = "pass"
            if number and rng.random() < 0.7:
                target = rng.choice(modules[:number])
                body = rng.choice(ways).format(m=target, f=f"f{target}_{rng.randrange(4)}")
            inner = body.replace("\n", "\n    ")
            text += f"def f{name}_{index}():\n    {inner}\n\n"
        tree[f"work/{name}.py"] = text
    tree["work/stage.py"] += f"if __name__ == '__main__':\n    fstage_{rng.randrange(4)}()\n"
    return tree


def test_what_was_looked_at_is_still_there_and_still_reads_something():
    code = PackageCode(lambda path: (ROOT / path).read_bytes() if (ROOT / path).is_file() else None)
    for name in LOOKED_AT:
        module, _, definition = name.rpartition(".")
        assert any(part.reads for part in code.module(module).definitions[definition]), name

"""Syntax as text: what it holds, what it leaves out, and that it is the same on every version of Python."""

import ast
import hashlib

import pytest

from tasks.code.syntax import dump_statement

MANY_KINDS = '''
import a.b as c
from .d import (e, f as g)
@c.h(1, *e, k=None, **g)
class I(g, metaclass=e):
    """Words."""
    j: int = 0x7fffffffffffffffffffffff
    k: "list[I]"
    def l(self, m, /, n: str = "\\u00e9\\U0001f600", *o: int, p=-0.0, **q) -> bool:
        """More words."""
        r: dict[str, int] = {}
        nonlocal_: int
        self.s: float = 1e400
        return [t async for t in m if t] and {**q, "u": b"\\x00'"} or (v := ...) is not True
async def w(x):
    async with x as y, x:
        await y
    return f"{x!r:>{y}} and {{}} {x=}" "tail" f"{y:%H:%M}" f"{x:{y}.{y}}"
match c:
    case {"z": [1, *_], **rest} | I(j=2, k="3") if rest: pass
    case None | -1.5j: del c[1:2, ::3], c.d
try: raise e from g
except* (ValueError, KeyError) as error: print(lambda *aa, bb=1: (yield aa))
else: global_ = u"kind"
finally:
    while not c: continue
    else: assert e, "why"
'''


def text_of(source, **rules):
    return "".join(dump_statement(statement, **rules) for statement in ast.parse(source).body)


def test_the_text_of_a_statement():
    assert dump_statement(ast.parse("x = [1, 'é', None]").body[0]) == (
        "Assign(targets=[Name(id='x',),],value=List(elts=[Constant(value=0x1,),Constant(value='\\xe9',),Constant(),],),)"
    )
    assert dump_statement(ast.parse("def f(a, b=2): return a").body[0]) == (
        "FunctionDef(name='f',args=arguments(args=[arg(arg='a',),arg(arg='b',),],defaults=[Constant(value=0x2,),],),"
        "body=[Return(value=Name(id='a',),),],)"
    )


def test_the_text_is_the_same_on_every_version_of_python():
    """These hashes were equal on Python 3.11.7, 3.12.1 and 3.13.0, as were those of all files of this repository."""
    digests = [
        hashlib.sha256(text_of(MANY_KINDS, **rules).encode()).hexdigest()[:16]
        for rules in ({}, {"docstrings": False, "plain": frozenset({"l", "w"})})
    ]
    assert digests == ["8145d5f8c231c444", "0ac89d6b45b512bb"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f():\n    '''Words.'''\n    return 1", "def f():  # others\n\n    return 1"),
        ("class A:\n    '''Words.'''\n    def f(self):\n        '''More.'''", "class A:\n    def f(self): pass"),
        ("def f():\n    a: int = 1\n    return a", "def f():\n    a = 1\n    return a"),
        ("def f(a: int, *b: str, c: int = 1) -> str: ...", "def f(a, *b, c=1): ..."),
        ("f'a' 'b' f'{c}'", "f'ab{c}'"),
        ("x = u'a'", "x = 'a'"),
    ],
)
def test_what_is_left_out(one, other):
    rules = {"docstrings": False, "plain": frozenset("f")}
    assert text_of(one, **rules) == text_of(other, **rules)


@pytest.mark.parametrize(
    ("one", "other", "rules"),
    [
        ("def f():\n    'Words.'\n    return 1", "def f(): return 1", {"docstrings": True}),
        ("def f(a: int): ...", "def f(a): ...", {"plain": frozenset("g")}),
        ("@g\ndef f(a: int): ...", "@g\ndef f(a): ...", {"plain": frozenset("f")}),
        ("class A:\n    a: int = 1", "class A:\n    a = 1", {"plain": frozenset("A")}),
        ("a: int = 1", "a = 1", {}),
        ("def f(a=1): ...", "def f(a=2): ...", {"plain": frozenset("f")}),
        ("def f(a, b): ...", "def f(a, *, b): ...", {"plain": frozenset("f")}),
        ("def f():\n    a: int\n    a", "def f():\n    a", {}),
        ("def f():\n    class A:\n        a: int = 1", "def f():\n    class A:\n        a = 1", {}),
        ("x = 1", "x = True", {}),
        ("x = 1", "x = 1.0", {}),
        ("x = 'a'", "x = b'a'", {}),
        ("def f(): ...", "async def f(): ...", {"plain": frozenset("f")}),
    ],
)
def test_what_is_not(one, other, rules):
    rules = {"docstrings": False, **rules}
    assert text_of(one, **rules) != text_of(other, **rules)

"""A pytest plugin for mutmut's first run, which records the functions that each test calls (benchmarks/mutation.py).

A fixture of a whole file runs only in the file's first test, and mutmut would run no other test for the functions that it calls.
So every function of a module that was called counts as called by each later test of the file with the module's name.
"""

from typing import Any

import pytest
from mutmut.state import state

CALLED: set[str] = set()  # functions, by mutmut's names for them: tasks.language.responses.x_run


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: Any) -> None:
    """Runs before mutmut records what the test has called."""
    called = state()._stats
    CALLED.update(called)
    called.update(function for function in CALLED if item.path.name == f"test_{function.split('.')[-2]}.py")

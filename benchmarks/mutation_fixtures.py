"""A pytest plugin for mutmut's first run, which asks what each test calls (benchmarks/mutation.py).

What a fixture of a whole file calls is called in the file's first test alone, and mutmut would ask no other test about it.
So what has been called of a module counts for every later test of the file that has the module's name.
"""

from typing import Any

import pytest
from mutmut.state import state

CALLED: set[str] = set()  # functions, by mutmut's names for them: tasks.language.responses.x_run


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: Any) -> None:
    """Before mutmut takes down what the test has called."""
    called = state()._stats
    CALLED.update(called)
    called.update(function for function in CALLED if item.path.name == f"test_{function.split('.')[-2]}.py")

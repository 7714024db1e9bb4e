"""What extensions add to the tables of tests that go through all stages: tasks/extensions/NAME/tests/entries.py."""

import importlib.util
from typing import Any

from tests import repository

NAMES = sorted({file.parts[-3] for file in repository.files("tasks/extensions/*/tests/*.py")})
STAGES = sorted(
    file.stem for file in repository.files("tasks/extensions/*/*.py") if "\n    main(run" in file.read_text()
)


def entries(table: str, module: str = "entries") -> dict[Any, Any]:
    """The entries of all extensions for a table that goes through all stages, such as BASE of tests/seam_params.py."""
    merged: dict[Any, Any] = {}
    for name in NAMES:
        if importlib.util.find_spec(f"tasks.extensions.{name}.tests.{module}") is not None:
            merged |= getattr(importlib.import_module(f"tasks.extensions.{name}.tests.{module}"), table, {})
    return merged

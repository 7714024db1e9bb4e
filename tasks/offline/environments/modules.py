"""Modules of installed packages that environments and wrappers come from."""

import importlib.util
from pathlib import Path
from types import ModuleType

from tasks.common.errors import DataError


def import_environment_module(environment: str, module: str) -> ModuleType:
    """Import an installed module that `environment` names; DataError with one line if there is none, or if it breaks.

    None is taken from the working directory, which is on Python's path: what came with somebody's data set must not
    run. This repository's own modules are taken.
    """
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise DataError(f"environment {environment}: no module {top} is installed")
    locations = [*(spec.submodule_search_locations or []), spec.origin or ""]
    ours = top == __name__.partition(".")[0]
    if not ours and any(Path(location).parent.resolve() == Path.cwd().resolve() for location in locations if location):
        raise DataError(
            f"environment {environment}: module {top} stands in the working directory; install it to use it"
        )
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever runs in it
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise DataError(f"environment {environment}: module {module} cannot be imported: {what}") from None

"""Wrappers around environments, as an environment's name asks for them (tasks/offline/configs/wrappers.py)."""

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium import wrappers as known

from tasks.common.errors import DataError
from tasks.offline.configs.wrappers import Wrapper, parse_environment_name
from tasks.offline.environments import modules


def split_environment_name(environment: str) -> tuple[str, dict[str, object], list[Wrapper]]:
    """The name of the environment inside, its arguments, and its wrappers; DataError with one line if there is no such
    wrapper.
    """
    try:
        return parse_environment_name(environment)
    except ValueError as error:
        raise DataError(f"environment {environment}: {error}") from None


def apply_wrappers(
    env: gymnasium.Env[Any, Any], environment: str, wrappers: Sequence[Wrapper]
) -> gymnasium.Env[Any, Any]:
    """The environment with these wrappers around it, the first the innermost; DataError with one line if one does not
    fit.
    """
    for wrapper in wrappers:
        module, _, name = wrapper.name.rpartition(":")
        kind = getattr(modules.import_environment_module(environment, module) if module else known, name, None)
        if not (isinstance(kind, type) and issubclass(kind, gymnasium.Wrapper)):
            raise DataError(f"environment {environment}: {wrapper.name} is no wrapper of Gymnasium's kind")
        try:
            env = kind(env, **wrapper.arguments)
        except Exception as error:  # whatever runs in it
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise DataError(f"environment {environment}: {wrapper.name} does not fit: {what}") from None
    return env

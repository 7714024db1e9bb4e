"""`python -m tasks.preflight.environments NAME...`: the kind of actions that environments take, and whether they have
goals, as JSON.
"""

import json
import sys

from tasks.common.errors import DataError
from tasks.offline.environments import simulators

Kind = dict[str, str | bool]


def find_environment_kind(environment: str) -> Kind | None:
    """Its `actions`, discrete or continuous, and whether it has `goals`; None if it cannot be made."""
    try:
        discrete = simulators.get_policy_spaces(environment).discrete
    except DataError:
        return None
    return {"actions": "discrete" if discrete else "continuous", "goals": _has_goals(environment)}


def _has_goals(environment: str) -> bool:
    try:
        simulators.build_environment_goals(environment)
    except DataError:
        return False
    return True


if __name__ == "__main__":
    print(json.dumps({name: find_environment_kind(name) for name in sys.argv[1:]}))

"""Episodes of made-up numbers in the form of others' recordings, for the tests of imports."""

import numpy as np

from tasks.offline.datasets import episodes
from tasks.offline.datasets.episodes import make_episode

GENERATOR = np.random.default_rng(0)
NAN, INF = float("nan"), float("inf")


def hopper(steps, terminated):
    """An episode of made-up numbers in Hopper's shapes."""
    seen = GENERATOR.normal(size=(steps + 1, 11))
    return make_episode(seen, GENERATOR.uniform(-1, 1, (steps, 3)), GENERATOR.normal(size=steps), terminated)


WHOLE = [hopper(4, True), hopper(3, False), hopper(5, True)]


def equal(one, other):
    return all(np.allclose(getattr(one, field), getattr(other, field), atol=1e-6) for field in episodes.FIELDS)


def with_value(array, at, value):
    changed = array.astype(np.float64)
    changed[at] = value
    return changed

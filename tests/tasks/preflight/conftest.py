"""What the tests of `posttrain check` share."""

from collections.abc import Iterator

import pytest

from tests.tasks.language import math_workers


@pytest.fixture(scope="module", autouse=True)
def kept_math_workers() -> Iterator[None]:
    """Rewards that are tried take the processes of math-verify that others have started."""
    workers = math_workers.Workers()
    with math_workers.kept(workers):
        yield
    workers.end()

"""What the tests of the preflight share."""

from collections.abc import Iterator

import pytest

from tests.tasks.language import math_workers


@pytest.fixture(scope="module", autouse=True)
def kept_math_workers() -> Iterator[None]:
    """Verifiers take the processes that others have started."""
    workers = math_workers.Workers()
    with math_workers.kept(workers):
        yield
    workers.end()

"""What the tests of workers share."""

import pytest

from tests.flows.quick_dvc import quick_dvc


@pytest.fixture
def dvc_memory() -> None:
    """DVC remembers hashes, as it does for users."""


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC remembers no hashes, but in slow tests and in those that use `dvc_memory`."""
    if "dvc_memory" not in request.fixturenames and not request.node.get_closest_marker("slow"):
        quick_dvc(monkeypatch)

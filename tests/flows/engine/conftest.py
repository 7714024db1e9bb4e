"""What the tests of the engine share."""

import pytest

from tests.flows.quick_dvc import quick_dvc

APART = {"edits", "recording"}  # folders whose tests choose for themselves


@pytest.fixture
def dvc_memory() -> None:
    """DVC remembers hashes, as it does for users."""


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC remembers no hashes, but in slow tests and in those that use `dvc_memory`."""
    memory = "dvc_memory" in request.fixturenames or request.node.get_closest_marker("slow")
    if not memory and request.path.parent.name not in APART:
        quick_dvc(monkeypatch)

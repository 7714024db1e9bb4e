"""What the tests of sweeps share."""

import pytest

from tests.flows.unsupervised import without_supervisors


@pytest.fixture(autouse=True)
def plain_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages have no supervisors."""
    without_supervisors(monkeypatch)

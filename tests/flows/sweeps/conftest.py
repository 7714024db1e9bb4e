"""What the tests of sweeps share."""

import pytest

from tests.flows.quick_dvc import quick_dvc


@pytest.fixture(autouse=True)
def _quick(plain_commands: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages have no supervisors, and DVC remembers no hashes."""
    quick_dvc(monkeypatch)

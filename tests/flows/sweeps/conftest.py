"""What the tests of sweeps share."""

import pytest

from tests.flows.quick_dvc import quick_dvc
from tests.flows.unsupervised import without_supervisors


@pytest.fixture(autouse=True)
def plain_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages have no supervisors, and DVC is quick."""
    without_supervisors(monkeypatch)
    quick_dvc(monkeypatch)

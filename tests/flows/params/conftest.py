"""What the tests of params.yaml share."""

from functools import lru_cache

import pytest

from flows.params import files

kept = lru_cache(maxsize=64)(files.params.__wrapped__)


@pytest.fixture(autouse=True)
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that several tests begin with is parsed once; a run keeps only the last two."""
    monkeypatch.setattr("flows.params.editing.params", kept)
    monkeypatch.setattr("flows.params.data_files.params", kept)

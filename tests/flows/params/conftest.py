"""What the tests of params.yaml share."""

import pytest

from tests.flows.params import by_section


@pytest.fixture(autouse=True)
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section that several tests begin with is parsed once; a run keeps only the last two files."""
    monkeypatch.setattr("flows.params.editing.parse_params", by_section.params)
    monkeypatch.setattr("flows.params.editing.parse_yaml_text", by_section.parse)
    monkeypatch.setattr("flows.params.data_files.parse_params", by_section.params)

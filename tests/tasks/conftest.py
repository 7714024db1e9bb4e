import pytest


@pytest.fixture(autouse=True)
def train_on_one_thread(one_thread: None) -> None:
    """All of these tests: many of them train."""

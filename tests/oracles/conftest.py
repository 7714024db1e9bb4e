from collections.abc import Iterator
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def judge(one_thread: None) -> Iterator[ModuleType]:
    """tests/oracles/judge.py, imported only when a test is about to run: importing TRL takes many seconds."""
    with pytest.MonkeyPatch.context() as patch:
        # TRL reports every new trainer to its hub, unless it believes itself to be in CI.
        patch.setenv("CI", "true")
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # CPOTrainer and rollout_func are experimental
        from tests.oracles import judge

        yield judge

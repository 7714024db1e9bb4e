"""DVC without its memory of hashes, which takes longer to open than a toy repository takes to hash.

That the memory fits what the flows do is tested in tests/flows/engine and by all tests with processes of their own.
"""

import pytest
from dvc_data.hashfile import state


def without_memory(*_: object, **__: object) -> state.StateNoop:
    """Stands in for dvc_data's State, whose databases hold what files hashed to."""
    return state.StateNoop()


def quick_dvc(patch: pytest.MonkeyPatch) -> None:
    """Let DVC in this process remember no hashes."""
    patch.setattr(state, "State", without_memory)

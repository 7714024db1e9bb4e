"""What the tests of the agents flow's stages share."""

from functools import cache

import pytest

from tests.tasks.agents import small


@pytest.fixture(scope="session")
def recorded(one_thread, tmp_path_factory):
    """The expert's episodes in the text game."""
    return small.record(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def cloned(recorded, tmp_path_factory):
    """A model that has seen them twice."""
    root = tmp_path_factory.mktemp("cloned")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return small.clone(root, recorded)


@pytest.fixture(scope="session")
def trained_kind(cloned, recorded, tmp_path_factory):
    """`trained_kind(kind)`: an agent of each kind that is asked for, trained once: (folder, metrics)."""

    @cache
    def once(kind):
        root = tmp_path_factory.mktemp("agent")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            return small.train_kind(root, cloned, recorded, kind)

    return once

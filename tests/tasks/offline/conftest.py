"""What several tests of offline stages read: policies of CartPole from random to expert, trained once."""

import pytest

from tests.tasks.offline.worlds import BEHAVIOUR, NO_FILES


@pytest.fixture(scope="session")
def cart(one_thread, tmp_path_factory):
    """The outs and the metrics of the stage `behaviour` for CartPole."""
    from tasks.offline import behaviour

    out = tmp_path_factory.mktemp("cart") / "CartPole-v1"
    return out, behaviour.run(BEHAVIOUR, NO_FILES, out)

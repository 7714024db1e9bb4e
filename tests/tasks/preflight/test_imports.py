"""Data sets of others are read before the behaviour policies of their environments are trained."""

from dataclasses import replace

import pytest

from tasks.common.errors import StageError
from tasks.preflight import ahead
from tests.tasks.foreign import NAN, WHOLE, with_value
from tests.tasks.offline.datasets.test_imported_d4rl import flat
from tests.tasks.preflight.test_data import given

STEPS = sum(map(len, WHOLE))


def importing(tmp_path, *, location="hopper.hdf5", environment="Hopper-v5", source="d4rl"):
    own = {"environment": environment, "source": source, "location": location, "steps": None, "episodes": None}
    return given(transitions={"path": str(tmp_path), "datasets": {"theirs": own}})


def fault(configs, stages):
    with pytest.raises(StageError) as stopped:
        list(ahead.lines(configs, stages))
    return str(stopped.value)


def test_an_import_is_counted_with_its_spaces(tmp_path):
    flat(tmp_path / "hopper.hdf5", WHOLE)
    [line] = ahead.lines(importing(tmp_path), {"transitions@theirs", "behaviour@Hopper-v5"})
    counted = f"transitions: theirs: 3 episodes of {STEPS} steps in Hopper-v5"
    assert line == f"{counted}: 11 numbers an observation, 3 numbers an action"


@pytest.mark.parametrize("made", [(), ("behaviour@Hopper-v5",)])
def test_a_fault_in_it_is_found_whatever_was_made_before(tmp_path, made):
    """In the file itself, in its values, and in how they fit the environment."""
    stages = {"transitions@theirs", "behaviour@Hopper-v5", "bc@theirs"} - {*made}
    assert "data set theirs: " in fault(importing(tmp_path, location="none.hdf5"), stages)
    first, second, *others = WHOLE
    torn = replace(second, rewards=with_value(second.rewards, 1, NAN))
    flat(tmp_path / "hopper.hdf5", [first, torn, *others])
    assert fault(importing(tmp_path), stages) == "data set theirs: episode 1: rewards: nan at step 1"
    flat(tmp_path / "hopper.hdf5", WHOLE)
    assert "data set theirs: hopper.hdf5: episode 0: " in fault(importing(tmp_path, environment="CartPole-v1"), stages)


def test_a_behaviour_policy_is_not_trained_without_a_word_on_what_follows(tmp_path):
    [line] = ahead.lines(importing(tmp_path), {"behaviour@Hopper-v5"})
    assert "transitions@theirs would end with: data set theirs: " in line
    flat(tmp_path / "hopper.hdf5", WHOLE)
    assert not list(ahead.lines(importing(tmp_path), {"behaviour@Hopper-v5"}))
    assert not list(ahead.lines(importing(tmp_path, location="none.hdf5"), {"bc@theirs", "report"}))

"""Faults in what the sections of the agents flow name of each other are told at once: one line with the key and what
was expected.
"""

from pathlib import Path

import pytest

from flows.params import editing
from flows.params.files import ParameterError
from tests import repository
from tests.conftest import SECTIONS

ROOT = Path(__file__).parents[3]
REFERRED = {  # refused at once, since names by which sections refer to each other must always be right
    "branches.agents.rooms-ppo.environment=roms": (
        "branches.agents.rooms-ppo.environment: expected a key of branches.expert_episodes (did you "
        "mean rooms?), got 'roms'"
    ),
    "agents_report.policies.rooms-ppo.branch=rooms-poo": (
        "agents_report.policies.rooms-ppo.branch: expected a key of branches.agents (did you mean rooms-ppo?), got "
        "'rooms-poo'"
    ),
    "branches.agents.rooms-ppo.clone=roms": (
        "branches.agents.rooms-ppo.clone: expected a key of branches.expert_episodes (did you mean rooms?), got 'roms'"
    ),
    "branches.expert_episodes.rooms.episodes=0": (
        "branches.expert_episodes.rooms.episodes: expected at least 1, since branches.agents.rooms-reinforce.clone "
        "names it, got 0"
    ),
    "agents_report.policies.rooms-ppo.environment=aritmetic": (
        "agents_report.policies.rooms-ppo.environment: expected a key of branches.expert_episodes (did you mean "
        "arithmetic?), got 'aritmetic'"
    ),
    "agents_report.expectations=[{higher: rooms-ppo, lower: rooms-clone, by: learning}]": (
        "agents_report.expectations.0.lower: expected a policy of the stage agents, whose training is known, got "
        "rooms-clone"
    ),
    "agents_report.expectations=[{higher: rooms-ppo, lower: rooms-clon, by: return}]": (
        "agents_report.expectations.0.lower: expected a key of agents_report.policies (did you mean rooms-clone?), "
        "got 'rooms-clon'"
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    repository.write_params(tmp_path)
    return tmp_path


@pytest.mark.parametrize("setting", REFERRED)
def test_agents_play_where_there_is_an_environment(root: Path, setting: str) -> None:
    with pytest.raises(ParameterError) as caught:
        editing.edit_params(root, SECTIONS, [editing.parse_setting(setting)])
    assert str(caught.value) == f"--set {REFERRED[setting]}"


BOUGHT = "{environment: rooms, clone: rooms, source: teacher, dollars: 9.0, learning_rate: 0.1}"


@pytest.mark.parametrize(
    ("teacher", "expected"),
    [
        ("rooms", "branches.budgets.one.clone: expected another clone than the teacher's, rooms"),
        ("room", "budgets.teacher: expected a key of branches.expert_episodes (did you mean rooms?), got 'room'"),
    ],
)
def test_who_learns_is_not_its_own_teacher(root: Path, teacher: str, expected: str) -> None:
    with pytest.raises(ParameterError) as caught:
        editing.edit_params(
            root,
            SECTIONS,
            [
                editing.parse_setting(f"budgets.teacher={teacher}"),
                editing.parse_setting(f"branches.budgets={{one: {BOUGHT}}}"),
            ],
        )
    assert str(caught.value).removeprefix("--set ").removeprefix("params.yaml: ") == expected


def test_other_sizes_are_of_a_clone_that_there_is(root: Path) -> None:
    with pytest.raises(
        ParameterError, match=r"behaviour_cloning\.sizes\.room: expected a key of branches.expert_episodes"
    ):
        editing.edit_params(
            root, SECTIONS, [editing.parse_setting("behaviour_cloning.sizes={room: {width: 64, layers: 1, heads: 2}}")]
        )

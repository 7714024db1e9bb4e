"""What must fit together with `steering` is told before a run."""

from pathlib import Path

import pytest

from flows.params import editing
from flows.params.files import ParameterError
from tests import repository
from tests.conftest import SECTIONS

NEEDED = {"reward_model", "solutions", "steering", "steering@page"}


def test_steering_is_measured_by_a_reward_model_of_answers(tmp_path: Path) -> None:
    repository.write_params(tmp_path)
    with pytest.raises(
        ParameterError, match=r"steering\.reward_model_path: expected .* outcome, got .*, of objective pairs"
    ):
        editing.check_params_consistency(tmp_path, SECTIONS, NEEDED, NEEDED)
    editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting("steering.reward_model_path=mine")])
    with pytest.raises(ParameterError, match=r"outcome, got 'mine', which holds no model"):
        editing.check_params_consistency(tmp_path, SECTIONS, NEEDED, NEEDED)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text('{"reward_objective": "outcome"}')
    editing.check_params_consistency(tmp_path, SECTIONS, NEEDED, NEEDED)

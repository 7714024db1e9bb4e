"""Faults in the parts `training` and `lora` of a section are told in one line; idle keys in them are named."""

from pathlib import Path

import pytest

from flows.params import editing
from flows.params.files import ParameterError
from tests import repository
from tests.conftest import SECTIONS

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parent.parent


def edited(folder, *settings):
    repository.write_params(folder)
    return editing.edit_params(folder, SECTIONS, [editing.parse_setting(text) for text in settings])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            ["sft.training.accumulate=0"],
            "sft.training.accumulate: expected a whole number of at least 1 and of at most 1000000, got 0",
        ),
        (
            ["ppo.training.precision=fp16"],
            "ppo.training.precision: expected 'fp32' or 'bf16' or 'pure_bf16', got 'fp16'",
        ),
        (["dpo.training.betas=[0.9, 1]"], "dpo.training.betas.1: expected a number of at least 0 and below 1, got 1"),
        (
            ["sft.lora={rank: 8, alpha: 16, dropout: 0.1, targets: all, merge: true}"],
            "sft.lora.targets: expected 'all-linear' or a list of names of layers, got 'all'",
        ),
        (["grpo.lora={rank: 8}"], "grpo.lora.alpha: missing; expected a number above 0"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_value_is_one_line_and_the_file_stays(tmp_path, settings, line):
    with pytest.raises(ParameterError) as told:
        edited(tmp_path, *settings)
    assert str(told.value) == f"--set {line}"
    assert (tmp_path / "params.yaml").read_bytes() == repository.params_text().encode()


def test_one_key_of_a_part_is_set_and_an_idle_one_named(tmp_path):
    assert edited(tmp_path, "sft.training.accumulate=4") == ["sft.training.accumulate: 1 -> 4"]
    assert edited(tmp_path, "sft.training.schedule=constant") == [
        "sft.training.schedule: 'cosine' -> 'constant'",
        "sft.training.final_rate does nothing with sft.training.schedule constant",
    ]


def test_an_adapter_is_set_whole_and_then_by_key(tmp_path):
    whole = "sft.lora={rank: 8, alpha: 16, dropout: 0.1, targets: all-linear, merge: true}"
    assert edited(tmp_path, whole) == ["sft.lora: null -> {rank, alpha, dropout, targets, merge}"]
    again = [editing.parse_setting("sft.lora.rank=4")]
    assert editing.edit_params(tmp_path, SECTIONS, again) == ["sft.lora.rank: 8 -> 4"]
    assert editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting("sft.lora=null")]) == [
        "sft.lora: {rank, alpha, dropout, targets, merge} -> null"
    ]

"""What a parameter means, from this repository's own Configs."""

from pathlib import Path

import pytest

from flows.params.explaining import explain_param
from flows.params.files import ParameterError
from tests.conftest import PARAMS

ROOT = Path(__file__).parents[3]


def test_a_key_is_told_with_its_value_and_what_it_may_be() -> None:
    [line] = explain_param(ROOT, "dpo.beta")
    assert line == (
        f"dpo.beta = {PARAMS['dpo']['beta']}: Pull towards the reference; a small one trusts the pairs more. "
        "Expected: a number above 0."
    )


def test_a_section_is_told_key_by_key() -> None:
    title, *lines = explain_param(ROOT, "grpo")
    assert title.startswith("grpo: How advantages are made")
    keys = [line.split(" = ")[0].split(":")[0] for line in lines]
    assert {key.removeprefix("grpo.").split(".")[0] for key in keys} == set(PARAMS["grpo"])
    assert "grpo.reward" in keys


def test_what_the_user_named_is_told_by_that_name() -> None:
    assert explain_param(ROOT, "bc.shares")[0].startswith("bc.shares = {")
    [line] = explain_param(ROOT, "branches.transitions.graph-60.episodes")
    assert line.startswith("branches.transitions.graph-60.episodes = 60: ")


def test_the_entries_of_a_list_are_told_by_their_numbers() -> None:
    heading, *lines = explain_param(ROOT, "mixture.datasets")
    assert heading == "mixture.datasets: Data sets that are mixed."
    [first] = PARAMS["mixture"]["datasets"]
    assert [line.split(" = ")[0] for line in lines if " = " in line] == [f"mixture.datasets.0.{key}" for key in first]
    assert explain_param(ROOT, "mixture.datasets.0.weight")[0].startswith("mixture.datasets.0.weight = 1.0: Weight of")
    with pytest.raises(ParameterError, match=r"^mixture.datasets.1: no parameter of mixture.datasets \(there are 0\)$"):
        explain_param(ROOT, "mixture.datasets.1")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("grop", "grop: no section of params.yaml (did you mean grpo?)"),
        ("dpo.bta", "dpo.bta: no parameter of dpo (did you mean beta?)"),
        ("dpo.beta.x", "dpo.beta.x: no parameter of dpo.beta"),
    ],
)
def test_what_there_is_not_is_one_line(key: str, told: str) -> None:
    with pytest.raises(ParameterError) as caught:
        explain_param(ROOT, key)
    assert str(caught.value) == told


def test_a_torn_schema_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "params.schema.json").write_text("{")
    with pytest.raises(
        ParameterError, match=r"^params.schema.json: line 1: not valid JSON; `make contract` writes it$"
    ):
        explain_param(tmp_path, "dpo")

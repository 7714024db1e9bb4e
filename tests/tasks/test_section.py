"""A section of params.yaml as a stage reads it."""

import json

import pytest
from pydantic import Field, ValidationError

from tasks.common.config import Config
from tasks.common.errors import ConfigError
from tasks.stage import read_section


class ToyConfig(Config):
    seed: int
    rate: float = Field(gt=0)
    name: str


GOOD = {"seed": 3, "rate": 1, "name": "a"}


def section(tmp_path, text):
    file = tmp_path / "params.yaml"
    file.write_text(text)
    return read_section("toy", ToyConfig, file)


def test_a_section_becomes_a_config(tmp_path):
    config = section(tmp_path, "toy:\n  seed: 3\n  rate: 1e-3  # YAML 1.2, as DVC reads it\n  name: a\nother: {}\n")
    assert config == ToyConfig(seed=3, rate=0.001, name="a")
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": "high"}, "toy.rate: expected a number above 0, got 'high'"),
        ({"rate": 0}, "toy.rate: expected a number above 0, got 0"),
        ({"seed": 1.5}, "toy.seed: expected a whole number, got 1.5"),
        ({"seed": "1"}, "toy.seed: expected a whole number, got '1'"),
        ({"seed": True}, "toy.seed: expected a whole number, got true"),
        ({"name": 3}, "toy.name: expected text, got 3"),
        ({"speed": 1}, "toy.speed: unknown parameter; did you mean toy.seed?"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, change, said):
    with pytest.raises(ConfigError) as stopped:
        section(tmp_path, json.dumps({"toy": {**GOOD, **change}}))
    assert str(stopped.value).startswith(f"{tmp_path}/params.yaml: {said}")
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize("value", [".nan", ".inf"])
def test_no_number_that_is_none(tmp_path, value):
    with pytest.raises(ConfigError, match=r"toy\.rate: "):
        section(tmp_path, f"toy: {{seed: 3, rate: {value}, name: a}}")


def test_missing_things_are_named(tmp_path):
    for text in ("", "other: {}", "toy:"):
        with pytest.raises(ConfigError, match=r"params\.yaml: toy: missing; expected keys with values"):
            section(tmp_path, text)
    with pytest.raises(ConfigError, match=r"toy\.name: missing; expected text"):
        section(tmp_path, "toy: {seed: 3, rate: 1}")

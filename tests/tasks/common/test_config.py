"""Sections of params.yaml: types that several share, and that nothing heavy is imported to check them."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from tasks.common.config import Branch, Config, Distinct, Name
from tests.conftest import PARAMS

ROOT = Path(__file__).parents[3]


class Toy(Config):
    """A section."""

    names: Annotated[list[str], Field(min_length=1), Distinct]
    files: dict[Name, float]
    branches: dict[Branch, float]


GOOD = {"names": ["a", "b"], "files": {"10%BC, a.b": 0.1}, "branches": {"Hopper-v5": 1}}


def test_a_section_is_read() -> None:
    assert Toy.parse_section(GOOD).model_dump() == GOOD


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"names": ["a", "a"]}, ("names",)),
        ({"names": []}, ("names",)),
        ({"files": {"../a": 0.1}}, ("files", "../a", "[key]")),
        ({"files": {"/a": 0.1}}, ("files", "/a", "[key]")),
        ({"branches": {"a b": 0.1}}, ("branches", "a b", "[key]")),
        ({"files": {"a": float("nan")}}, ("files", "a")),
        ({"files": {"a": "0.1"}}, ("files", "a")),
        ({"other": 1}, ("other",)),
    ],
)
def test_what_it_cannot_be_is_refused(change: dict[str, object], at: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        Toy.parse_section({**GOOD, **change})
    assert [error["loc"] for error in caught.value.errors()] == [at]


HEAVY = ("torch", "numpy", "pandas", "transformers", "gymnasium", "mlflow", "prefect", "dvc")
LOOK = f"""
import sys
from pathlib import Path
from flows.params import checking, editing
editing.check_params(Path("."), checking.load_config_classes(Path(".")))
print([name for name in {HEAVY} if name in sys.modules], *checking.load_config_classes(Path(".")))
"""


def test_all_sections_are_checked_without_anything_that_learns() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy, *names = done.stdout.split()
    assert heavy == "[]"
    assert set(names) == set(PARAMS)

"""A params.yaml from a stranger: no value reaches a shell, and no name leads out of data/."""

import json
from pathlib import Path

import pytest

from flows.params import editing
from flows.params.files import ParameterError
from tests import repository
from tests.clone import ROOT, Clone
from tests.conftest import SECTIONS
from tests.test_contract import PIPELINE

PATHS = [
    "data/raw/$(touch pwned)",
    "data/raw/`touch pwned`; touch pwned",
    'data/raw/it\'s my "ünï" data & more',
]
NAMES = ["../../escaped", "/escaped", "a/b", "..", ".hidden", "", "a\nb", "$(touch pwned)", "n" * 101]
NAMED = {
    "bc.shares": 1.0,
    "decision_transformer.variants": {"init": "random", "text": 0.0},
    "cql.variants": {"discrete": 0.5, "continuous": 5.0, "calibrated": False, "online": False},
    "dqn.variants": {"double": True, "target": True, "replay": True, "online": False, "relabel": "none"},
    "transitions.datasets": {
        "environment": "graph",
        "source": "random",
        "location": None,
        "steps": None,
        "episodes": 9,
    },
}


@pytest.mark.parametrize(
    ("how", "path"),
    [
        ("posttrain", PATHS[0]),
        ("dvc", PATHS[-1]),
        *(pytest.param("posttrain", path, marks=pytest.mark.slow) for path in PATHS[1:]),
        *(pytest.param("dvc", path, marks=pytest.mark.slow) for path in PATHS[:-1]),
    ],
)
def test_a_path_is_a_path_whatever_it_is_made_of(tmp_path: Path, path: str, how: str) -> None:
    clone = Clone.of_this(
        tmp_path / "clone", {"problems": {"source": "files", "path": path, "validation": 1, "test": 1}}
    )
    (clone.root / path).mkdir(parents=True)
    for split, first in (("train", 2), ("test", 9)):
        rows = [
            {
                "question": f"Ann has {n} apples and buys 3. How many are there?",
                "answer": f"{n}+3={n + 3}\n#### {n + 3}",
            }
            for n in range(first, first + 4)
        ]
        (clone.root / path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if how == "posttrain":
        clone.posttrain("run", "problems")
    else:
        clone.dvc("repro", "problems")
    assert clone.lock["problems"]["deps"][0]["path"] == path
    assert (clone.root / "data/problems/test.parquet").is_file()
    assert [*tmp_path.rglob("pwned")] == []


def test_no_command_has_a_value_of_params_yaml_in_it() -> None:
    """DVC would insert values unquoted. `${item.policy}` is a name that dvc.yaml itself lists."""
    for name, stage in PIPELINE["stages"].items():
        command = stage.get("do", stage)["cmd"]
        assert "${" not in (command.replace("${item.policy}", "") if "matrix" in stage else command), name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", NAMED)
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, key: str, name: str) -> None:
    for file in ("params.yaml", "params.schema.json"):
        (tmp_path / file).write_text((ROOT / file).read_text())
    with pytest.raises(ParameterError, match=rf"--set {key}: expected text of ") as caught:
        editing.edit(tmp_path, SECTIONS, [editing.setting(f"{key}={json.dumps({name: NAMED[key]})}")])
    assert "\n" not in str(caught.value)
    assert (tmp_path / "params.yaml").read_text() == repository.params_text()

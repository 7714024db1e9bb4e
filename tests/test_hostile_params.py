"""A params.yaml from a stranger: no value reaches a shell, and no name leads out of data/."""

import json
from pathlib import Path
from typing import Any

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from flows.params import editing
from flows.params.files import ParameterError
from tests import repository
from tests.clone import ROOT, Clone
from tests.conftest import PARAMS, SECTIONS
from tests.flows.conftest import make_toy, template  # noqa: F401  # fixtures

PIPELINE = YAML(typ="safe").load(ROOT / "dvc.yaml")
PATH = 'data/raw/it\'s my "ünï" data $(touch pwned) `touch pwned`; touch pwned & more'
SECTION = {"source": "files", "path": PATH, "validation": 1, "test": 1}
NAMES = ["../../escaped", "/escaped", "a/b", "..", ".hidden", "", "a\nb", "$(touch pwned)", "n" * 101]
NAMED = {
    "bc.shares": 1.0,
    "decision_transformer.variants": {"init": "random", "text": 0.0},
    "cql.variants": {"discrete": 0.5, "continuous": 5.0, "calibrated": False, "online": False},
    "dqn.variants": {"double": True, "target": True, "replay": True, "online": False, "relabel": "none"},
    "branches.transitions": {
        "environment": "graph",
        "source": "random",
        "location": None,
        "steps": None,
        "episodes": 9,
    },
}


def write_problems(root: Path) -> None:
    (root / PATH).mkdir(parents=True)
    for split, first in (("train", 2), ("test", 9)):
        rows = [
            {
                "question": f"Ann has {n} apples and buys 3. How many are there?",
                "answer": f"{n}+3={n + 3}\n#### {n + 3}",
            }
            for n in range(first, first + 4)
        ]
        (root / PATH / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.slow
def test_a_path_is_a_path_whatever_it_is_made_of(
    make_toy: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The stage as dvc.yaml has it, but for the code that it depends on, run by the engine; DVC finds nothing to do
    after it.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("POSTTRAIN_RECORDS", str(tmp_path / "records"))
    toy = make_toy("toy")
    stage = PIPELINE["stages"]["problems"]
    code = [dep for dep in stage["deps"] if dep.endswith(".py")]
    toy.stages["problems"] = {**stage, "deps": [dep for dep in stage["deps"] if dep not in code]}
    toy.set(problems={**PARAMS["problems"], **SECTION})
    write_problems(toy.root)
    assert toy.states() == {"problems": "ran"}
    assert toy.lock["stages"]["problems"]["deps"][0]["path"] == PATH
    assert (toy.root / "data/problems/test.parquet").is_file()
    with Repo(str(toy.root)) as repo:
        assert repo.status() == {}
    assert [*tmp_path.rglob("pwned")] == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["posttrain", "dvc"])
def test_a_command_takes_a_path_whatever_it_is_made_of(tmp_path: Path, how: str) -> None:
    clone = Clone.of_this(tmp_path / "clone", {"problems": SECTION})
    write_problems(clone.root)
    if how == "posttrain":
        clone.posttrain("run", "problems")
    else:
        clone.dvc("repro", "problems")
    assert clone.lock["problems"]["deps"][0]["path"] == PATH
    assert (clone.root / "data/problems/test.parquet").is_file()
    assert [*tmp_path.rglob("pwned")] == []


@pytest.mark.tree
def test_no_command_has_a_value_of_params_yaml_in_it() -> None:
    """DVC would insert values unquoted. `${item.policy}` is a name that dvc.yaml itself lists."""
    for name, stage in PIPELINE["stages"].items():
        command = stage.get("do", stage)["cmd"]
        assert "${" not in (command.replace("${item.policy}", "") if "matrix" in stage else command), name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", NAMED)
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, key: str, name: str) -> None:
    repository.write_params(tmp_path)
    with pytest.raises(ParameterError, match=rf"--set {key}: expected text of ") as caught:
        editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting(f"{key}={json.dumps({name: NAMED[key]})}")])
    assert "\n" not in str(caught.value)
    assert (tmp_path / "params.yaml").read_text() == repository.params_text()

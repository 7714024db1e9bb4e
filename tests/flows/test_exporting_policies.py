"""`posttrain export` of an offline policy: files that act, and a card that says what the records say."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from flows import exporting
from flows.engine.mlflow_flow_recorder import FlowRecorder
from tasks.algorithms.offline.networks.mlp import QValues
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.offline.policies import files
from tests.flows.engine.toy import Toy
from tests.flows.inline_modules import run_module
from tests.flows.lineage.quick import copied, quick
from tests.flows.toy_pipeline import call

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated")
COPY = """
import json, pathlib, shutil
shutil.copytree("policies", "data/cql/set")
pathlib.Path("data/metrics").mkdir(exist_ok=True)
pathlib.Path("data/metrics/cql@set.json").write_text(json.dumps({"CQL": {"td_error": 0.25}, "other": {"td_error": 9.0}}))
"""  # noqa: E501
RETURNS = """
import json, pathlib
pathlib.Path("data/metrics/returns@cql-set.json").write_text(json.dumps({"CQL": {"return": 123.0}, "other": {"return": 5.0}}))
"""  # noqa: E501


@pytest.fixture(scope="module")
def once(template: Path, empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A pipeline cql@set -> returns@cql-set of two variants, which has run and is on record."""
    shutil.copytree(template, root := tmp_path_factory.mktemp("once") / "toy")
    toy = Toy(root)
    for variant in ("CQL", "other"):
        files.save_policy(QValues(Spaces(4, 2, discrete=True), [8], 0.9), toy.root / "policies" / variant / "seed-0")
    toy.write("learn.py", COPY)
    toy.write("measure.py", RETURNS)
    toy.stages["cql"] = {
        "foreach": ["set"],
        "do": {
            "cmd": "python learn.py",
            "deps": ["learn.py", "policies"],
            "outs": ["data/cql/${item}", "data/metrics/cql@${item}.json"],
            "desc": "A toy",
        },
    }
    toy.stages["returns"] = {
        "foreach": ["cql-set"],
        "do": {
            "cmd": "python measure.py",
            "deps": ["measure.py", "data/cql/set"],
            "outs": ["data/metrics/returns@${item}.json"],
        },
    }
    toy.set()
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    with quick():
        toy.run(recorder=FlowRecorder(toy.root, "offline"))
    return toy


@pytest.fixture
def trained(once: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    monkeypatch.setitem(sys.modules, "onnx", None)  # ONNX takes ten seconds
    monkeypatch.setattr(exporting, "subprocess", SimpleNamespace(run=run_module))
    return copied(once, tmp_path / "toy")


def test_a_policy_leaves_with_its_card(trained: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "lander"
    code, _, error = call(trained.root, "export", "data/cql/set/CQL/seed-0", str(target))
    assert (error, code) == ("", 0)
    card = (target / "README.md").read_text()
    assert card.startswith("# lander\n\nA toy. QValues with 58 weights: from an observation of 4 numbers")
    assert "to one of 2 actions" in card
    assert re.search(r"\| `return` \| 123 \|  \| The mean return of whole episodes", card)
    assert "| `td_error` | 0.25 |" in card
    assert "9" not in re.findall(r"`td_error` \| (\S+)", card)
    [md5] = [
        out["md5"]
        for stage in trained.lock["stages"].values()
        for out in stage["outs"]
        if out["path"] == "data/cql/set"
    ]
    assert f"| `data/cql/set` | {md5} | cql@set |" in card
    assert card.endswith("and write it here.\n")
    monkeypatch.chdir(target)
    said: list[object] = []
    exec(re.findall("```python\n(.*?)```", card, re.DOTALL)[0], {"print": said.append})
    [action] = said
    assert isinstance(action, torch.Tensor)
    assert action.shape == (1,)
    assert json.loads((target / "config.json").read_text())["kind"] == "QValues"


def test_a_stage_of_several_policies_names_one(trained: Toy, tmp_path: Path) -> None:
    code, out, error = call(trained.root, "export", "cql@set", str(tmp_path / "new"))
    assert (code, out) == (2, "")
    expected = "cql@set: this stage makes 2 policies; name one, such as data/cql/set/CQL/seed-0"
    assert error == f"posttrain: {expected}\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("folder", "count"), [("data/cql/set", 2), ("data/cql/set/CQL", 1)])
def test_a_folder_of_several_policies_names_one(trained: Toy, tmp_path: Path, folder: str, count: int) -> None:
    code, out, error = call(trained.root, "export", folder, str(tmp_path / "new"))
    assert (code, out) == (2, "")
    assert error == f"posttrain: {folder}: {count} policies are in it; name one, such as data/cql/set/CQL/seed-0\n"
    assert not (tmp_path / "new").exists()


def test_a_policy_that_was_changed_since_is_refused(trained: Toy, tmp_path: Path) -> None:
    file = trained.root / "data/cql/set/other/seed-0/model.safetensors"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content + b"x")
    code, _, error = call(trained.root, "export", "data/cql/set/CQL/seed-0", str(tmp_path / "new"))
    assert code == 2
    assert "data/cql/set: not as cql@set made it" in error

"""`posttrain verify` on the real stages: a policy and its evaluation are made again to the bit; minutes, and so
slow.
"""

import copy
import dataclasses
from pathlib import Path

import pytest

from flows.lineage import verifying
from tests.clone import Clone
from tests.test_pipeline import TINY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A tiny clone in which dpo and its evaluation ran, before the code and the parameters changed."""
    clone = Clone.of_this(tmp_path_factory.mktemp("clone") / "posttrain", TINY)
    clone.posttrain("run", "evaluate@dpo")
    loss = clone.root / "tasks/algorithms/language/dpo.py"
    loss.write_text("raise SystemExit('not the code that ran')\n")
    clone.edit({"dpo": {"beta": 9.0}})
    return clone


@pytest.mark.parametrize("stage", [pytest.param("dpo", marks=pytest.mark.core), "evaluate@dpo"])
def test_equal_to_the_bit(clone: Clone, stage: str) -> None:
    before = (clone.root / "mlruns/mlflow.db").read_bytes()
    found = clone.posttrain("verify", stage)
    assert (found["verdict"], found["differences"], found["step"], found["notes"]) == ("equal", [], None, [])
    assert found["run_id"]
    assert found["commit"] == clone.call("git", "rev-parse", "HEAD").strip()
    assert (clone.root / "mlruns/mlflow.db").read_bytes() == before


def test_another_seed_on_record_gives_the_first_tensor_and_step(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clone.root)
    of = verifying.resolve_execution_record(clone.root, "dpo")
    entry = copy.deepcopy(dict(of.entry))
    entry["params"]["params.yaml"]["dpo"]["seed"] += 1
    steps: list[int] = []
    found = verifying.verify_execution(
        clone.root,
        dataclasses.replace(of, entry=entry),
        lambda line: None,
        lambda step, total, seconds, measure: steps.append(step),
    )
    assert found.verdict == "differs"
    by_path = {difference.path: difference.facts for difference in found.differences}
    assert by_path.keys() == {"data/curves/dpo.csv", "data/dpo/model.safetensors", "data/metrics/dpo.json"}
    weights = by_path["data/dpo/model.safetensors"]
    assert weights["tensor"] == "model.embed_tokens.weight"
    assert 0 < weights["largest"] < 0.1
    assert by_path["data/curves/dpo.csv"]["step"] == "1"
    assert found.step is not None
    assert found.step.step == 1
    assert found.step.recorded != found.step.made
    assert found.environment == {}
    assert steps


def test_a_dirty_tree_and_no_commit_at_all(clone: Clone, tmp_path: Path) -> None:
    """Uncommitted code that a stage ran with comes back from the patch of its run."""
    twin = clone.twin(tmp_path / "twin")
    table = twin.root / "tasks/language/data/forms.py"
    table.write_text(table.read_text() + "\n# uncommitted\n")
    twin.posttrain("run", "problems")
    twin.call("git", "checkout", "--quiet", "tasks")
    found = twin.posttrain("verify", "problems")
    assert (found["verdict"], found["notes"]) == ("equal", [])

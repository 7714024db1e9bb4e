"""Acceptances that were forged, changed or taken away: an audit names each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_seal, mlflow_store
from flows.engine.edits import facts
from flows.lineage import record
from flows.lineage.acceptance import accepting
from flows.lineage.acceptance.kept import HOW, Step
from tests.flows.lineage.audited import Audited, replace
from tests.flows.lineage.edited import accept_edits, comment

NAMES = ["a", "b", "c", "evaluate@b", "evaluate@c", "report"]


@pytest.fixture(scope="module")
def accepted_once(audited_once: Audited, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    toy = audited_once.at(tmp_path_factory.mktemp("accepted") / "repository")
    comment(toy)
    accept_edits(toy)
    return toy


@pytest.fixture
def accepted(accepted_once: Audited, tmp_path: Path) -> Audited:
    return accepted_once.at(tmp_path / "repository")


def step_of(toy: Audited, stage: str = "b") -> Step:
    return record.now(toy.root)[stage].accepted[0]


def file_of(toy: Audited, name: str) -> Path:
    return toy.root / f"mlruns/artifacts/{step_of(toy).run_id}/artifacts/{name}"


def change(toy: Audited, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change what the record of the acceptance says."""
    file = file_of(toy, "record.json")
    content = json.loads(file.read_text())
    edit(content["accepted"])
    file.write_text(json.dumps(content))


def seal(toy: Audited, run_id: str) -> None:
    """Seal it anew, as whoever can write the database may."""
    client: MlflowClient = mlflow_store.open_store(toy.root)
    client.set_tag(run_id, mlflow_seal.TAG, mlflow_seal.compute(toy.root, run_id))


def test_code_that_was_changed_and_called_an_edit_without_effect(audited: Audited) -> None:
    """The files, the record, its tag and its seal fit together, and the trees differ all the same."""
    comment(audited)
    replace(audited.root / "helper.py", "sorted(path", "list(path")
    accepting.accept_change(audited.root, "language", NAMES, "no reason")
    run_id = step_of(audited).run_id
    change(audited, lambda content: content.update(how="edit"))
    audited.sql("UPDATE tags SET value = 'edit' WHERE key = ? AND run_uuid = ?", HOW, run_id)
    seal(audited, run_id)
    faults = audited.faults()
    assert len(faults) == 6
    expected = (
        f"acceptance {run_id[:8]}: helper.py differs in more than comments, docstrings and annotations from what ran"
    )
    assert faults[0] == f"{expected} (a, run {run_id[:8]})"
    assert audited.faults("b"), "the chain behind one result too"
    shutil.rmtree(audited.root / f"mlruns/artifacts/{run_id}", ignore_errors=True)
    assert audited.faults(), "nor does it help to take its record away"


def test_a_record_that_was_changed_breaks_its_seal(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id
    change(accepted, lambda content: content.update(by="nobody"))
    expected = f"acceptance {run_id[:8]}: a tag or record.json of this acceptance was changed after it was written"
    assert accepted.faults() == [expected]
    seal(accepted, run_id)
    assert accepted.faults() == [], "by nobody: the name is not proven"


def test_a_person_s_word_in_place_of_a_proof_and_the_other_way_round(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id
    accepted.sql("UPDATE tags SET value = 'person' WHERE key = ? AND run_uuid = ?", HOW, run_id)
    seal(accepted, run_id)
    assert accepted.faults() == [f"acceptance {run_id[:8]}: its tag says person, its record edit"]


def test_other_outs_or_parameters_than_before(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id

    def of_b(content: dict[str, Any]) -> None:
        content["stages"]["b"]["before"]["params"]["params.yaml"]["b"]["beta"] = 0.9

    change(accepted, of_b)
    seal(accepted, run_id)
    faults = accepted.faults()
    assert any("b.beta is 0.9" in line for line in faults)
    assert any("more than edits of code was recorded as an edit without effect (b" in line for line in faults)


def test_an_acceptance_that_was_deleted_leaves_the_code_unexplained(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id
    accepted.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", run_id)
    faults = accepted.faults()
    assert len(faults) == 6 + 1
    assert any(
        line.startswith("a, b, c, evaluate@b, evaluate@c, report: no run on record made these") for line in faults
    )
    what = f"what was accepted after run {accepted.run_of('b')[:8]} had made it, acceptance {run_id[:8]}, was deleted from MLflow"
    assert f"dvc.lock: b: {what} (b, run {accepted.run_of('b')[:8]})" in faults


def test_a_commit_by_force_is_no_acceptance(audited: Audited) -> None:
    replace(audited.root / "helper.py", "sorted(path", "list(path")
    audited.dvc("commit", "--force")
    assert record.now(audited.root)["b"].run_id is None


def test_versions_that_are_gone_are_found_elsewhere_or_that_is_said(accepted: Audited) -> None:
    for file in file_of(accepted, "record.json").parent.glob("*.py"):
        file.write_text("changed\n")
    assert accepted.audit().findings == [], "git has the one, the working tree the other"
    comment(accepted, "# another\n")
    file_of(accepted, "uncommitted.patch").unlink()
    found = accepted.audit()
    assert [one.line.split(":")[0] for one in found.faults] == ["helper.py"], "its stages are out of date"
    assert len(found.remarks) == 6
    assert "whether its edit has no effect cannot be proven again: helper.py cannot be had" in found.remarks[0].line


def test_all_acceptances_are_checked_with_all(accepted: Audited) -> None:
    replace(accepted.root / "helper.py", "sorted(path", "list(path")
    accepted.pipeline()
    assert accepted.audit().counts["accepted changes"] == 0
    found = accepted.audit(everything=True)
    assert found.counts["accepted changes"] == 6
    assert found.findings == []


def test_an_edit_that_stricter_rules_would_not_accept_is_no_fault(
    accepted: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.engine.edits.names.SOURCE", frozenset(["join"]))
    facts.of.cache_clear()
    found = accepted.audit()
    facts.of.cache_clear()
    assert found.faults == []
    assert len(found.remarks) == 6
    assert "what was accepted in helper.py may have an effect by the rules of this version" in found.remarks[0].line

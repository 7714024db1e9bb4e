"""Acceptances that were forged, changed or taken away: an audit names each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_client, mlflow_seal
from flows.lineage import execution_record
from flows.lineage.acceptance.acceptance_runs import HOW, AcceptanceStep
from tests.flows.lineage.audited import Audited, replace
from tests.flows.lineage.edited import accept, comment

NAMES = ["a", "b", "c", "evaluate@b", "evaluate@c", "report"]


@pytest.fixture(scope="module")
def accepted_once(audited_once: Audited, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    toy = audited_once.at(tmp_path_factory.mktemp("accepted") / "repository")
    comment(toy)
    accept(toy)
    return toy


@pytest.fixture
def accepted(accepted_once: Audited, tmp_path: Path) -> Audited:
    return accepted_once.at(tmp_path / "repository")


def step_of(toy: Audited, stage: str = "b") -> AcceptanceStep:
    return execution_record.load_current_records(toy.root)[stage].accepted[0]


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
    client: MlflowClient = mlflow_client.open_mlflow_client_after_recording(toy.root)
    client.set_tag(run_id, mlflow_seal.TAG, mlflow_seal.compute_run_seal(toy.root, run_id))


def test_a_record_that_was_changed_breaks_its_seal(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id
    change(accepted, lambda content: content.update(by="nobody"))
    expected = f"acceptance {run_id[:8]}: a tag or record.json of this acceptance was changed after it was written"
    assert accepted.faults() == [expected]
    seal(accepted, run_id)
    assert accepted.faults() == [], "by nobody: the name is not proven"


def test_a_word_of_an_older_version_in_place_of_a_person_s(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id
    accepted.sql("UPDATE tags SET value = 'edit' WHERE key = ? AND run_uuid = ?", HOW, run_id)
    seal(accepted, run_id)
    assert accepted.faults() == [f"acceptance {run_id[:8]}: its tag says edit, its record person"]


def test_other_outs_or_parameters_than_before(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id

    def of_b(content: dict[str, Any]) -> None:
        content["stages"]["b"]["before"]["params"]["params.yaml"]["b"]["beta"] = 0.9

    change(accepted, of_b)
    seal(accepted, run_id)
    faults = accepted.faults()
    assert any("b.beta is 0.9" in line for line in faults)


def test_what_an_older_version_found_is_told_and_not_proven(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id
    change(accepted, lambda content: content.update(how="edit"))
    accepted.sql("UPDATE tags SET value = 'edit' WHERE key = ? AND run_uuid = ?", HOW, run_id)
    seal(accepted, run_id)
    found = accepted.audit()
    assert (found.faults, len(found.remarks)) == ([], 6)
    assert "an older version found that an edit of helper.py has no effect" in found.remarks[0].line


def test_an_acceptance_that_was_deleted_leaves_the_code_unexplained(accepted: Audited) -> None:
    run_id = step_of(accepted).run_id
    accepted.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", run_id)
    faults = accepted.faults()
    assert len(faults) == 6 + 1
    assert any(
        line.startswith("a, b, c, evaluate@b, evaluate@c, report: no run on record made these") for line in faults
    )
    what = (
        f"what was accepted after run {accepted.run_of('b')[:8]} had made it, acceptance {run_id[:8]}, was "
        "deleted from MLflow"
    )
    assert f"dvc.lock: b: {what} (b, run {accepted.run_of('b')[:8]})" in faults


def test_a_commit_by_force_is_no_acceptance(audited: Audited) -> None:
    replace(audited.root / "helper.py", "sorted(path", "list(path")
    audited.dvc("commit", "--force")
    assert execution_record.load_current_records(audited.root)["b"].run_id is None


def test_all_acceptances_are_checked_with_all(accepted: Audited) -> None:
    replace(accepted.root / "helper.py", "sorted(path", "list(path")
    accepted.pipeline()
    assert accepted.audit().counts["accepted changes"] == 0
    found = accepted.audit(everything=True)
    assert found.counts["accepted changes"] == 6
    assert found.faults == []

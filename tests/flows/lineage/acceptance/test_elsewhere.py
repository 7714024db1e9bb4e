"""Acceptances of another clone."""

import shutil
from pathlib import Path

from flows.lineage import execution_record
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.edited import accept, comment

RECORDS = ".dvc/cache/runs/provenance"


def test_an_acceptance_of_another_clone_comes_with_its_results(audited: Audited, tmp_path: Path) -> None:
    other = audited.at(tmp_path / "other")
    run = audited.run_of("b")
    comment(audited)
    accept(audited)
    for name in ("helper.py", "dvc.lock"):
        shutil.copyfile(audited.root / name, other.root / name)
    assert execution_record.load_current_records(other.root)["b"].run_id is None
    shutil.copytree(
        audited.root / RECORDS, other.root / RECORDS, dirs_exist_ok=True
    )  # as `dvc pull --run-cache` brings them
    found = execution_record.load_current_records(other.root)["b"]
    assert (found.run_id, len(found.accepted)) == (run, 1)
    assert other.audit().faults == []
    assert other.audit().counts["accepted changes"] == 6

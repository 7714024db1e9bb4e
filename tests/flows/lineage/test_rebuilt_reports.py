"""Reports are made again from their tables by an audit: a sentence that nothing made is a fault, whatever the records
say.
"""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from flows.engine.dvc_lock import join_out_hashes
from flows.engine.records import provenance
from flows.lineage import execution_record, verdicts
from flows.lineage.verdicts import ReproductionVerdict
from flows.lineage.verifying import CannotReproduceError
from tests.flows.lineage.audited import Audited, flip


def edit_and_commit(toy: Audited) -> None:
    """Another number in the stage's own page, and in the page beside it, both committed to DVC."""
    for file in (toy.root / "data/report/report.html", toy.root / "report.html"):
        text = file.read_text()
        file.unlink()
        file.write_text(text.replace("<td>0.5</td>", "<td>0.9</td>", 1))
    toy.dvc("commit", "--quiet", "--force", "report")
    assert "<td>0.9</td>" in toy.read("data/report/report.html")


def test_a_report_that_was_edited_and_committed(audited: Audited) -> None:
    edit_and_commit(audited)
    faults = audited.faults()
    assert any(line.startswith("report: no run on record made this") for line in faults), faults


def test_a_report_that_was_edited_and_whose_record_was_made_to_fit(audited: Audited) -> None:
    """By somebody who writes a whole record of a run that never was, as of another clone."""
    run_id = str(execution_record.load_current_records(audited.root)["report"].run_id)
    [true] = [run for run in provenance.list_execution_provenance(audited.root) if run.run_id == run_id]
    edit_and_commit(audited)
    entry = json.loads(json.dumps(audited.lock["stages"]["report"]))
    tags = {**true.tags, "posttrain.outs": join_out_hashes(entry)}
    forged = dataclasses.replace(true, run_id="0" * 32, tags=tags, record={**true.record, "entry": entry})
    provenance.save_provenance(audited.root, forged)
    [fault] = [line for line in audited.faults() if not line.startswith("report.html: ")]
    assert fault.startswith("data/report/report.html: made again from what report read, it differs: line 3: ")
    assert fault.endswith("(report, run 00000000)")


def test_a_report_is_made_again_once_for_each_result(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(
        "flows.lineage.verifying.verify_execution", lambda root, of, *args, **more: made.append(of.stage)
    )
    assert audited.audit().findings == []
    assert made == [], "the template's audit did"
    assert audited.audit(full=True).findings == []
    assert made == ["report"]
    (audited.root / verdicts.PLACE).write_text("torn")
    audited.audit()
    assert made == ["report"] * 2
    flip(audited.root / "data/report/report.md")
    audited.audit()
    assert made == ["report"] * 2, "what is at fault already is not made again"


def test_a_difference_on_another_machine_is_a_remark(audited: Audited) -> None:
    entry = audited.lock["stages"]["b"]
    verdicts.record_reproduction_verdict(
        audited.root, entry, ReproductionVerdict(False, "data/b/model.bin", "byte 3 is another", ["cpu", "torch"])
    )
    audit = audited.audit()
    assert audit.faults == []
    [remark] = audit.remarks
    assert re.match(
        r"data/b/model.bin: made again .*, it differs: byte 3 .*; cpu, torch are not as on record", remark.line
    )


def test_a_report_that_cannot_be_made_again_is_a_remark(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*args: object, **more: object) -> None:
        raise CannotReproduceError("data/x: is gone")

    monkeypatch.setattr("flows.lineage.verifying.verify_execution", cannot)
    (audited.root / verdicts.PLACE).unlink()
    audit = audited.audit()
    assert audit.faults == []
    assert [remark.what for remark in audit.remarks] == ["cannot be made again: data/x: is gone"]


def test_where_nothing_can_be_written_nothing_is_noted(tmp_path: Path) -> None:
    (tmp_path / ".dvc").write_text("a file")
    verdicts.record_reproduction_verdict(tmp_path, {}, ReproductionVerdict(True))
    assert verdicts.read_reproduction_verdict(tmp_path, {}) is None
    assert (tmp_path / ".dvc").read_text() == "a file"

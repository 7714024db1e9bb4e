"""Falsified records that only one check of `audit` sees, and files that have another form than the engine writes."""

import hashlib
import json
import os
import shutil
import sqlite3
from pathlib import Path

from flows.lineage import history
from tests.flows.lineage.audited import Audited, replace


def kept(audited: Audited, run_id: str, name: str) -> Path:
    return audited.root / f"mlruns/artifacts/{run_id}/artifacts/{name}"


OTHER_FORMS = [
    '{"entry": {"deps": 3, "outs": "x"}}',
    '{"entry": {"deps": [{"md5": "0"}]}}',
    '{"entry": {"outs": [{"path": "data/b", "md5": 7}]}}',
    '{"entry": {"params": {"params.yaml": [1]}}}',
    '{"entry": {}, "stage": "b", "environment": 3}',
    '{"entry": {}, "stage": "b", "patch": 7}',
    "[" * 100_000,
]


def test_a_record_of_another_form(audited: Audited) -> None:
    """One form in the record of each stage's run, and then the last form in b's."""
    *forms, last = OTHER_FORMS
    runs = {stage: audited.run_of(stage) for stage in ("a", "b", "c", "evaluate@b", "evaluate@c", "report")}
    torn = "record.json is missing from its files, or is torn; its seal covers it"
    for run_id, content in zip(runs.values(), forms, strict=True):
        kept(audited, run_id, "record.json").write_text(content)
    faults = audited.faults(everything=True)
    assert len(faults) == len(runs), faults
    for stage, run_id in runs.items():
        assert sum(f"MLflow's run of {stage}: {torn} ({stage}, run {run_id[:8]}" in line for line in faults) == 1
    kept(audited, runs["b"], "record.json").write_text(last)
    assert sorted(audited.faults()) == sorted(faults)


def test_a_metric_that_only_mlflow_s_pages_have(audited: Audited) -> None:
    added = (
        "INSERT INTO latest_metrics(key, value, timestamp, run_uuid, step, is_nan) VALUES ('best', 0.99, 1, ?, 0, 0)"
    )
    audited.sql(added, audited.run_of("evaluate@b"))
    audited.sql(added, history.load_pipeline_runs(audited.root)[0].id)
    first, second = audited.faults()
    assert first.startswith(
        "MLflow's run of evaluate@b: MLflow's pages show metric best as 0.99, its history has no value"
    )
    assert second.startswith("pipeline run ")
    assert "MLflow's pages show metric best as 0.99, its history has no value" in second


def test_a_metric_that_mlflow_s_pages_lack(audited: Audited) -> None:
    audited.sql("DELETE FROM latest_metrics WHERE key = 'loss' AND run_uuid = ?", audited.run_of("b"))
    [fault] = audited.faults()
    assert fault.startswith("MLflow's run of b: MLflow's pages do not show metric loss, which its history has")


def test_data_sets_renamed_and_taken_away(audited: Audited) -> None:
    run_id = audited.run_of("b")
    assert audited.sql("DELETE FROM inputs WHERE destination_id = ?", run_id) == 1
    assert [line.partition(", its record.json has ")[0] for line in audited.faults()] == [
        "MLflow's run of b: its data set data/a is missing"
    ]
    audited.sql("UPDATE datasets SET name = 'data/other' WHERE name = 'data/a'")
    faults = [line for line in audited.faults() if line.startswith("MLflow's run of c: ")]
    assert "its data set data/other has the digest " in faults[0]
    assert "its record.json has no such dep" in faults[0]
    assert "its data set data/a is missing" in faults[1]


def test_a_run_that_is_called_failed_is_checked_all_the_same(audited: Audited) -> None:
    run_id = audited.run_of("b")
    audited.sql("UPDATE runs SET status = 'FAILED' WHERE run_uuid = ?", run_id)
    audited.sql("UPDATE metrics SET value = 0.01 WHERE key = 'loss' AND run_uuid = ?", run_id)
    audit = audited.audit()
    assert [finding.line for finding in audit.remarks] == [
        f"b: its run is FAILED: it did not finish (run {run_id[:8]})"
    ]
    assert any("metric loss is 0.01, data/metrics/b.json has 0.25" in finding.line for finding in audit.faults)


def test_a_link_to_a_folder_within_an_out(audited: Audited) -> None:
    """DVC does not see what it leads to, but the next stage reads it."""
    audited.write("elsewhere/more.bin", "x")
    (audited.root / "data/b/more").symlink_to(audited.root / "elsewhere")
    [fault] = audited.faults()
    assert fault.startswith("data/b/more: is not among the files that b made")


def test_what_is_not_hashed_within_raw_data(audited: Audited) -> None:
    """A fault of its own, whether it is a folder elsewhere or a pipe, and the folder's bytes are as they were."""
    audited.write("data/raw/more/x.txt", "x")
    audited.trains("r", "data/raw/more")
    audited.params["r"] = {"rows": 3}
    audited.save()
    audited.commit()
    assert audited.pipeline("r")["r"].state == "ran"
    before = audited.faults("r")
    (audited.root / "data/raw/more/empty").symlink_to(audited.root.parent)
    os.mkfifo(audited.root / "data/raw/more/pipe")
    new = sorted({*audited.faults("r")} - {*before})
    assert [line.partition(" (")[0] for line in new] == [
        f"data/raw/more/empty: a link to {audited.root.parent}, a folder, whose files are not hashed; make it a "
        "folder of links to the files",
        "data/raw/more/pipe: a pipe; expected files and folders",
    ]


def test_git_s_replaced_objects_do_not_count(audited: Audited) -> None:
    """`git replace` shows another file under the recorded commit, and all of git but the history follows it."""
    file = audited.root / "helper.py"
    before, blob = file.read_text(), audited.git("rev-parse", "HEAD:helper.py").strip()
    file.write_text(before + "# changed\n")
    audited.git("replace", blob, audited.git("hash-object", "-w", "helper.py").strip())
    file.write_text(before)
    assert audited.git("show", "HEAD:helper.py") != before
    assert audited.faults() == []


def test_a_page_falsified_wherever_it_is_kept(audited: Audited) -> None:
    """The page in the root, the pipeline run's copy and the noted digest: the seal has the digest too."""
    page, run_id = audited.root / "report.html", history.load_pipeline_runs(audited.root)[0].id
    replace(page, "<td>0.25</td>", "<td>0.05</td>")
    shutil.copyfile(page, kept(audited, run_id, page.name))
    noted = audited.root / ".dvc/tmp/posttrain/pages.json"
    digest = hashlib.sha256(page.read_bytes()).hexdigest()
    noted.write_text(json.dumps({**json.loads(noted.read_text()), page.name: digest}))
    [fault] = audited.faults()
    assert (
        fault
        == f"pipeline run {run_id[:8]}: the copy of report.html that it keeps was edited (report, run {run_id[:8]})"
    )
    tag = "posttrain.page.report.html"
    audited.sql("UPDATE tags SET value = ? WHERE key = ? AND run_uuid = ?", digest, tag, run_id)
    with sqlite3.connect(audited.root / "mlruns/mlflow.db") as records:
        assert [*records.execute("SELECT value FROM tags WHERE key = ? AND run_uuid = ?", [tag, run_id])] == [(digest,)]
    [fault] = audited.faults()
    assert "a tag, a parameter or a metric of the pipeline run was changed after it ended" in fault


def test_an_out_outside_of_the_repository_is_not_read(audited: Audited, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("not of the repository")
    lock = audited.root / "dvc.lock"
    lock.write_text(lock.read_text().replace("path: data/b\n", f"path: {tmp_path}/elsewhere\n", 1))
    assert f"{tmp_path}/elsewhere: is outside of the repository" in "\n".join(audited.faults())
    assert str(tmp_path / "elsewhere") not in (audited.root / ".dvc/tmp/posttrain/digests.json").read_text()

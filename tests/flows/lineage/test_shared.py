"""Several clones with one MLflow: each knows its own runs, sees those of the others, and proves its own results."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.engine.dvc_repository import PlanError
from flows.lineage import history, verifying
from flows.lineage.chain import trace_lineage
from tasks.common import mlflow_address
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.shared import Shared
from tests.flows.lineage.test_chain import flat

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, template: Path, empty_mlflow: Path) -> Shared:
    return Shared.build(tmp_path_factory.mktemp("shared"), template, empty_mlflow)


@pytest.fixture
def shared(made: Shared, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Both have run; a test changes nothing, or puts it back."""
    made.use(monkeypatch)
    return made


def clones(shared: Shared) -> dict[str, Audited]:
    return {mlflow_address.load_or_create_clone_id(one.root): one for one in (shared.first, shared.second)}


def test_each_result_leads_to_the_runs_of_its_own_clone(shared: Shared) -> None:
    """The stage c has the same key and the same bytes in both: each clone names the run that it made itself."""
    for identity, clone in clones(shared).items():
        links = flat(trace_lineage(clone.root, "report"))
        made_by = {path: link.run_id for path, link in links.items() if link.stage}
        assert len(made_by) == 6
        for run_id in made_by.values():
            assert shared.sql("SELECT value FROM tags WHERE run_uuid = ? AND key = 'posttrain.clone'", run_id) == [
                (identity,)
            ]
        assert links["data/raw/x.txt"].note == "raw: no stage makes it"


@pytest.mark.parametrize("everything", [False, True])
def test_both_are_audited_clean(shared: Shared, everything: bool) -> None:
    for clone in (shared.first, shared.second):
        found = clone.audit(everything=everything, full=True)
        assert [fault.line for fault in found.faults] == []
        assert [remark.line for remark in found.remarks if "git" not in remark.line] == []
        assert found.counts["runs"] == 7, "six stages and the pipeline run"


def test_the_repository_s_own_database_stays_empty(shared: Shared) -> None:
    for clone in (shared.first, shared.second):
        with closing(sqlite3.connect(clone.root / "mlruns/mlflow.db")) as records:
            assert records.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_pipeline_runs_of_all_are_listed_and_each_follows_its_own(shared: Shared) -> None:
    everywhere = history.load_pipeline_runs(shared.first.root)
    assert len(everywhere) == 2
    assert {run.name for run in everywhere} == {"first run: 6 ran"}, "another clone's run is not the one before"
    for clone in (shared.first, shared.second):
        [own] = history.load_pipeline_runs(clone.root, clone_only=True)
        assert own in everywhere
        assert history.get_pipeline_run(clone.root, own.id[:8]) == own
        assert history.load_pipeline_runs(clone.root, 1, "language", clone_only=True) == [own]
    with pytest.raises(PlanError, match="no pipeline run has this id"):
        history.get_pipeline_run(shared.first.root, "no-such-run")


def test_a_change_in_the_shared_records_is_found(shared: Shared) -> None:
    run_id = trace_lineage(shared.first.root, "b").run_id
    [(params,)] = shared.sql("SELECT value FROM params WHERE run_uuid = ? AND key = 'b.beta'", run_id)
    shared.sql("UPDATE params SET value = '0.9' WHERE run_uuid = ? AND key = 'b.beta'", run_id)
    assert "parameter b.beta is 0.9, its record.json has 0.1" in " ".join(shared.first.faults())
    assert shared.second.faults() == []
    shared.sql("UPDATE params SET value = ? WHERE run_uuid = ? AND key = 'b.beta'", params, run_id)
    assert shared.first.faults() == []


def test_a_change_of_a_kept_file_is_found(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = str(trace_lineage(shared.first.root, "b").run_id)
    [(place,)] = shared.sql("SELECT artifact_uri FROM runs WHERE run_uuid = ?", run_id)
    file = Path(str(place)) / "record.json"
    before = file.read_text()
    file.write_text(before.replace('"beta": 0.1', '"beta": 0.7'))
    forget(monkeypatch)
    assert "0.7" in " ".join(shared.first.faults())
    file.unlink()
    forget(monkeypatch)
    assert "record.json is missing from its files" in " ".join(shared.first.faults())
    file.write_text(before)
    forget(monkeypatch)
    assert shared.first.faults() == []


def test_a_stage_is_made_again_and_its_scratch_copy_records_nothing_there(shared: Shared) -> None:
    before = shared.sql("SELECT count(*) FROM runs")
    root = shared.second.root
    found = verifying.verify_execution(
        root, verifying.resolve_execution_record(root, "b"), lambda line: None, lambda *_: None
    )
    assert found.verdict == "equal"
    assert found.record.run_id == trace_lineage(root, "b").run_id
    assert shared.sql("SELECT count(*) FROM runs") == before


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process would not know: the files that this one has fetched."""
    from flows.engine.records import mlflow_artifacts

    mlflow_artifacts._create_download_folder_once.cache_clear()
    mlflow_artifacts._get_listing_cache.cache_clear()

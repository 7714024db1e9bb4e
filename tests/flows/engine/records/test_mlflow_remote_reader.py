"""One MLflow that two clones share: what each asks of it, against the SQL of a repository's own database."""

import math
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_client, mlflow_run_lookup, mlflow_seal
from flows.engine.dvc_lock import Entry, join_out_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.mlflow_flow_recorder import FlowRecorder, end_killed_runs
from flows.engine.records import mlflow_artifacts
from flows.engine.records.mlflow_remote_reader import SharedReader
from flows.engine.records.sqlite_reader import LocalReader
from tasks.common import mlflow_address, mlflow_database


def entry(made: str) -> Entry:
    """An entry of dvc.lock for a stage that made `made` from x."""
    files = {"deps": [{"path": "data/x", "md5": "c" * 32}], "outs": [{"path": "data/sft", "md5": made * 32}]}
    return {"cmd": "python sft.py", **files, "params": {"params.yaml": {"sft": {"epochs": 2}}}}


@dataclass(frozen=True)
class Clone:
    """A folder whose flow has recorded one run of the stage sft."""

    root: Path
    flow: FlowRecorder
    run_id: str


def recorded(root: Path, made: str) -> Clone:
    (root / ".dvc").mkdir(parents=True, exist_ok=True)
    (root / ".dvc/config").write_text("[core]\n    no_scm = True\n")
    flow = FlowRecorder(root, "language")
    run_id = flow.start("sft", entry(made), "first")
    for step, value in enumerate((math.nan, math.inf, -0.0, 0.1)):
        flow.client.log_metric(run_id, "loss", value, step=step)
    flow.client.log_param(run_id, "sft.epochs", "2")
    flow.made(run_id, "sft", entry(made))
    flow.end(run_id, "FINISHED", root / "none.log")
    return Clone(root, flow, run_id)


@pytest.fixture
def database(tmp_path: Path, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """The shared database, elsewhere than both clones."""
    shutil.copyfile(empty_mlflow, tmp_path / "shared.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/shared.db")
    with closing(sqlite3.connect(tmp_path / "shared.db")) as records:
        yield records


def test_two_clones_share_one_database(tmp_path: Path, database: sqlite3.Connection) -> None:
    """All in one test, since a run costs tenths of a second: who made what, the same answers as by SQL, whose runs are
    stale.
    """
    first, second = recorded(tmp_path / "first", "a"), recorded(tmp_path / "second", "a")
    key, outs = compute_run_cache_key(entry("a")), join_out_hashes(entry("a"))
    assert not (first.root / "mlruns/mlflow.db").exists()
    for clone in (first, second):
        assert mlflow_run_lookup.find_maker_run(clone.root, key, outs) == clone.run_id, (
            "its own, though the other made the same"
        )
        assert mlflow_client.find_or_adopt_maker_run(clone.root, "sft", entry("a")) == clone.run_id
        index = mlflow_run_lookup.Index(clone.root)
        assert index.find(key, outs) == clone.run_id
        assert index.makers("a" * 32)[0] == clone.run_id
        assert {*index.makers("a" * 32)} == {first.run_id, second.run_id}
        assert index.makers("b" * 32) == []
        assert mlflow_run_lookup.has_unfinished_run(clone.root)
        assert mlflow_artifacts.get_or_fetch_artifact_path(clone.root, first.run_id, "record.json").is_file()
        assert not mlflow_artifacts.get_or_fetch_artifact_path(clone.root, first.run_id, "no.json").exists()
    third = tmp_path / "third"
    third.mkdir()
    assert mlflow_run_lookup.find_maker_run(third, key, outs) == second.run_id, (
        "the newest, for one that has made nothing"
    )

    _answers_are_those_of_sql(first, database)
    elsewhere = mlflow_seal.compute_run_seal(first.root, first.run_id)
    tagged = f"SELECT value FROM tags WHERE run_uuid = '{first.run_id}' AND key = 'posttrain.seal'"
    assert database.execute(tagged).fetchall() == [(elsewhere,)]

    again = FlowRecorder(first.root, "language")
    status = dict(database.execute("SELECT run_uuid, status FROM runs WHERE name = 'language'").fetchall())
    assert status == {first.flow.parent: "KILLED", second.flow.parent: "RUNNING", again.parent: "RUNNING"}
    again.close([])
    end_killed_runs(first.root, "language")
    assert not mlflow_run_lookup.has_unfinished_run(first.root)
    assert mlflow_run_lookup.has_unfinished_run(second.root)


def _answers_are_those_of_sql(clone: Clone, database: sqlite3.Connection) -> None:
    sql = LocalReader(database)
    with mlflow_run_lookup.open_records_reader(clone.root) as asked:
        assert isinstance(asked, SharedReader)
        ids = sql.run_ids()
        assert len(ids) == 4
        for run_id in ids:
            for question in ("head", "tags", "params", "inputs"):
                assert getattr(asked, question)(run_id) == getattr(sql, question)(run_id), question
            assert repr(asked.latest(run_id)) == repr(sql.latest(run_id)), "NaN is not equal to itself"
            assert set(asked.values(run_id)) == set(sql.values(run_id))
            assert asked.beginning(run_id[:9]) == sql.beginning(run_id[:9]) == [run_id]
            tags = {"posttrain.outs": sql.tags(run_id).get("posttrain.outs", "none")}
            assert asked.finished(tags) == sql.finished(tags)
        assert len(asked.values(clone.run_id)) == 4
        for nobody in ("0" * 32, "", "no run"):
            assert asked.head(nobody) is sql.head(nobody) is None
            assert asked.tags(nobody) == sql.tags(nobody) == {}
        assert asked.versions("posttrain.out.data/sft", 9) == sql.versions("posttrain.out.data/sft", 9) != []
        assert {*asked.list_stage_runs_with_tag("sft", "posttrain.outs", "a" * 32)} == {
            *sql.list_stage_runs_with_tag("sft", "posttrain.outs", "a" * 32)
        }
        assert asked.list_stage_runs_with_tag("sft", "posttrain.outs", "a" * 32)[0] == clone.run_id
        assert asked.pipelines(None, None, clone_only=False) == sql.pipelines(None, None, clone_only=False)
        assert asked.pipelines(1, "language", clone_only=False) == sql.pipelines(1, "language", clone_only=False)
        assert asked.pipelines(None, "offline", clone_only=False) == []
        assert [head.id for head in asked.pipelines(None, None, clone_only=True)] == [clone.flow.parent]
        assert asked.list_pipelines_by_id_prefix(ids[0][:8]) == sql.list_pipelines_by_id_prefix(ids[0][:8])
        assert asked.stage_runs() == [clone.run_id]
        assert asked.model("no.model") is sql.model("no.model") is None


def test_pages_of_answers_are_all_read(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.engine.records.mlflow_remote_reader.PAGE", 2)
    client = MlflowClient(mlflow_database.get_tracking_address(tmp_path))
    for name in ("language", "offline", "more"):
        client.create_experiment(name)
    tags = {"posttrain.flow": "language"}
    of = client.get_experiment_by_name("language").experiment_id
    made = [client.create_run(of, start_time=moment, tags=tags).info.run_id for moment in range(1, 6)]
    client.create_registered_model("m")
    for run_id in made:
        client.create_model_version("m", "dvc://x", run_id, tags={"posttrain.hash": "h"})
    with mlflow_run_lookup.open_records_reader(tmp_path) as records:
        assert records is not None
        assert [head.id for head in records.pipelines(None, None, clone_only=False)] == made[::-1]
        assert [head.id for head in records.pipelines(3, None, clone_only=False)] == made[:1:-1]
        model = records.model("m")
        assert model == LocalReader(database).model("m")
        assert model is not None
        assert model.list_versions_with_tag("posttrain.hash", "h") == ["1", "2", "3", "4", "5"]
        assert model.runs["5"] == made[4]


def test_a_deleted_experiment_s_runs_do_not_count(tmp_path: Path, database: sqlite3.Connection) -> None:
    clone = recorded(tmp_path / "first", "a")
    clone.flow.client.delete_experiment(clone.flow.client.get_experiment_by_name("language").experiment_id)
    assert (
        mlflow_run_lookup.find_maker_run(clone.root, compute_run_cache_key(entry("a")), join_out_hashes(entry("a")))
        is None
    )
    with pytest.raises(PlanError, match=r"shared\.db: no finished run"):
        mlflow_run_lookup.get_finished_run(clone.root, clone.run_id)
    with pytest.raises(PlanError, match=r"the experiment language was deleted; `mlflow experiments restore`"):
        FlowRecorder(clone.root, "language")


def test_files_on_another_machine_are_one_line(tmp_path: Path, database: sqlite3.Connection) -> None:
    """The first clone's folder is where the database says that files are; for the second it may not be there."""
    first, second = recorded(tmp_path / "first", "a"), tmp_path / "second"
    second.mkdir()
    (first.root / "mlruns").rename(first.root / "away")
    with pytest.raises(
        PlanError, match=r"keeps the files of runs in .*/first/mlruns/artifacts, which cannot be written"
    ):
        FlowRecorder(second, "language")
    mlflow_artifacts._get_listing_cache.cache_clear()
    mlflow_artifacts._create_download_folder_once.cache_clear()
    with pytest.raises(
        PlanError, match=rf"the files of run {first.run_id[:8]} are in .*, which is not on this machine"
    ):
        mlflow_artifacts.get_or_fetch_artifact_path(second, first.run_id, "record.json")


def test_a_name_with_both_kinds_of_quotes_is_one_line(tmp_path: Path, database: sqlite3.Connection) -> None:
    with pytest.raises(PlanError, match="both kinds of quotes"):
        mlflow_run_lookup.list_finished_runs(tmp_path, {"stage": "a'b\"c"})
    assert mlflow_run_lookup.list_finished_runs(tmp_path, {"stage": "a'b"}) == []
    assert mlflow_address.describe_records_address().startswith("sqlite:///")

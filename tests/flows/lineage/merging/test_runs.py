"""Runs of another clone come over whole, once, and change nothing that is here."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.console.merged_runs import lines
from flows.engine import mlflow_runs, mlflow_seal
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_repository import PlanError
from flows.lineage.merging.runs import MERGED, Merged, merge
from tests.flows.lineage.merging.merge_cases import Repository, merge_killed


@pytest.fixture
def repository(tmp_path: Path, empty_mlflow: Path) -> Callable[[str], Repository]:
    return lambda name: Repository(tmp_path / name, empty_mlflow)


@pytest.fixture
def ours(repository: Callable[[str], Repository]) -> Repository:
    return repository("ours")


@pytest.fixture
def theirs(repository: Callable[[str], Repository]) -> Repository:
    return repository("theirs")


def test_a_run_comes_over_as_it_is(ours: Repository, theirs: Repository) -> None:
    """The experiments' numbers differ between the two databases, their names do not."""
    ours.client.create_experiment("another")
    own = ours.run("sft")
    parent = theirs.run("")
    run_id = theirs.run("dpo", parent)
    merged = merge(ours.root, theirs.root)
    assert (merged.origin, merged.pipelines, merged.whole) == ("theirs", 1, True)
    assert merged.taken == {parent: "language", run_id: "dpo"}
    there, here = theirs.client.get_run(run_id), ours.client.get_run(run_id)
    assert here.data.tags.pop(MERGED).startswith("theirs 2")
    assert here.data.to_dictionary() == there.data.to_dictionary()
    assert here.inputs.to_dictionary() == there.inputs.to_dictionary()
    assert here.info.artifact_uri == str(ours.root / "mlruns/artifacts" / run_id / "artifacts")
    assert here.info.experiment_id == ours.client.get_run(own).info.experiment_id != there.info.experiment_id
    same = ("run_name", "status", "start_time", "end_time", "lifecycle_stage", "user_id")
    assert [getattr(here.info, name) for name in same] == [getattr(there.info, name) for name in same]
    for metric in ("loss", "ratio"):
        history = [client.get_metric_history(run_id, metric) for client in (ours.client, theirs.client)]
        assert [repr(dict(value)) for value in history[0]] == [repr(dict(value)) for value in history[1]]
    assert theirs.files().items() <= ours.files().items()
    assert (merged.files, merged.size) == (4, sum(map(len, theirs.files().values())))


def test_the_seal_stays_whole(ours: Repository, theirs: Repository) -> None:
    run_id = theirs.run()
    merge(ours.root, theirs.root)
    seal = ours.client.get_run(run_id).data.tags[mlflow_seal.TAG]
    assert seal == mlflow_seal.compute(ours.root, run_id) == mlflow_seal.compute(theirs.root, run_id)


def test_the_engine_finds_it_by_its_key(ours: Repository, theirs: Repository) -> None:
    run_id = theirs.run("dpo")
    merge(ours.root, theirs.root)
    assert [run.id for run in mlflow_runs.finished(ours.root, {"key": "key of dpo", "outs": "o"})] == [run_id]


def test_a_description_s_links_lead_to_the_experiment_here(ours: Repository, theirs: Repository) -> None:
    ours.client.create_experiment("another")
    run_id = theirs.run()
    there = theirs.client.get_run(run_id).info.experiment_id
    theirs.client.set_tag(run_id, "mlflow.note.content", f"[{run_id}](#/experiments/{there}/runs/{run_id})")
    merge(ours.root, theirs.root)
    run = ours.client.get_run(run_id)
    assert run.data.tags["mlflow.note.content"] == f"[{run_id}](#/experiments/{run.info.experiment_id}/runs/{run_id})"
    assert run.info.experiment_id != there
    assert merge(ours.root, theirs.root).whole
    assert merge(theirs.root, ours.root).whole


def test_twice_and_both_ways_changes_nothing(ours: Repository, theirs: Repository) -> None:
    for clone in (ours, theirs):
        clone.model(clone.run("dpo", clone.run("")), clone.root.name, "best")
    assert len(merge(ours.root, theirs.root).taken) == 2
    after, files = ours.dump(), ours.files()
    again = merge(ours.root, theirs.root / "mlruns/mlflow.db")
    assert (again.taken, again.same, again.files, again.versions) == ({}, 2, 0, [])
    assert (ours.dump(), ours.files()) == (after, files)
    back = merge(theirs.root, ours.root / "mlruns")
    assert (len(back.taken), back.same, back.differing) == (2, 2, {})
    assert theirs.files() == files
    both, other = ours.dump(), theirs.dump()
    assert (merge(ours.root, theirs.root).whole, merge(theirs.root, ours.root).whole) == (True, True)
    assert (ours.dump(), theirs.dump()) == (both, other)


def test_a_run_that_differs_stays_as_it_is_here(ours: Repository, theirs: Repository) -> None:
    changed, equal = theirs.run("dpo"), theirs.run("sft")
    merge(ours.root, theirs.root)
    theirs.sql("UPDATE params SET value = '0.2' WHERE run_uuid = ?", changed)
    theirs.sql("UPDATE metrics SET value = 7 WHERE run_uuid = ? AND key = 'loss' AND step = 2", changed)
    theirs.client.set_tag(changed, "posttrain.note", "new")
    theirs.client.delete_run(changed)
    before = ours.dump()
    merged = merge(ours.root, theirs.root)
    parts = ["lifecycle_stage", "deleted_time", "tag posttrain.note", "parameter dpo.beta", "metric loss"]
    assert merged.differing.keys() == {changed}
    assert sorted(merged.differing[changed]) == sorted(parts)
    assert (merged.same, merged.whole, equal in merged.differing) == (1, False, False)
    assert ours.dump() == before


def test_deleted_runs_come_deleted_and_running_ones_when_they_have_ended(ours: Repository, theirs: Repository) -> None:
    deleted, failed, running = theirs.run("a"), theirs.run("b", status="FAILED"), theirs.run("c", status="RUNNING")
    theirs.client.delete_run(deleted)
    merged = merge(ours.root, theirs.root)
    assert merged.taken.keys() == {deleted, failed}
    assert (merged.running, merged.whole) == ([running], True)
    assert not (ours.root / "mlruns/artifacts" / running).exists()
    assert ours.client.get_run(deleted).info.lifecycle_stage == "deleted"
    assert mlflow_runs.finished(ours.root, {"stage": "a"}) == []
    theirs.client.set_terminated(running)
    assert merge(ours.root, theirs.root).taken.keys() == {running}


def test_a_run_that_came_by_way_of_a_third_clone_says_so(
    ours: Repository, theirs: Repository, repository: Callable[[str], Repository]
) -> None:
    third = repository("third")
    run_id = third.run()
    merge(theirs.root, third.root)
    merge(ours.root, theirs.root)
    first, second = ours.client.get_run(run_id).data.tags[MERGED].split("; ")
    assert first == theirs.client.get_run(run_id).data.tags[MERGED]
    assert second.startswith("theirs 2")
    assert merge(ours.root, third.root).differing == {}


def test_models_get_free_numbers_and_keep_the_aliases_here(ours: Repository, theirs: Repository) -> None:
    own, other, later = ours.run("dpo"), theirs.run("dpo"), theirs.run("dpo")
    ours.model(own, "a", "best")
    theirs.model(other, "b", "best")
    theirs.model(later, "c", "candidate")
    merged = merge(ours.root, theirs.root)
    assert merged.versions == [("language.dpo", 1, 2), ("language.dpo", 2, 3)]
    assert "took 2 versions of models: language.dpo 1 as 2, 2 as 3" in lines(merged, False)
    version = ours.client.get_model_version("language.dpo", "3")
    assert (version.run_id, version.tags) == (later, {"posttrain.hash": "c"})
    assert version.source == "dvc://data/dpo?md5=c"
    assert ours.client.get_model_version_by_alias("language.dpo", "best").run_id == own
    assert ours.client.get_model_version_by_alias("language.dpo", "candidate").run_id == later
    assert merge(ours.root, theirs.root).versions == []
    assert ours.client.create_model_version("language.dpo", "x", own).version == 4


def test_a_model_is_loaded_from_nowhere_else(ours: Repository, theirs: Repository) -> None:
    """MLflow loads a version from its source, so that a stranger's would run his code."""
    run_id = theirs.run()
    for source in ("http://example.org/model", f"{theirs.root}/data/dpo", "/etc"):
        theirs.model(run_id, source, source=source)
    assert len(merge(ours.root, theirs.root).versions) == 3
    files = str(ours.root / "mlruns/artifacts" / run_id / "artifacts")
    assert {version.source for version in ours.client.search_model_versions()} == {files}
    assert ours.client.get_registered_model("language.dpo").description == "the policy"


def test_a_kill_leaves_the_database_as_it_was(ours: Repository, theirs: Repository) -> None:
    ours.run("sft")
    runs = [theirs.run(f"stage {number}") for number in range(4)]
    before = ours.dump()
    merge_killed(ours.root, theirs.root, after=3)
    assert any(run_id in name for name in ours.files() for run_id in runs), "files without a run"
    assert ours.dump() == before
    assert merge(ours.root, theirs.root).taken.keys() == {*runs}
    assert theirs.files().items() <= ours.files().items()


def test_a_dry_run_changes_nothing(ours: Repository, theirs: Repository, tmp_path: Path) -> None:
    run_id = theirs.run()
    theirs.model(run_id, "a")
    before = ours.file.read_bytes()
    foreseen = merge(ours.root, theirs.root, dry_run=True)
    assert (ours.file.read_bytes(), ours.files()) == (before, {})
    assert foreseen.facts() == merge(ours.root, theirs.root).facts()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert merge(empty, theirs.root, dry_run=True).taken == foreseen.taken
    assert not any(empty.iterdir())


def test_without_a_database_here_one_is_made(theirs: Repository, tmp_path: Path) -> None:
    run_id = theirs.run()
    (tmp_path / "new").mkdir()
    merged: Merged = merge(tmp_path / "new", theirs.root)
    assert merged.experiments == ["language"]
    assert mlflow_runs.get(tmp_path / "new", run_id).params == {"dpo.beta": "0.1"}
    assert json.loads(json.dumps(merged.facts()))["taken"] == {run_id: "dpo"}


def test_wrong_use_is_one_line(ours: Repository, theirs: Repository, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="this is the database of this repository"):
        merge(ours.root, ours.root / "mlruns")
    with pytest.raises(PlanError, match=r"nowhere: no MLflow database; expected a repository, its mlruns folder or"):
        merge(ours.root, tmp_path / "nowhere")
    with Coordinator(ours.root), pytest.raises(PlanError, match="another `posttrain run` is at work"):
        merge(ours.root, theirs.root)

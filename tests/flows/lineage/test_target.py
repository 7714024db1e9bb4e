import json

import pytest

from flows.engine import dvc_lock
from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects, execution_record
from flows.lineage.auditing import audit_lineage
from flows.lineage.target import LineageTarget, resolve_lineage_target
from tests.flows.engine.toy import Toy
from tests.flows.lineage.policies import Ran


def test_everything_that_a_person_may_name(policies_once: Ran, rerun: Ran) -> None:
    toy, first, results = rerun.toy, policies_once.first, policies_once.results
    dpo, of_now = results["dpo"], dvc_lock.get_entry_hashes(toy.lock["stages"]["dpo"], "outs")["data/dpo"]
    then = dpo.outs["data/dpo"]
    assert then != of_now
    now = LineageTarget("data/dpo", of_now, "dpo")
    for text in ("dpo", "data/dpo", str(toy.root / "data/dpo"), "data/dpo/model.safetensors", of_now):
        assert resolve_lineage_target(toy.root, text) == now, text
    run_id = dpo.mlflow_run_id
    for text in (run_id, run_id[:10], then, "language.dpo/1", "models:/language.dpo/1"):
        assert resolve_lineage_target(toy.root, text) == LineageTarget("data/dpo", then, "dpo", run_id), text
    best = resolve_lineage_target(toy.root, "language.dpo@best")
    assert (best.hash, best.stage) == (then, "dpo")
    report = resolve_lineage_target(toy.root, first.id)
    assert (report.path, report.pipeline_id, report.run_id) == (
        "data/report",
        first.id,
        results["report"].mlflow_run_id,
    )
    assert resolve_lineage_target(toy.root, "work.py") == LineageTarget(
        "work.py", dvc_lock.get_entry_hashes(toy.lock["stages"]["dpo"], "deps")["work.py"]
    )


@pytest.fixture(scope="module")
def unchanged_once(policies_once: Ran, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A copy for the tests of this file that change nothing."""
    return policies_once.at(tmp_path_factory.mktemp("unchanged") / "repository")


@pytest.fixture
def unchanged(unchanged_once: Ran, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Two policies that have run once, in the current folder; no test changes them."""
    monkeypatch.chdir(unchanged_once.toy.root)
    return unchanged_once


@pytest.mark.parametrize(
    "text", ["dpo strict_greedy", "dpo/strict_greedy", "evaluate@dpo strict_greedy", "dpo Strict_Greedy/mean"]
)
def test_a_number_of_the_report(unchanged: Ran, text: str) -> None:
    toy = unchanged.toy
    found = resolve_lineage_target(toy.root, text)
    assert (found.path, found.stage) == ("data/metrics/evaluate@dpo.json", "evaluate@dpo")
    assert found.metric == ("strict_greedy/mean", 0.6)
    assert resolve_lineage_target(toy.root, "dpo strict_validation_t0.3").metric == ("strict_validation_t0.3/mean", 0.3)
    assert resolve_lineage_target(toy.root, "dpo loss").path == "data/metrics/dpo.json"


@pytest.mark.parametrize("stage", ["returns@dqn-lander", "agent_returns@rooms-ppo"])
def test_a_number_of_a_policy_of_the_other_flows(toy: Toy, stage: str) -> None:
    measured = f"data/metrics/{stage}.json"
    (toy.root / "data/metrics").mkdir(parents=True)
    (toy.root / measured).write_text(json.dumps({"return": {"mean": 1.5}}))
    out = {"path": measured, "md5": "1" * 32}
    lock = {"schema": "2.0", "stages": {stage: {"cmd": "python work.py", "outs": [out]}}}
    (toy.root / "dvc.lock").write_text(json.dumps(lock))
    policy = stage.partition("@")[2]
    assert resolve_lineage_target(toy.root, f"{policy}/return") == LineageTarget(
        measured, "1" * 32, stage, metric=("return/mean", 1.5)
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("dppo", "^dppo: did you mean dpo\\?$"),
        ("nothing at all", "^nothing at all: nothing here is named so; expected an output's path, a stage, a run, "),
        ("dpo strict", "^dpo has no metric strict; did you mean strict_greedy or strict_validation_t0.3\\?$"),
        ("dpo zzz", "^dpo has no metric zzz; the pages of docs/metrics list them$"),
        ("language.dpo@worst", "nothing here is named so"),
        ("language.dpo/99", "nothing here is named so"),
        ("0" * 32, "^mlruns/mlflow.db: no finished run made 0000"),
        ("../outside", "nothing here is named so"),
        ("", "nothing here is named so"),
    ],
)
def test_what_is_not_there_is_one_line(unchanged: Ran, text: str, line: str) -> None:
    toy = unchanged.toy
    with pytest.raises(PlanError, match=line):
        resolve_lineage_target(toy.root, text)


def test_records_are_the_same_from_the_lock_file_a_revision_and_the_run(policies_once: Ran, rerun: Ran) -> None:
    toy, run, results = rerun.toy, policies_once.first, policies_once.results
    then, now = (
        execution_record.load_records_at_revision(toy.root, "HEAD"),
        execution_record.load_current_records(toy.root),
    )
    assert then == execution_record.load_pipeline_records(toy.root, run)
    assert then["dpo"].entry["params"]["params.yaml"]["dpo"] == {"value": 0.6, "beta": 0.1}, "with their types"
    assert now["dpo"].entry["params"]["params.yaml"]["dpo"]["beta"] == 0.2
    assert now["sft"] == then["sft"]
    assert (then["dpo"].dirty, now["dpo"].dirty) == ("no", "params.yaml")
    assert then["dpo"].patch is None
    assert now["dpo"].patch.read_text().count("beta") == 2
    assert execution_record.load_run_record(toy.root, results["dpo"].mlflow_run_id) == then["dpo"]
    for revision in ("nope", "--output=x", "HEAD:work.py"):
        with pytest.raises(PlanError, match=r"not a git revision with a dvc\.lock"):
            execution_record.load_records_at_revision(toy.root, revision)


def test_the_cache_gives_back_what_a_hash_stands_for(ran: Ran) -> None:
    toy, results = ran.toy, ran.results
    md5 = results["dpo"].outs["data/dpo"]
    assert cache_objects.read_cached_file_hashes(toy.root, md5).keys() == {"config.json", "model.safetensors"}
    cache_objects.copy_from_cache(toy.root, md5, toy.root / "copy")
    assert (toy.root / "copy/model.safetensors").read_text() == (toy.root / "data/dpo/model.safetensors").read_text()
    gone = cache_objects.read_cached_file_hashes(toy.root, md5)["config.json"]
    cache_objects.find_cache_object(toy.root, gone).unlink()
    with pytest.raises(
        PlanError, match=rf"^other/config.json: {gone} is not in the cache; it was collected, or never pulled$"
    ):
        cache_objects.copy_from_cache(toy.root, md5, toy.root / "other")
    assert not (toy.root / "other").exists()
    with pytest.raises(PlanError, match="the cache does not have this folder; it was collected, or never pulled"):
        cache_objects.read_cached_file_hashes(toy.root, "0" * 32 + ".dir")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", ""])
def test_a_list_with_paths_outside_of_its_folder_is_refused(ran: Ran, name: str) -> None:
    toy, results = ran.toy, ran.results
    listed = cache_objects.find_cache_object(toy.root, results["dpo"].outs["data/dpo"])
    listed.chmod(0o644)
    listed.write_text(json.dumps([{"relpath": name, "md5": "0" * 32}]))
    with pytest.raises(PlanError, match="expected a path within the folder, and its hash"):
        cache_objects.copy_from_cache(toy.root, results["dpo"].outs["data/dpo"], toy.root / "out")


def test_before_the_first_run_there_is_nothing_to_ask_for(toy: Toy) -> None:
    toy.stage("sft")
    with pytest.raises(PlanError, match=r"^sft: nothing has run here yet; `posttrain run` makes the first results$"):
        resolve_lineage_target(toy.root, "sft")
    found = audit_lineage(toy.root)
    assert [remark.line for remark in found.remarks] == [
        "dvc.lock: records nothing yet; `posttrain run` makes the first results"
    ]
    assert not found.faults


def test_a_path_may_lead_up_from_the_folder_of_another_output(unchanged: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(unchanged.toy.root / "data/dpo")
    assert resolve_lineage_target(unchanged.toy.root, "../sft").path == "data/sft"
    monkeypatch.chdir(unchanged.toy.root / "data/metrics")
    assert resolve_lineage_target(unchanged.toy.root, "../sft").path == "data/sft"

import json
import shutil
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from mlflow import MlflowClient

from flows.engine import dvc_lock, dvc_stage, mlflow_run_lookup, mlflow_seal
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_flow_recorder import FlowRecorder, end_killed_runs
from flows.engine.records import mlflow_artifacts
from flows.lineage import history
from flows.lineage.chain import Link, trace_lineage
from tasks.common import mlflow_database
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import as_killed, copied, dvc


@pytest.fixture(scope="module")
def once(template: Path, empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """The diamond of stages, with a raw file as another dep of `a`, run once and recorded."""
    shutil.copytree(template, root := tmp_path_factory.mktemp("recorded") / "toy")
    toy = Toy(root)
    toy.write("raw.txt", "raw")
    toy.diamond()
    toy.stages["a"]["deps"].append("raw.txt")
    toy.save()
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    toy.run(recorder=FlowRecorder(toy.root, "language"))
    return toy


@pytest.fixture
def recorded(once: Toy, tmp_path: Path) -> Toy:
    return copied(once, tmp_path / "toy")


def flat(link: Link) -> dict[str, Link]:
    found = {link.path: link}
    for inner in link.inputs:
        found |= flat(inner)
    return found


def test_a_chain_leads_from_an_output_to_raw_data(recorded: Toy) -> None:
    links = flat(trace_lineage(recorded.root, "d"))
    assert links.keys() == {"data/d", "data/b", "data/c", "data/a", "raw.txt"}
    assert links["raw.txt"].note == "raw: no stage makes it"
    made = [link for path, link in links.items() if path.startswith("data/")]
    assert all(link.run_id and link.made_at and not link.note and link.code.keys() == {"work.py"} for link in made)
    assert [inner.path for inner in links["data/d"].inputs] == ["data/b", "data/c"]
    hashes = {out["path"]: out["md5"] for stage in recorded.lock["stages"].values() for out in stage["outs"]}
    assert {link.path: link.hash for link in made} == hashes
    assert trace_lineage(recorded.root, str(recorded.root / "data/d")) == links["data/d"]


def test_a_run_says_what_went_in_and_came_out(recorded: Toy) -> None:
    client = MlflowClient(mlflow_database.get_tracking_address(recorded.root))
    run = client.get_run(trace_lineage(recorded.root, "d").run_id)
    entry = recorded.lock["stages"]["d"]
    tags = run.data.tags
    assert run.info.status == "FINISHED"
    assert tags["posttrain.stage"] == "d" == run.info.run_name
    assert tags["posttrain.dep.data/b"] == dvc_lock.get_entry_hashes(entry, "deps")["data/b"]
    assert tags["posttrain.out.data/d"] == dvc_lock.get_entry_hashes(entry, "outs")["data/d"]
    assert (recorded.root / ".dvc/cache/runs" / tags["posttrain.key"][:2] / tags["posttrain.key"]).is_dir(), "DVC's key"
    assert tags["posttrain.git_commit"] == "none"
    assert {"posttrain.env.python", "posttrain.env.torch", "posttrain.env.platform", "posttrain.env.cpu"} <= tags.keys()
    inputs = {given.dataset.name: given.dataset.digest for given in run.inputs.dataset_inputs}
    assert inputs == {
        path: md5 for path, md5 in dvc_lock.get_entry_hashes(entry, "deps").items() if path.startswith("data/")
    }
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["d.log", "record.json"]
    assert (
        json.loads((recorded.root / "mlruns/artifacts" / run.info.run_id / "artifacts/record.json").read_text())[
            "entry"
        ]
        == entry
    )
    assert tags["posttrain.code"] == dvc_lock.compute_code_hash(
        {"work.py": dvc_lock.get_entry_hashes(entry, "deps")["work.py"]}
    )
    assert tags["posttrain.seal"] == mlflow_seal.compute_run_seal(recorded.root, run.info.run_id)


def test_restored_and_unchanged_stages_lead_to_the_run_that_made_them(recorded: Toy) -> None:
    first = {path: link.run_id for path, link in flat(trace_lineage(recorded.root, "d")).items()}
    d_of_before = trace_lineage(recorded.root, "d").hash
    recorded.set(b=2)
    recorder = FlowRecorder(recorded.root, "language")
    second = recorded.run(recorder=recorder)
    recorder.close(second.values())
    assert second["d"].mlflow_run_id != first["data/d"]
    assert second["c"].mlflow_run_id == first["data/c"]
    parent = recorder.client.get_run(recorder.parent)
    assert parent.data.tags["posttrain.run.c"] == first["data/c"]
    assert (parent.data.tags["posttrain.state.c"], parent.data.tags["posttrain.state.d"]) == ("up-to-date", "ran")
    assert parent.info.status == "FINISHED"

    links = flat(trace_lineage(recorded.root, d_of_before))
    assert {path: link.run_id for path, link in links.items()} == first, "a hash of the past leads to its own runs"

    recorded.set(b=1)
    third = recorded.run(recorder=FlowRecorder(recorded.root, "language"))
    assert (third["b"].state, third["d"].state) == ("restored", "restored")
    assert {f"data/{name}": result.mlflow_run_id for name, result in third.items()} | {"raw.txt": None} == first


def test_a_run_by_plain_dvc_repro_is_adopted(recorded: Toy) -> None:
    made = "mkdir -p data; echo made > data/m; echo '{\"x\": 1}' > m.json"
    recorded.set(m={"rate": 1, "layers": [2, 3]})
    recorded.stage("m", "d", cmd=made, metrics=[{"m.json": {"cache": False}}])
    dvc(recorded.root, "repro")
    broken = trace_lineage(recorded.root, "m")
    assert broken.run_id is None
    assert "the chain breaks here" in broken.note
    assert broken.inputs[0].run_id is not None, "and goes on behind the break"

    client = MlflowClient(
        mlflow_database.get_tracking_address(recorded.root)
    )  # as tasks/common/tracking.py does under plain `dvc repro`
    entry = recorded.lock["stages"]["m"]
    ids = []
    for rate in ("0.5", "1.0"):  # a stage's Config makes 1 a float, and a list a tuple
        run_id = client.create_run("0", run_name="m", tags={"posttrain.stage": "m"}).info.run_id
        client.log_param(run_id, "m.rate", rate)
        client.log_param(run_id, "m.layers", "(2, 3)")
        client.set_tag(run_id, "posttrain.metrics_md5", dvc_lock.get_entry_hashes(entry, "outs")["m.json"])
        client.set_terminated(run_id)
        ids.append(run_id)
    assert trace_lineage(recorded.root, "m").run_id == ids[1], "the one whose params are those of the record"
    tags = client.get_run(ids[1]).data.tags
    assert tags["posttrain.out.data/m"] == dvc_lock.get_entry_hashes(entry, "outs")["data/m"]
    assert tags["posttrain.key"] == dvc_stage.compute_run_cache_key(entry)
    assert "posttrain.key" not in client.get_run(ids[0]).data.tags


def test_failed_and_killed_runs_are_no_ones_source(recorded: Toy) -> None:
    recorder = FlowRecorder(recorded.root, "language")
    recorded.stages["c"]["cmd"] = "exit 1"
    recorded.save()
    failed = recorded.run("c", recorder=recorder)["c"]
    assert failed.mlflow_run_id is not None
    assert recorder.client.get_run(failed.mlflow_run_id).info.status == "FAILED"
    left = recorder.start("c", recorded.lock["stages"]["c"], "a process that is killed now")
    again = FlowRecorder(recorded.root, "language")
    assert [again.client.get_run(run_id).info.status for run_id in (left, recorder.parent)] == ["KILLED", "KILLED"]
    assert trace_lineage(recorded.root, "c").run_id not in (failed.mlflow_run_id, left)


def test_a_run_that_failed_or_was_deleted_made_nothing_beside_others(recorded: Toy) -> None:
    recorder = FlowRecorder(recorded.root, "language")
    for stage, end in (("a", "true"), ("b", "true"), ("c", "false")):
        recorded.stages[stage]["cmd"] += f" && {end}"
    recorded.save()
    results = recorded.run(recorder=recorder)
    recorder.close(results.values())
    made, deleted, failed = (results[stage].mlflow_run_id for stage in "abc")
    assert made is not None
    assert deleted is not None
    assert failed is not None
    runs = history.get_stage_run_ids(recorded.root, recorder.parent)
    assert (runs["a"], runs["b"]) == (made, deleted)
    assert "c" not in runs
    recorder.client.delete_run(deleted)
    assert history.get_stage_run_ids(recorded.root, recorder.parent) == {
        name: runs[name] for name in runs if name != "b"
    }


def test_a_kill_right_after_the_record_leaves_no_gap(recorded: Toy) -> None:
    recorder = FlowRecorder(recorded.root, "language")
    entry = recorded.lock["stages"]["c"]
    left = recorder.start("c", entry, "killed once its result was recorded")
    recorder.made(left, "c", entry)
    other = recorder.start("c", entry, "killed before")
    recorder.made(other, "c", {**entry, "outs": [{"path": "data/c", "md5": "0" * 32}]})
    again = FlowRecorder(recorded.root, "language")
    assert [again.client.get_run(run_id).info.status for run_id in (left, other)] == ["FINISHED", "KILLED"]


def test_what_is_restored_after_a_kill_before_the_lock_file_has_its_run(
    recorded: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill comes after the result is in the run cache."""

    def write(root: Path, *arguments: object) -> None:
        as_killed(root, tmp_path / "killed")
        before(root, *arguments)

    before = dvc_stage.write_lock_entry
    recorded.set(c=7)
    with monkeypatch.context() as patch:
        patch.setattr(dvc_stage, "write_lock_entry", write)
        assert recorded.run("c", recorder=FlowRecorder(recorded.root, "language"))["c"].state == "ran"
    recorded.root = tmp_path / "killed"
    result = recorded.run("c", recorder=FlowRecorder(recorded.root, "language"))["c"]
    assert result.state == "restored"
    assert result.mlflow_run_id is not None
    assert trace_lineage(recorded.root, "c").run_id == result.mlflow_run_id


def test_stages_that_start_together_may_share_new_inputs(recorded: Toy) -> None:
    recorder = FlowRecorder(recorded.root, "language")
    together = Barrier(4)

    def start(index: int) -> str:
        run_ids = []
        for attempt in range(3):
            together.wait(timeout=300)
            entry = {"cmd": "true", "deps": [{"path": "shared", "md5": f"{attempt:032}"}], "outs": []}
            run_ids.append(recorder.start(f"s{index}", entry, "new"))
        return run_ids[-1]

    with ThreadPoolExecutor(4) as pool:
        last = list(pool.map(start, range(4)))
    inputs = [recorder.client.get_run(run_id).inputs.dataset_inputs for run_id in last]
    assert [[given.dataset.digest for given in each] for each in inputs] == [[f"{2:032}"]] * 4


def test_a_stage_finds_its_run(recorded: Toy) -> None:
    recorded.stage("e", cmd='mkdir -p data; echo "$MLFLOW_RUN_ID $MLFLOW_TRACKING_URI" > data/e')
    result = recorded.run("e", recorder=FlowRecorder(recorded.root, "language"))["e"]
    assert recorded.read("data/e").split() == [
        result.mlflow_run_id,
        mlflow_database.get_tracking_address(recorded.root),
    ]


def test_the_commit_and_what_differs_from_it(recorded: Toy) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "add", "."], cwd=recorded.root, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "x"], cwd=recorded.root, check=True)
    recorded.set(c=2)
    recorded.run(recorder=FlowRecorder(recorded.root, "language"))
    link = flat(trace_lineage(recorded.root, "d"))["data/c"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=recorded.root, capture_output=True, text=True, check=True)
    assert link.commit == head.stdout.strip()
    assert link.dirty == "params.yaml"


def test_what_is_not_on_record_is_one_clear_line(recorded: Toy) -> None:
    for target, expected in (("nope", "nope: nothing here is named so"), ("0" * 32, "no finished run")):
        with pytest.raises(PlanError, match=expected):
            trace_lineage(recorded.root, target)


@pytest.mark.parametrize("moment", ["made", "end", "find"])
def test_a_stage_that_ended_well_is_not_failed_by_its_record(recorded: Toy, moment: str) -> None:
    """The database is damaged at several moments, such as between the command's end and the record of its outs."""
    recorder = FlowRecorder(recorded.root, "language")

    def damage(*given: object) -> object:
        (recorded.root / "mlruns/mlflow.db").write_bytes(b"torn" * 300)
        return before(*given)

    before = getattr(recorder, moment)
    setattr(recorder, moment, damage)
    recorded.set(d=2)
    results = recorded.run(recorder=recorder)
    ended = {name: result.state for name, result in results.items()}
    assert ended == {
        "a": "up-to-date",
        "b": "up-to-date",
        "c": "up-to-date",
        "d": "failed" if moment == "find" else "ran",
    }
    at = results["a" if moment == "find" else "d"]
    assert at.unrecorded.startswith("mlruns/mlflow.db: ")
    assert (recorded.read("data/d").endswith("d 2\n")) == (moment != "find"), "one that is to begin is not begun"
    assert "\n" not in at.unrecorded + results["d"].reason


@pytest.mark.parametrize("away", [1, 9])
def test_the_file_of_a_run_that_could_not_be_written_breaks_no_chain(
    recorded: Toy, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    """The folder refuses the file once, and it comes at the stage's end; or always, and the result says so."""
    faults = iter([PermissionError(13, "Permission denied")] * away)

    def write(root: Path, run_id: str, name: str, content: bytes) -> None:
        if name == mlflow_seal.RECORD and (fault := next(faults, None)):
            raise fault
        before(root, run_id, name, content)

    before = mlflow_artifacts.save_artifact
    monkeypatch.setattr(mlflow_artifacts, "save_artifact", write)
    recorded.set(d=2)
    result = recorded.run(recorder=FlowRecorder(recorded.root, "language"))["d"]
    assert result.state == "ran"
    assert (result.unrecorded == "") == (away == 1)
    link = trace_lineage(recorded.root, "d")
    assert (link.run_id, link.note, link.inputs[0].stage) == (result.mlflow_run_id, "", "b")
    assert mlflow_artifacts.get_or_fetch_artifact_path(
        recorded.root, str(link.run_id), mlflow_seal.RECORD
    ).exists() == (away == 1)


def test_a_damaged_database_is_one_line_before_anything_runs(recorded: Toy) -> None:
    (recorded.root / "mlruns/mlflow.db").write_bytes(b"torn" * 300)
    with pytest.raises(PlanError, match=r"^mlruns/mlflow.db: file is not a database; if it is damaged, delete mlruns/"):
        FlowRecorder(recorded.root, "language")


def test_what_a_kill_behind_the_last_stage_left_is_settled_with_nothing_to_run(recorded: Toy) -> None:
    """The stage is recorded by DVC, but neither its run nor the flow's run has ended."""
    recorder = FlowRecorder(recorded.root, "language")
    recorded.set(d=2)
    results = recorded.run(recorder=recorder)
    last = results["d"].mlflow_run_id
    with sqlite3.connect(recorded.root / "mlruns/mlflow.db") as records:
        records.execute("UPDATE runs SET status = 'RUNNING' WHERE run_uuid = ?", [last])
    assert mlflow_run_lookup.has_unfinished_run(recorded.root)
    assert "the chain breaks here" in trace_lineage(recorded.root, "d").note
    with Coordinator(recorded.root):
        end_killed_runs(recorded.root, "language")
    assert mlflow_run_lookup.has_unfinished_run(recorded.root), "another run is at work"
    end_killed_runs(recorded.root, "language")
    assert not mlflow_run_lookup.has_unfinished_run(recorded.root)
    assert trace_lineage(recorded.root, "d").run_id == last
    status = MlflowClient(mlflow_database.get_tracking_address(recorded.root)).get_run(recorder.parent).info.status
    assert status == "KILLED", "the flow's own run was not ended"

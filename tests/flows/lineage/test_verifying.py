"""What a stage once made is made again in a scratch copy: equal, different, or not possible any more, said in one
line.
"""

import dataclasses
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.lineage import verifying
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.verifying import CannotReproduceError, Verification
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import copy_folder

WHO = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
TRAIN = """
import json, pathlib, random, struct, helper
seed = json.loads(pathlib.Path("params.yaml").read_text())["t"]["seed"]
out = pathlib.Path("data/t")
out.mkdir(parents=True)
(out / "config.json").write_text("{}")
drawn = random.Random(seed)
weights = struct.pack("<2d", 0, 0) + struct.pack("<6d", *(drawn.gauss(0, 1) + helper.SHIFT for _ in range(6)))
header = {
    "embed": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]},
    "head": {"dtype": "F64", "shape": [3, 2], "data_offsets": [16, 64]},
}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
(out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + weights)
"""  # as safetensors writes it, without the imports


def git(toy: Toy, *arguments: str) -> str:
    done = subprocess.run(["git", *WHO, *arguments], cwd=toy.root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(toy: Toy) -> str:
    git(toy, "add", "--all")
    git(toy, "commit", "--quiet", "--message", "x")
    return git(toy, "rev-parse", "HEAD")


def run(toy: Toy) -> None:
    """Run what is out of date, on record in MLflow."""
    results = toy.run(recorder=FlowRecorder(toy.root, "language"))
    assert {result.state for result in results.values()} <= {"ran", "up-to-date"}, results


@pytest.fixture(scope="module")
def made(template: Path, empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three committed stages that ran: `a`; `t`, which makes weights from `a` and a seed; `n`, which writes the
    time.
    """
    root = tmp_path_factory.mktemp("made") / "toy"
    shutil.copytree(template, root)
    (root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, root / "mlruns/mlflow.db")
    toy = Toy(root)
    toy.write("train.py", TRAIN)
    toy.write("helper.py", "SHIFT = 0.0\n")
    toy.write("now.py", 'import pathlib, time; pathlib.Path("data/n").write_text(f"same\\n{time.time_ns()}\\n")')
    toy.stage("a")
    toy.params["t"] = {"seed": 0}
    toy.stage("t", "a", cmd="python train.py", deps=["train.py", "helper.py", "data/a"])
    toy.stage("n", cmd="python now.py", deps=["now.py"])
    commit(toy)
    run(toy)
    return root


@pytest.fixture
def trained(made: Path, tmp_path: Path) -> Toy:
    copy_folder(made, tmp_path / "toy")
    toy = Toy(tmp_path / "toy")
    toy.stages = json.loads(toy.read("dvc.yaml"))["stages"]
    toy.params = json.loads(toy.read("params.yaml"))
    return toy


@pytest.fixture(autouse=True)
def no_scratch_copy_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    yield scratch
    assert not list(scratch.iterdir())


def verify(toy: Toy, text: str = "t", **changes: Any) -> Verification:
    of = dataclasses.replace(verifying.resolve_execution_record(toy.root, text), **changes)
    return verifying.verify_execution(toy.root, of, lambda line: None, lambda *steps: None)


def fault(toy: Toy, text: str = "t", **changes: Any) -> str:
    with pytest.raises(CannotReproduceError) as error:
        verify(toy, text, **changes)
    assert "\n" not in str(error.value)
    return str(error.value)


def snapshot(root: Path) -> dict[str, Any]:
    files = (file for file in root.rglob("*") if file.is_file())
    return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in files if ".dvc/tmp" not in str(file)}


def test_equal_to_the_bit_and_nothing_of_the_repository_changes(trained: Toy) -> None:
    before = snapshot(trained.root)
    found = verify(trained)
    assert (found.verdict, found.differences, found.step, found.notes) == ("equal", [], None, [])
    assert set(found.inputs) == {"train.py", "helper.py", "data/a"}
    assert found.record.run_id
    assert found.record.commit == git(trained, "rev-parse", "HEAD")
    assert snapshot(trained.root) == before


@pytest.mark.parametrize("name", ["data/t", "data/t/model.safetensors", "RUN", "HASH"])
def test_what_may_be_named(trained: Toy, name: str) -> None:
    of = verifying.resolve_execution_record(trained.root, "t")
    names = {"RUN": of.run_id, "HASH": of.entry["outs"][0]["md5"]}
    assert verifying.resolve_execution_record(trained.root, names.get(name) or name).run_id == of.run_id


def test_what_no_stage_makes(trained: Toy) -> None:
    with pytest.raises(PlanError, match="raw data"):
        verifying.resolve_execution_record(trained.root, "helper.py")
    with pytest.raises(PlanError, match="nothing here is named so"):
        verifying.resolve_execution_record(trained.root, "zzzzz")


def test_another_seed_on_record_gives_the_first_tensor(trained: Toy) -> None:
    of = verifying.resolve_execution_record(trained.root, "t")
    entry = json.loads(json.dumps(of.entry))
    entry["params"]["params.yaml"]["t"]["seed"] = 1
    found = verify(trained, entry=entry)
    assert found.verdict == "differs"
    [difference] = found.differences
    assert difference.path == "data/t/model.safetensors"
    assert difference.what.startswith("tensor head (F64 3x2): 6 of 6 values differ, by ")
    assert difference.facts["tensor"] == "head"
    _, note = found.notes
    assert "t.seed is 0 there and 1 on record" in note


def test_a_parameter_that_was_changed_in_dvc_lock(trained: Toy) -> None:
    lock = trained.read("dvc.lock")
    (trained.root / "dvc.lock").write_text(lock.replace("seed: 0", "seed: 1"))
    found = verify(trained)
    assert found.record.run_id, "the run that made these outs"
    assert found.verdict == "differs"
    assert found.notes[0] == f"dvc.lock has other parameters than its run {found.record.run_id[:8]} had"
    assert "t.seed is 0 there and 1 on record" in found.notes[1]


def test_each_file_that_differs_is_named(trained: Toy) -> None:
    entry = json.loads(json.dumps(verifying.resolve_execution_record(trained.root, "t").entry))
    entry["cmd"] = entry["cmd"].replace("train.py", "train.py && echo x > data/t/more")
    entry["params"]["params.yaml"]["t"]["seed"] = 1
    found = verify(trained, entry=entry)
    assert found.verdict == "differs"
    assert [each.path for each in found.differences] == ["data/t/model.safetensors", "data/t/more"]


def test_a_stage_that_is_not_deterministic(trained: Toy) -> None:
    found = verify(trained, "n")
    [difference] = found.differences
    assert (difference.path, difference.facts["line"]) == ("data/n", 2)
    assert found.environment == {}


def test_code_that_changed_since_is_taken_from_the_recorded_commit(trained: Toy) -> None:
    trained.write("helper.py", "SHIFT = 5.0\n")
    trained.set(t={"seed": 9})
    commit(trained)
    trained.write("train.py", "raise SystemExit('uncommitted')")
    found = verify(trained)
    assert (found.verdict, found.notes) == ("equal", [])


def test_a_dirty_tree_comes_back_from_its_patch(trained: Toy) -> None:
    trained.write("helper.py", "from extra import SHIFT\n")  # an untracked module that no dep names
    trained.write("extra.py", "SHIFT = 3.0\n")
    run(trained)
    of = verifying.resolve_execution_record(trained.root, "t")
    assert of.patch is not None
    assert "extra.py" in (of.dirty or "")
    git(trained, "checkout", "--quiet", "helper.py")
    (trained.root / "extra.py").unlink()
    assert verify(trained).verdict == "equal"
    assert "its patch is missing" in fault(trained, patch=None)
    wrong = trained.root.parent / "wrong.patch"
    wrong.write_bytes(of.patch.read_bytes().replace(b"+from extra", b"+from other"))
    assert "helper.py: expected" in fault(trained, patch=wrong)
    wrong.write_bytes(of.patch.read_bytes().replace(b"-SHIFT = 0.0", b"-SHIFT = 1.0"))
    assert "cannot be applied" in fault(trained, patch=wrong)


def test_a_commit_that_is_gone(trained: Toy) -> None:
    gone = "1" * 40
    found = verify(trained, commit=gone)
    assert found.verdict == "equal"
    assert any("commit 11111111 is not in this repository" in note for note in found.notes)
    trained.write("helper.py", "SHIFT = 5.0\n")
    assert "commit 11111111 is not in this repository, and the working files differ" in fault(trained, commit=gone)


def test_without_git(trained: Toy) -> None:
    shutil.rmtree(trained.root / ".git")
    (trained.root / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    assert verify(trained).verdict == "equal"
    trained.write("train.py", TRAIN + "# another\n")
    assert fault(trained).startswith("train.py: expected")


def test_an_input_that_was_collected_is_named(trained: Toy) -> None:
    md5 = verifying.resolve_execution_record(trained.root, "a").entry["outs"][0]["md5"]
    kept = trained.root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    content = kept.read_bytes()
    kept.unlink()
    assert verify(trained).verdict == "equal", "the workspace has the recorded bytes"
    (trained.root / "data/a").unlink()
    trained.write("data/a", "another")
    line = fault(trained)
    assert line.startswith("data/a: the version that the run read")
    assert md5 in line
    kept.write_bytes(content + b"tampered")
    assert "`posttrain audit` names them" in fault(trained), "the cache's bytes are not those of their name"


def test_recorded_bytes_that_are_gone_leave_the_hashes(trained: Toy) -> None:
    of = verifying.resolve_execution_record(trained.root, "t")
    entry = json.loads(json.dumps(of.entry))
    entry["outs"][0]["md5"] = "0" * 32 + ".dir"
    [difference] = verify(trained, entry=entry).differences
    assert difference.path == "data/t"
    assert "are not kept any more" in difference.what


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cmd": "touch {root}/escaped"}, "names"),
        ({"outs": [{"path": "../out", "md5": "0" * 32}]}, "outside the repository"),
        ({"deps": [{"path": "/etc/hostname", "md5": "0" * 32}]}, "outside the repository"),
        ({"deps": [{"path": "s3://bucket/x", "md5": "0" * 32}]}, "outside the repository"),
        ({"cmd": ""}, "no command is on record"),
        ({"cmd": "echo no luck && false"}, "no luck (exit status 1)"),
        ({"cmd": "true"}, "ended without making it again"),
    ],
)
def test_commands_that_cannot_run_in_a_copy(trained: Toy, change: dict[str, Any], said: str) -> None:
    entry = json.loads(json.dumps(verifying.resolve_execution_record(trained.root, "t").entry)) | change
    entry["cmd"] = entry["cmd"].format(root=trained.root)
    assert said in fault(trained, entry=entry)
    assert not (trained.root / "escaped").exists()


def test_a_link_in_the_commit_does_not_lead_out_of_the_copy(trained: Toy) -> None:
    outside = trained.root.parent / "outside"
    outside.mkdir()
    (trained.root / "linked").symlink_to(outside)
    made = commit(trained)
    md5 = verifying.resolve_execution_record(trained.root, "a").entry["outs"][0]["md5"]
    entry = json.loads(json.dumps(verifying.resolve_execution_record(trained.root, "t").entry))
    entry["deps"].append({"path": "linked/a", "md5": md5})
    assert "a link in the commit leads out of the copy" in fault(trained, entry=entry, commit=made)
    assert not list(outside.iterdir())


def test_a_copy_has_the_files_that_were_hashed(trained: Toy) -> None:
    """A link to a file elsewhere leads nowhere in a copy of the commit, which also has what .dvcignore leaves out."""
    trained.write(".dvcignore", "*.log\n")
    trained.write("raw/rows/one.txt", "1\n")
    trained.write("raw/rows/two.log", "left out\n")
    trained.write("none/two.log", "of a folder without data\n")
    elsewhere = trained.root.parent / "elsewhere.txt"
    elsewhere.write_text("linked\n")
    (trained.root / "raw/rows/linked.txt").symlink_to("../../../elsewhere.txt")
    trained.write("make.sh", "cat raw/rows/*.txt > data/r\n")
    trained.stage("r", cmd="sh make.sh", deps=["raw", "none", "make.sh"])
    commit(trained)
    assert trained.run("r", recorder=FlowRecorder(trained.root, "language"))["r"].state == "ran"
    assert verify(trained, "r").verdict == "equal"

    (trained.root / "raw/more").symlink_to("rows")
    trained.write("raw/rows/one.txt", "other\n")
    commit(trained)
    assert "raw/more: a link to rows, a folder" in fault(trained, "r")


def test_other_numbers_in_mlflow_are_a_difference(trained: Toy) -> None:
    of = verifying.resolve_execution_record(trained.root, "t")
    log = (
        "import sqlite3, pathlib; pathlib.Path('mlruns').mkdir(exist_ok=True); c = sqlite3.connect('mlruns/mlflow.db');"
    )
    made = (
        "CREATE TABLE tags (a); CREATE TABLE runs (run_uuid, start_time); "
        "CREATE TABLE metrics (run_uuid, key, value, timestamp, step, is_nan);"
    )
    rows = "INSERT INTO runs VALUES ('r', 1); INSERT INTO metrics VALUES ('r', 'loss', 0.5, 1, 1, 0);"
    entry = {**of.entry, "cmd": f'python train.py && python -c "{log} c.executescript(\\"{made}{rows}\\")"'}
    assert verify(trained, entry=entry).verdict == "equal", "the recorded run logged nothing to compare with"
    with sqlite3.connect(trained.root / "mlruns/mlflow.db") as records:
        columns = "(key, value, timestamp, run_uuid, step, is_nan) VALUES ('loss', 0.25, 1, ?, 1, 0)"
        records.execute(f"INSERT INTO metrics {columns}", [of.run_id])
    records.close()
    found = verify(trained, entry=entry)
    assert (found.verdict, found.differences) == ("differs", [])
    assert found.step is not None
    assert (found.step.metric, found.step.recorded, found.step.made) == ("loss", 0.25, 0.5)


def test_versions_that_differ_are_told(trained: Toy) -> None:
    of = verifying.resolve_execution_record(trained.root, "t")
    recorded = {**of.environment, "torch": "0.1", "cores": "1000"}
    found = verify(trained, environment=recorded)
    assert list(found.environment) == ["torch", "cores"], "versions come first"
    assert found.environment["torch"][0] == "0.1"


def test_a_scratch_copy_that_is_kept(trained: Toy, no_scratch_copy_is_left: Path) -> None:
    of: ExecutionRecord = verifying.resolve_execution_record(trained.root, "t")
    found = verifying.verify_execution(trained.root, of, lambda line: None, lambda *steps: None, keep=True)
    assert found.copy is not None
    assert found.copy.parent == no_scratch_copy_is_left
    assert (found.copy / "data/t/model.safetensors").is_file()
    shutil.rmtree(found.copy)

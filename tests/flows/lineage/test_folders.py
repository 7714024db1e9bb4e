"""A folder in which several stages put their outputs and that another reads as one input: the chain goes on behind
it.
"""

import shutil
from pathlib import Path

import pytest

from flows.engine import dvc_lock
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.lineage import folders
from flows.lineage.chain import Link, trace_lineage
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import copied


@pytest.fixture(scope="module")
def once(template: Path, empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """data/e/one (a folder) and data/e/two (a file) by stages of their own, and `all`, which reads data/e."""
    shutil.copytree(template, root := tmp_path_factory.mktemp("gathered") / "toy")
    toy = Toy(root)
    toy.stage(
        "one", cmd="python work.py x.txt && mkdir -p data/e/one/in && mv x.txt data/e/one/in/x.txt", outs=["data/e/one"]
    )
    toy.stage("two", cmd="mkdir -p data/e && python work.py data/e/two", outs=["data/e/two"])
    toy.stage("all", cmd="mkdir -p data && cat data/e/two data/e/one/in/x.txt > data/all")
    toy.stages["all"]["deps"] = ["work.py", "data/e"]
    toy.save()
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    run(toy)
    return toy


@pytest.fixture
def gathered(once: Toy, tmp_path: Path) -> Toy:
    return copied(once, tmp_path / "toy")


def run(toy: Toy) -> None:
    recorder = FlowRecorder(toy.root, "language")
    recorder.close(toy.run(recorder=recorder).values())


def below(toy: Toy, of: str) -> Link:
    [folder] = trace_lineage(toy.root, of).inputs
    assert folder.path == "data/e"
    return folder


def test_the_chain_goes_on_to_the_outputs_in_the_folder(gathered: Toy) -> None:
    folder = below(gathered, "all")
    assert (folder.stage, folder.run_id, folder.note) == (None, None, "")
    assert [(link.path, link.stage, bool(link.run_id)) for link in folder.inputs] == [
        ("data/e/one", "one", True),
        ("data/e/two", "two", True),
    ]


def test_of_an_earlier_version_to_those_that_it_held_then(gathered: Toy) -> None:
    before = trace_lineage(gathered.root, "all")
    gathered.set(two=2)
    run(gathered)
    now = trace_lineage(gathered.root, "all")
    assert now.hash != before.hash
    assert trace_lineage(gathered.root, before.hash) == before
    hashes = [{link.path: link.hash for link in one.inputs[0].inputs} for one in (before, now)]
    assert hashes[0]["data/e/one"] == hashes[1]["data/e/one"]
    assert hashes[0]["data/e/two"] != hashes[1]["data/e/two"]


def test_a_file_that_no_stage_made_is_a_break(gathered: Toy) -> None:
    """Somebody put a file into the folder before a stage read it."""
    gathered.write("data/e/stranger", "x")
    gathered.set(all=2)
    run(gathered)
    folder = below(gathered, "all")
    assert folder.inputs == ()
    assert folder.note.startswith("the chain breaks here: stages put outputs in this folder, but which ones it held")


def test_without_the_cache_it_is_not_proved(gathered: Toy) -> None:
    shutil.rmtree(gathered.root / ".dvc/cache/files")
    folder = below(gathered, "all")
    assert [link.path for link in folder.inputs] == ["data/e/one", "data/e/two"]
    assert folder.note == "not proved to be these outputs: the cache does not list their files any more"


def test_raw_folders_stay_raw(gathered: Toy) -> None:
    gathered.write("raw/a.txt", "a")
    gathered.stages["one"]["deps"].append("raw")
    gathered.save()
    run(gathered)
    links = {link.path: link for link in trace_lineage(gathered.root, "one").inputs}
    assert links["raw"].note == "raw: no stage makes it"


def test_the_hash_of_a_folder_is_dvc_s_own(gathered: Toy) -> None:
    outs = {
        path: md5
        for entry in gathered.lock["stages"].values()
        for path, md5 in dvc_lock.get_entry_hashes(entry, "outs").items()
    }
    inside = {path: md5 for path, md5 in outs.items() if path.startswith("data/e/")}
    recorded = dvc_lock.get_entry_hashes(gathered.lock["stages"]["all"], "deps")["data/e"]
    assert folders.compute_folder_hash(gathered.root, "data/e", inside) == recorded
    assert folders.compute_folder_hash(gathered.root, "data/e", {**inside, "data/e/two": "0" * 32}) != recorded
    assert folders.find_folder_outputs(gathered.root, "data/e", "0" * 32 + ".dir", [inside])[0] == {}
    assert folders.find_folder_outputs(gathered.root, "data/other", recorded, [outs]) == ({}, "")

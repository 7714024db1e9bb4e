"""The record of a run comes to another clone with its result, through DVC's remote alone; what was done to it on the
way is a fault.
"""

import json
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from flows.engine.records import provenance
from flows.lineage import chain, execution_record, libraries, verifying
from flows.lineage.document import flatten_lineage
from tests.flows.lineage.audited import Audited, replace
from tests.flows.lineage.quick import built_once
from tests.flows.toy_pipeline import call

STAGES = ["a", "b", "c", "evaluate@b", "evaluate@c", "report"]
RECORDS = ".dvc/cache/runs/provenance"


def cloned(toy: Audited, root: Path, *pull: str) -> Audited:
    """A clone of a repository that has pushed, with what `dvc pull` brings and the raw data, which no stage makes."""
    toy.git("clone", "--quiet", str(toy.root), str(root))
    shutil.copytree(toy.root / "data/raw", root / "data/raw")
    clone = Audited.opened(root)
    clone.dvc("pull", "--quiet", *pull)
    return clone


@pytest.fixture(scope="module")
def pushed(audited_once: Audited, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A clone that has run everything and pushed its results with DVC's run cache."""

    def build(folder: Path) -> Audited:
        toy = audited_once.at(folder / "first")
        toy.dvc("remote", "add", "--quiet", "--default", "disk", str(folder / "remote"))
        toy.commit()
        toy.dvc("push", "--quiet", "--run-cache")
        return toy

    return built_once(tmp_path_factory, "provenance_pushed", build)


@pytest.fixture
def second(pushed: Audited, tmp_path: Path) -> Audited:
    return cloned(pushed, tmp_path / "second", "--run-cache")


def test_results_of_other_versions_of_a_library_are_named(pushed: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    assert libraries.find_library_version_changes(pushed.root, STAGES) == {}
    installed = metadata.version("torch")

    def version(package: str) -> str:
        if package == "datasets":
            raise metadata.PackageNotFoundError
        return "99.0" if package in ("torch", "prefect") else real(package)

    real = metadata.version
    monkeypatch.setattr(metadata, "version", version)
    assert libraries.find_library_version_changes(pushed.root, STAGES) == {f"torch {installed}, installed 99.0": STAGES}


def test_the_second_clone_knows_the_runs_of_the_first(pushed: Audited, second: Audited) -> None:
    assert not (second.root / "mlruns").exists()
    audit = second.audit()
    assert audit.faults == []
    assert [finding.line for finding in audit.remarks] == ["a, b, c and 3 more: 6 runs were made in another clone"]
    assert (audit.counts["runs"], audit.counts["code files"]) == (6, 2)
    made, at_origin = (
        execution_record.load_current_records(second.root),
        execution_record.load_current_records(pushed.root),
    )
    assert {made[stage].elsewhere != "" for stage in STAGES} == {True}
    assert {at_origin[stage].elsewhere for stage in STAGES} == {""}
    for stage in STAGES:
        here, first = (
            {key: value for key, value in vars(of).items() if key != "elsewhere"}
            for of in (made[stage], at_origin[stage])
        )
        assert here == first, "run, time, commit, environment and entry are those of the first clone"


def test_lineage_in_the_second_clone_is_that_of_the_first(pushed: Audited, second: Audited) -> None:
    first, other = (flatten_lineage(chain.trace_lineage(toy.root, "report")) for toy in (pushed, second))
    assert other.artifacts == first.artifacts
    for run_id, run in first.runs.items():
        of_other = {**vars(other.runs[run_id]), "elsewhere": ""}
        assert of_other == vars(run)
    assert {run.elsewhere != "" for run in other.runs.values()} == {True}
    run_id = pushed.run_of("b")
    assert chain.trace_lineage(second.root, run_id[:10]).run_id == run_id
    hash_of_b = pushed.lock["stages"]["b"]["outs"][0]["md5"]
    assert chain.trace_lineage(second.root, hash_of_b).params == {"b.rows": "3", "b.beta": "0.2"}
    code, text, _ = call(second.root, "lineage", "report")
    assert (code, "made in another clone" in text, "chain breaks" in text) == (0, True, False)
    assert "made in another clone" not in call(pushed.root, "lineage", "report")[1]


def test_an_earlier_version_is_known_by_its_hash(audited_once: Audited, second: Audited) -> None:
    """The first run of b, with beta 0.1, which dvc.lock has no more."""
    earlier = next(
        run for run in provenance.list_execution_provenance(second.root) if run.params.get("b.beta") == "0.1"
    )
    [md5, _] = earlier.tags["posttrain.outs"].split()
    link = chain.trace_lineage(second.root, md5)
    assert (link.run_id, link.stage, link.params["b.beta"]) == (earlier.run_id, "b", "0.1")


def test_what_was_pulled_is_made_again(second: Audited) -> None:
    found = verifying.verify_execution(
        second.root, verifying.resolve_execution_record(second.root, "b"), lambda line: None, lambda *steps: None
    )
    assert (found.verdict, found.notes) == ("equal", [])


def test_plain_pull_brings_no_records_and_that_is_a_fault(pushed: Audited, tmp_path: Path) -> None:
    clone = cloned(pushed, tmp_path / "third")
    code, text, _ = call(clone.root, "audit")
    assert code == 1
    [line] = [line for line in text.replace("\n", " ").split("fault   ") if line]
    assert line.startswith("a, b, c, evaluate@b, evaluate@c, report: no run on record made these: ")
    clone.dvc("pull", "--quiet", "--run-cache")
    assert clone.faults() == []


def test_results_of_both_clones_side_by_side(second: Audited, pushed: Audited, tmp_path: Path) -> None:
    """The second clone goes on, pushes, and the first one has its results again."""
    second.change("b", beta=0.3)
    states = {name: result.state for name, result in second.pipeline().items()}
    assert (states["a"], states["b"], states["evaluate@b"]) == ("up-to-date", "ran", "ran")
    audit = second.audit()
    assert audit.faults == []
    assert [finding.what for finding in audit.remarks if "clone" in finding.what] == [
        "4 runs were made in another clone"
    ]
    second.commit()
    second.dvc("push", "--quiet", "--run-cache")
    third = cloned(second, tmp_path / "third", "--run-cache")
    assert third.faults() == []
    assert execution_record.load_current_records(third.root)["b"].run_id == second.run_of("b")
    assert execution_record.load_current_records(third.root)["c"].run_id == pushed.run_of("c")


def the_record(toy: Audited, stage: str) -> Path:
    run_id = execution_record.load_current_records(toy.root)[stage].run_id
    [file] = (toy.root / RECORDS).glob(f"*/{run_id}-*.json")
    return file


def test_a_record_that_was_changed_after_it_was_sealed(second: Audited, audited: Audited) -> None:
    """In the clone that pulled it, and in that whose MLflow has the run too."""
    for toy in (second, audited):
        file = the_record(toy, "evaluate@b")
        replace(file, '"mean": 0.5', '"mean": 0.6')
        faults = toy.faults()
        where = file.relative_to(toy.root)
        assert any(
            line.startswith(f"{where}: this record of a run was changed after it was written") for line in faults
        )
        assert any(line.startswith("evaluate@b: no run on record made this") for line in faults) == (toy is second)


def test_the_record_of_another_result(second: Audited) -> None:
    """A result that was changed by hand and committed, with the true record of the one before laid beside it."""
    file = the_record(second, "evaluate@b")
    forge(second, "evaluate@b")
    target = second.root / RECORDS / provenance.compute_entry_hash(second.lock["stages"]["evaluate@b"]) / file.name
    target.parent.mkdir()
    shutil.copyfile(file, target)
    faults = second.faults()
    assert any(
        line.startswith(f"{target.relative_to(second.root)}: this record of a run was changed") for line in faults
    )


def forge(toy: Audited, stage: str) -> None:
    """Change the evaluation by hand, and have DVC commit it and what follows."""
    file = toy.root / f"data/metrics/{stage}.json"
    metrics: dict[str, Any] = json.loads(file.read_text())
    metrics["strict_greedy"]["mean"] += 0.066
    file.unlink()
    file.write_text(json.dumps(metrics))
    toy.dvc("commit", "--quiet", "--force", stage)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_evaluation_that_was_made_by_hand_and_committed(audited: Audited, second: Audited, elsewhere: bool) -> None:
    """Where it was run, and in a clone that has the records of all other results."""
    toy = second if elsewhere else audited
    forge(toy, "evaluate@b")
    faults = toy.faults("data/metrics/evaluate@b.json")
    assert any(line.startswith("evaluate@b: no run on record made this") for line in faults), faults


def test_a_metrics_file_whose_hash_was_written_into_dvc_lock(second: Audited) -> None:
    """Not by DVC, so that the run cache has the entry of before too."""
    forge(second, "evaluate@b")
    forged = second.lock
    shutil.rmtree(second.root / ".dvc/cache/runs")
    second.dvc("pull", "--quiet", "--run-cache")
    assert second.lock == forged
    faults = second.faults()
    expected = "dvc.lock: evaluate@b: out data/metrics/evaluate@b.json is "
    assert any(line.startswith(expected) and "record.json and the run cache have " in line for line in faults), faults

"""Records of stages whose code is a file of the stage `code`: audit, verify, `status --why` and accept know the code by
it.
"""

import shutil
from pathlib import Path

import pytest

from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.lineage import execution_record, git_files, verifying
from flows.lineage.acceptance import accepting
from flows.lineage.auditing import audit_lineage
from flows.lineage.checks import sources
from flows.lineage.reproduction import checkout
from flows.lineage.reproduction.scratch_copy import CannotReproduceError
from flows.lineage.staleness import find_staleness_causes
from tests.flows.engine.coded import choosing, edit, write
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.quick import built_once, copy_folder

HELPER = "tasks/toys/helper.py"


@pytest.fixture(scope="module")
def coded_once(tmp_path_factory: pytest.TempPathFactory, template: Path, empty_mlflow: Path) -> Audited:
    def build(folder: Path) -> Audited:
        copy_folder(template, folder / "repository")
        toy = Audited(folder / "repository")
        write(toy)
        toy.write(".gitignore", "/data/\n/mlruns/\n__pycache__/\n")
        (toy.root / "mlruns").mkdir()
        shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
        toy.commit()
        recorder = FlowRecorder(toy.root, "language")
        results = toy.run(recorder=recorder)
        recorder.close(results.values())
        assert {result.state for result in results.values()} == {"ran"}
        return toy

    return built_once(tmp_path_factory, "coded_once", build)


@pytest.fixture
def coded(coded_once: Audited, tmp_path: Path) -> Audited:
    return coded_once.at(tmp_path / "repository")


def verify(toy: Audited, stage: str) -> verifying.Verification:
    return verifying.verify_execution(
        toy.root, verifying.resolve_execution_record(toy.root, stage), lambda _: None, lambda *_: None
    )


def test_an_audit_makes_the_files_again_from_the_commit_of_the_run(coded: Audited) -> None:
    assert audit_lineage(coded.root).faults == []
    file = coded.root / "data/code/first.json"
    recorded = coded.lock["stages"]["first"]["deps"][0]["md5"]
    edit(coded, HELPER, "COUNT = 3", "COUNT = 3  # so many")
    assert not [one for one in audit_lineage(coded.root).faults if one.check == "code"], "no stage reaches a comment"
    edit(coded, HELPER, "COUNT = 3", "COUNT = 4")
    [line] = [one.line for one in audit_lineage(coded.root).faults if one.check == "code"]
    assert line == "data/code/first.json: was changed after first ran with it: first is out of date"
    coded.git("checkout", "--quiet", "tasks")
    lock = coded.root / "dvc.lock"
    lock.write_text(lock.read_text().replace(recorded, "f" * 32))
    assert any(one.check == "code" for one in audit_lineage(coded.root).faults), "another code than the commit has"
    assert file.is_file()


def test_a_commit_with_other_code_than_the_run_read_is_a_fault(coded: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the record names another commit than the one that ran."""
    other = coded.read(HELPER).replace("COUNT = 3", "COUNT = 4").encode()
    monkeypatch.setattr(sources, "read_tree_files", lambda *of: {**git_files.read_tree_files(*of), HELPER: other})
    [line] = [one.line for one in audit_lineage(coded.root).faults if one.check == "code"]
    assert line.startswith("data/code/first.json: commit ")
    assert ", the run read " in line


def test_a_stage_is_made_again_with_the_code_that_ran(coded: Audited) -> None:
    edit(coded, HELPER, "COUNT = 3", "COUNT = 4")
    coded.commit()
    assert verify(coded, "first").verdict == "equal"
    shutil.rmtree(coded.root / "data/code")
    assert verify(coded, "first").verdict == "equal", "its file is made by the code of the copy"


def test_a_record_of_other_code_cannot_be_made_again(coded: Audited) -> None:
    wanted = verifying.resolve_execution_record(coded.root, "first")
    entry = {**wanted.entry, "deps": [{**wanted.entry["deps"][0], "md5": "0" * 32}]}
    other = execution_record.ExecutionRecord(**{**vars(wanted), "entry": entry})
    with pytest.raises(CannotReproduceError, match=r"data/code/first\.json: expected 00000000, but commit"):
        verifying.verify_execution(coded.root, other, lambda _: None, lambda *_: None)


def test_why_a_stage_is_out_of_date_names_the_module_and_its_lines(coded: Audited) -> None:
    edit(coded, HELPER, "COUNT = 3", "COUNT = 4")
    [cause] = find_staleness_causes(coded.root, "first")
    assert cause.what == f"{HELPER}, since run {coded.run_of('first')[:8]}"
    assert [line for line in cause.lines if line[:1] in "+-"] == ["-COUNT = 3", "+COUNT = 4"]
    assert find_staleness_causes(coded.root, "second") == []


def test_a_person_may_vouch_for_an_edit(coded: Audited) -> None:
    edit(coded, HELPER, "COUNT = 3", "COUNT = 2 + 1")
    assert coded.states("code") == {"code": "ran"}
    assert coded.reasons("first") == {"code": None, "first": "dep data/code/first.json changed"}
    accepting.accept_change(coded.root, "language", ["first"], "the same number")
    assert set(coded.reasons().values()) == {None}
    made = execution_record.load_current_records(coded.root)["first"]
    assert made.run_id == coded.run_of("first")
    assert [step.why for step in made.accepted] == ["the same number"]


def test_code_that_a_section_chose_is_known_by_the_run_s_own_params(
    coded: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a point of a sweep, whose values are neither in the commit nor in a patch."""
    choosing(coded, "good")
    coded.commit()
    before = coded.read("params.yaml").encode()
    monkeypatch.setattr(
        sources, "read_tree_files", lambda *of: {**git_files.read_tree_files(*of), "params.yaml": before}
    )
    monkeypatch.setattr(checkout, "apply_patch", lambda *_: None)
    coded.set(third={"reward": {"bad": 1.0}})
    recorder = FlowRecorder(coded.root, "language")
    recorder.close(coded.run(recorder=recorder).values())
    assert audit_lineage(coded.root).faults == []
    assert verify(coded, "third").verdict == "equal"
    edit(coded, "tasks/language/rewards/by_name/bad.py", '("bad")', '("worse")')
    [cause] = find_staleness_causes(coded.root, "third")
    assert cause.what.startswith("tasks/language/rewards/by_name/bad.py, since run ")
    assert [line for line in cause.lines if line[:1] in "+-"] == ['-    return ("bad")', '+    return ("worse")']

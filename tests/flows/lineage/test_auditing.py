"""What nobody has falsified audits clean, whatever happened on the way; and what an audit says of itself."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from flows.lineage.checks.md5_cache import PLACE, Memory
from tests.flows.lineage.audited import Audited, flip, replace
from tests.flows.toy_pipeline import call


def lines(audited: Audited, of: str | None = None, **options: bool) -> list[str]:
    return [finding.line for finding in audited.audit(of, **options).findings]


def test_what_two_runs_made_is_clean(audited: Audited, thrice: Audited) -> None:
    found = audited.audit()
    assert found.findings == []
    assert dict(found.counts) == {
        "outs": 11,  # 6 of the stages a to c, 2 of the evaluations, the report, 2 raw files
        "files": 29,
        "runs": 7,
        "parameters": 9,
        "code files": 2,
        "numbers": 32,
    }
    whole = audited.audit(everything=True)
    assert (whole.findings, whole.counts["runs"]) == ([], 10)
    assert lines(audited, audited.run_of("b")) == []
    of_a_number = audited.audit("b strict_greedy")
    assert of_a_number.findings == []
    assert of_a_number.counts["runs"] == 4, "a, b, evaluate@b and the pipeline run"
    before = audited.lock["stages"]["b"]["outs"][0]["md5"]
    assert lines(thrice, before) == [], "a hash of the past, with what it was made from"


def test_where_nothing_is_recorded_that_is_said(audited: Audited) -> None:
    for left in ("dvc.lock", "mlruns/mlflow.db"):
        (audited.root / left).unlink()
    found = audited.audit()
    assert not found.faults
    said = [remark.line for remark in found.remarks]
    assert said[0] == "dvc.lock: records nothing yet; `posttrain run` makes the first results"


def test_a_run_in_which_nothing_changed_and_one_that_restores(audited: Audited) -> None:
    assert {result.state for result in audited.pipeline().values()} == {"up-to-date"}
    assert lines(audited) == []
    audited.change("b", beta=0.1)
    states = {name: result.state for name, result in audited.pipeline().items()}
    assert (states["b"], states["evaluate@b"]) == ("restored", "restored")
    assert lines(audited, everything=True) == []


@pytest.mark.slow
def test_plain_dvc_repro_between_two_runs(audited: Audited) -> None:
    audited.change("b", beta=0.3)
    audited.dvc("repro")
    audit = audited.audit()
    assert audit.remarks == []
    assert [finding.where for finding in audit.faults] == ["b, evaluate@b"], "nobody logged these runs"
    audited.change("report", title="other")
    audited.pipeline()
    assert [finding.where for finding in audited.audit(everything=True).faults] == ["b, evaluate@b"]
    audited.pipeline(force=["b", "evaluate@b"])
    assert audited.faults(everything=True) == []


def test_a_failed_stage_is_only_said(audited: Audited) -> None:
    audited.change("b", fail=True)
    assert audited.pipeline()["b"].state == "failed"
    audit = audited.audit()
    assert audit.faults == []
    said = [finding.line for finding in audit.remarks]
    assert any("the language run of " in line and " failed" in line for line in said), said
    assert any("param b.fail is new since b ran: it is out of date" in line for line in said), said
    audited.change("c", beta=0.3)  # after the run that failed
    os.utime(audited.root / "params.yaml", (4e9, 4e9))
    assert any("param c.beta changed 0.1 -> 0.3" in line for line in audited.faults())


@pytest.fixture(scope="module")
def dirty_once(template: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Audited:
    """Two stages ran with a module that differs from the commit, and with two that git does not know."""
    root = tmp_path_factory.mktemp("dirty") / "repository"
    shutil.copytree(template, root)
    audited = Audited.build(root, empty_mlflow)
    audited.write("more.py", "VALUE = 1\n")
    audited.write("empty.py", "")
    helper = audited.root / "helper.py"
    helper.write_text(helper.read_text() + "import more, empty  # \N{SNOWMAN}\n")
    for stage in (*"abc", "report"):
        audited.stages[stage]["deps"] += ["more.py", "empty.py"]
    audited.save()
    audited.pipeline("b")
    return audited


@pytest.fixture
def dirty(dirty_once: Audited, tmp_path: Path) -> Audited:
    return dirty_once.at(tmp_path / "repository")


def test_a_dirty_tree_and_an_untracked_module(dirty: Audited) -> None:
    audit = dirty.audit()
    assert [finding.line for finding in audit.findings] == []
    assert audit.counts["code files"] == 4
    status, objects = dirty.git("status", "--porcelain"), sorted((dirty.root / ".git").rglob("*"))
    dirty.audit(everything=True)
    assert (dirty.git("status", "--porcelain"), sorted((dirty.root / ".git").rglob("*"))) == (status, objects)
    helper = dirty.root / "helper.py"
    helper.write_text(helper.read_text() + "# later\n")
    assert [line.partition(" after ")[0] for line in dirty.faults()] == ["helper.py: was changed"]


def test_the_kept_patch_is_the_recorded_one(dirty: Audited) -> None:
    [patch] = (dirty.root / "mlruns/artifacts").rglob("uncommitted.patch")
    replace(patch, "# \N{SNOWMAN}", "# altered")
    faults = dirty.faults()
    assert faults
    assert all("uncommitted.patch: its SHA-256 is " in line for line in faults), faults
    patch.unlink()
    assert all("uncommitted.patch: is missing from the run's files" in line for line in dirty.faults())


def test_without_git_or_with_the_commit_gone(audited: Audited) -> None:
    for left in ("objects", "refs"):
        shutil.rmtree(audited.root / ".git" / left)
        (audited.root / ".git" / left).mkdir()
    for said in lines(audited):
        assert said.startswith("git: the code of ")
        assert "cannot be compared: the commit " in said
        assert "is not here (any more): rebased, or a shallow clone" in said
    shutil.rmtree(audited.root / ".git")
    audited.root.joinpath(".dvc/config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    assert audited.faults() == []


def test_where_git_refuses_its_own_words_are_said(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for root in a checkout of another user: nothing was rebased."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refusal = "git: fatal: detected dubious ownership in repository at "
    assert lines(audited)
    assert all(f"cannot be compared: {refusal}" in line for line in lines(audited))
    code, _, error = call(audited.root, "compare", "now", "HEAD")
    assert (code, error.count("\n")) == (2, 1)
    assert refusal in error
    code, _, error = call(audited.root, "clean")
    assert (code, refusal in error) == (2, True), "what a commit names must stay"
    audited.change("b", beta=0.3)
    audited.pipeline()
    assert f"no commit is on record ({refusal}" in "".join(lines(audited, "data/b"))
    full = call(audited.root, "lineage", "data/b", "--full")[1]
    assert f"commit unknown ({refusal}" in full


def test_a_module_with_a_secret_is_no_fault(audited: Audited) -> None:
    """Its bytes are not those of the commit, and the patch has none of it."""
    helper, token = audited.root / "helper.py", "hf_" + "aB3" * 12
    helper.write_text(helper.read_text() + f'TOKEN = "{token}"\n')
    audited.pipeline()
    found = audited.audit()
    assert found.faults == []
    assert any("1 file that differs is neither named nor kept" in remark.line for remark in found.remarks)
    assert not [
        file for file in (audited.root / "mlruns").rglob("*") if file.is_file() and token.encode() in file.read_bytes()
    ]


def test_a_collected_cache_and_missing_outs(audited: Audited) -> None:
    shutil.rmtree(audited.root / "data/b")
    [said] = lines(audited)
    assert said.startswith("data/b: is in the cache, but not in the workspace; `dvc checkout` brings it back (b, run ")
    audited.dvc("checkout")
    audited.dvc("gc", "--workspace", "--force")
    audit = audited.audit(everything=True)
    assert audit.faults == []
    assert {finding.where for finding in audit.remarks} == {"data/b"}
    assert "not in the cache (any more)" in audit.remarks[0].what
    audited.cached("data/b/model.bin").unlink()
    assert "data/b: 1 of its 3 files are not in the cache (any more)" in lines(audited)[0]
    (audited.root / "data/b/model.bin").unlink()
    assert audited.faults()[0].startswith("data/b/model.bin: is missing; expected ")


def test_a_folder_that_holds_no_data_is_no_missing_one(audited: Audited) -> None:
    """Git keeps it by a page that .dvcignore leaves out."""
    audited.write(".dvcignore", "README.md\n")
    page = audited.write("data/raw/none/README.md", "No data yet.\n")
    audited.stages["b"]["deps"].append("data/raw/none")
    audited.save()
    audited.pipeline()
    page.write_text("No data yet!\n")
    assert audited.faults() == []
    shutil.rmtree(page.parent)
    assert [line.partition(";")[0] for line in audited.faults()] == ["data/raw/none: is missing"]


def test_results_of_another_machine(audited: Audited) -> None:
    """As `dvc pull --run-cache` brings them, with the records of their runs, and as plain `dvc pull` does."""
    shutil.rmtree(audited.root / "mlruns")
    audit = audited.audit()
    assert audit.faults == []
    assert [finding.what for finding in audit.remarks] == ["6 runs were made in another clone"]
    flip(audited.root / "data/b/model.bin")
    assert len(audited.faults()) == 1
    flip(audited.root / "data/b/model.bin")
    shutil.rmtree(audited.root / ".dvc/cache/runs")
    [fault] = audited.audit().faults
    assert fault.where.split(", ") == [*audited.lock["stages"]]
    assert "no run on record made these: " in fault.what
    assert "`dvc pull --run-cache` brings such records" in fault.what


def test_the_memory_of_digests(audited: Audited, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 100)
    root = audited.root
    md5 = hashlib.md5(b"x" * 100).hexdigest()
    first = Memory(root)
    assert first.digests([file, tmp_path / "none", tmp_path]) == {file: md5, tmp_path / "none": None, tmp_path: None}
    first.save()
    assert first.read == 100
    young = Memory(root)
    young.digests([file])
    assert young.read == 100, "what has just changed may change again at the same time"
    for content in ('{"version": 1, "files": {"x": [1]}}', "[]", "{", '{"version": 2, "files": {}}'):
        (root / PLACE).write_text(content)
        assert Memory(root).digests([file])[file] == md5


def test_an_audit_reads_only_what_changed(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.lineage.checks.md5_cache.SETTLED", -1)
    first, second = audited.audit(), audited.audit()
    assert first.read > 0 == second.read
    assert audited.audit(full=True).read == first.read
    flip(audited.root / "data/b/model.bin")
    assert audited.audit().read == (audited.root / "data/b/model.bin").stat().st_size


def test_the_command(audited: Audited) -> None:
    code, out, error = call(audited.root, "audit")
    assert (code, error) == (0, "")
    assert out.startswith("no faults: 11 outs, 29 files, 7 runs, 9 parameters, 2 code files, 32 numbers checked in ")
    flip(audited.root / "data/b/model.bin")
    assert call(audited.root, "audit", "c")[0] == 0
    code, out, _ = call(audited.root, "audit", "b", "--json")
    content = json.loads(out)
    assert (code, content["clean"], len(content["faults"])) == (1, False, 1)
    assert content["faults"][0]["where"] == "data/b/model.bin"
    assert content["faults"][0]["stage"] == "b"
    code, _, error = call(audited.root, "audit", "nothing")
    assert (code, error.count("\n")) == (2, 1)
    assert call(audited.root, "audit", "b", "--all")[0] == 2

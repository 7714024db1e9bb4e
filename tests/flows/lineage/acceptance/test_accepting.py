"""Edits without effect, in a repository that has run: nothing runs again, DVC agrees, and every record knows."""

import json
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows import effectless_edits
from flows.engine import mlflow_runs
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_changes import MIXED
from flows.engine.dvc_repository import PlanError
from flows.engine.plan import plan
from flows.lineage import chain, record, verifying
from flows.lineage.acceptance import accepting, dvc_entries, kept
from flows.lineage.comparison import comparing
from flows.lineage.staleness import causes
from tests.flows.lineage.audited import Audited, replace
from tests.flows.lineage.edited import accept_edits, comment, planned

CLEAN = "Data and pipelines are up to date."
STAGES = ["a", "b", "c", "evaluate@b", "evaluate@c", "report"]


def lines(toy: Audited) -> list[str]:
    return [finding.line for finding in toy.audit().findings]


@pytest.mark.slow
def test_a_comment_runs_nothing_and_every_record_knows(audited: Audited) -> None:
    before, runs = audited.lock, {stage: audited.run_of(stage) for stage in STAGES}
    comment(audited)
    assert {stage.accepts for stage in planned(audited)} == {("comments or layout in helper.py",)}
    assert {stage.reason for stage in planned(audited)} == {None}
    assert audited.dvc("status").strip() != CLEAN, "a plan writes nothing"
    assert sorted(accept_edits(audited)) == STAGES

    assert audited.dvc("status").strip() == CLEAN
    assert "up to date" in audited.dvc("repro")
    assert accept_edits(audited) == []
    for stage, entry in audited.lock["stages"].items():
        assert entry["outs"] == before["stages"][stage]["outs"]
    assert {stage: made.run_id for stage, made in record.now(audited.root).items()} == runs
    assert lines(audited) == []
    assert audited.audit().counts["accepted changes"] == 6
    assert {result.state for result in audited.pipeline().values()} == {"up-to-date"}
    assert lines(audited) == []

    link = chain.chain(audited.root, "b")
    assert link.run_id == runs["b"]
    assert link.accepted == ("accepted: comments or layout in helper.py",)
    tags = mlflow_runs.get(audited.root, runs["b"]).tags
    assert tags["posttrain.outs_accepted"].startswith("accepted: comments or layout in helper.py (")


def test_no_edit_is_accepted_of_an_entry_that_no_run_made(audited: Audited) -> None:
    """The outs of the run before, with another beta, beside the last run's params."""
    read = YAML(typ="safe").load
    entries = [read(file) for file in audited.root.glob(".dvc/cache/runs/??/*/*")]
    lock, own = audited.lock, audited.lock["stages"]["b"]
    [earlier] = [one for one in entries if one["cmd"] == own["cmd"] and one["params"] != own["params"]]
    lock["stages"]["b"] = {**own, "outs": earlier["outs"]}
    with (audited.root / "dvc.lock").open("w") as file:
        YAML().dump(lock, file)
    audited.dvc("checkout")
    comment(audited)
    [b] = [stage for stage in planned(audited) if stage.name == "b"]
    assert (b.accepts, MIXED in str(b.reason)) == ((), True)
    accepting.accept_change(audited.root, "language", ["b"], "merged by hand")
    assert {stage.name: stage.reason for stage in planned(audited)}["b"] is None, "a person may vouch for it"


def test_a_fresh_restore_takes_the_accepted_entry_from_the_run_cache(audited: Audited) -> None:
    comment(audited)
    accept_edits(audited)
    shutil.rmtree(audited.root / "data/b")
    (audited.root / "dvc.lock").unlink()
    assert audited.pipeline("b")["b"].state == "restored"
    assert audited.dvc("status", "b").strip() == CLEAN
    found = record.now(audited.root)["b"]
    assert found.run_id == audited.run_of("b")
    assert found.accepted


def test_edits_one_after_the_other_and_back(audited: Audited) -> None:
    original = audited.read("helper.py")
    run = audited.run_of("b")
    comment(audited)
    accept_edits(audited)
    audited.commit()
    comment(audited, '"""How to read."""\n')
    assert planned(audited)[0].accepts == ("docstrings in helper.py",)
    accept_edits(audited)
    found = record.now(audited.root)["b"]
    assert (found.run_id, len(found.accepted)) == (run, 2)
    assert found.entry == record.of_run(audited.root, run).entry
    assert chain.chain(audited.root, "b").accepted == (
        "accepted: comments or layout in helper.py",
        "accepted: docstrings in helper.py",
    )
    assert lines(audited) == []
    audited.write("helper.py", original)
    assert accept_edits(audited), "back to the first version"
    assert record.now(audited.root)["b"].accepted == ()
    assert lines(audited) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sorted(path", "list(path"),
        ("def text(path)", '"""Reads."""\ndef text(path, more=1)'),
        ("text()", "text( )+''"),
    ],
)
def test_what_may_have_an_effect_runs_again(audited: Audited, old: str, new: str) -> None:
    comment(audited)
    replace(audited.root / "helper.py", old, new)
    assert accept_edits(audited) == []
    assert planned(audited)[0].reason == "dep helper.py changed"


def test_a_comment_beside_anything_else_runs_again(audited: Audited) -> None:
    comment(audited)
    audited.change("b", beta=0.5)
    audited.write("data/c/model.bin", "changed")
    by_name = {stage.name: stage for stage in planned(audited)}
    assert [name for name in "abc" if by_name[name].accepts] == ["a"]
    assert by_name["b"].reason == "dep helper.py changed; param b.beta changed 0.2 -> 0.5"
    with pytest.raises(PlanError, match="b: its code or its outs changed meanwhile; run it again"):
        accepting.accept_edits(audited.root, "language", ["a", "b"])
    assert by_name["evaluate@b"].reason == "upstream b will run", "its own edit is accepted all the same"
    assert by_name["evaluate@b"].accepts
    accept_edits(audited)
    assert audited.run("b")["a"].state == "up-to-date"


def test_a_forced_stage_runs_whatever_its_edits_are(audited: Audited) -> None:
    comment(audited)
    [stage] = plan(audited.root, ["a"], ["a"], accepts=effectless_edits.judge(audited.root))
    assert (stage.reason, stage.accepts) == ("forced", ())


@pytest.mark.slow
def test_a_module_that_reads_its_text_makes_comments_count(audited: Audited) -> None:
    audited.write("helper.py", audited.read("helper.py") + "\nimport inspect\nlength = len(inspect.getsource(text))\n")
    audited.pipeline()
    comment(audited)
    assert accept_edits(audited) == []


def test_a_dep_that_the_command_is_given_is_data(audited: Audited) -> None:
    audited.stages["reader"] = {
        "cmd": "python reader.py helper.py",
        "deps": ["helper.py", "reader.py"],
        "outs": ["data/lines"],
    }
    audited.save()
    audited.write("reader.py", "import sys\nopen('data/lines', 'w').write(open(sys.argv[1]).read())\n")
    audited.run("reader")
    comment(audited)
    [stage] = plan(audited.root, ["reader"], accepts=effectless_edits.judge(audited.root))
    assert (stage.reason, stage.accepts) == ("dep helper.py changed", ())


@pytest.mark.slow
def test_an_edit_of_code_that_was_never_committed(audited: Audited) -> None:
    """The run's patch has what it read."""
    replace(audited.root / "helper.py", "file.is_file()", "file.is_file() and file.name")
    assert audited.pipeline()["a"].state == "ran"
    comment(audited)
    assert len(accept_edits(audited)) == 6
    comment(audited, "# more\n")
    assert len(accept_edits(audited)) == 6, "the version before is kept with its acceptance"
    assert lines(audited) == []


@pytest.mark.slow
def test_where_the_recorded_version_cannot_be_had_the_stage_runs(audited: Audited) -> None:
    replace(audited.root / "helper.py", "file.is_file()", "file.is_file() and file.name")
    audited.pipeline()
    for patch in audited.root.rglob("uncommitted.patch"):
        patch.unlink()
    comment(audited)
    assert accept_edits(audited) == []


def test_what_an_edit_changed_is_shown_from_the_accepted_version_on(audited: Audited) -> None:
    comment(audited)
    accept_edits(audited)
    replace(audited.root / "helper.py", "sorted(path", "list(path")
    [cause] = causes(audited.root, "b")
    changed = [line for line in cause.lines if line[:1] in "+-"]
    assert len(changed) == 2, "the comment was accepted before"


def test_it_is_compared_and_made_again_with_the_code_that_ran(audited: Audited) -> None:
    before = record.now(audited.root)
    comment(audited)
    accept_edits(audited)
    audited.commit()
    assert comparing.changes(before, record.now(audited.root)) == []
    wanted = verifying.wanted(audited.root, "b")
    assert wanted.entry == before["b"].entry
    said: list[str] = []
    found = verifying.verify(audited.root, wanted, said.append, lambda *_: None)
    assert found.verdict == "equal"
    assert "note: accepted: comments or layout in helper.py; made again with the code that ran" in said


def test_a_kill_before_dvc_s_record_leaves_the_old_one_and_the_next_run_goes_on(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    comment(audited)
    before = audited.read("dvc.lock")

    def killed(self: object, stage: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dvc_entries.Locked, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            accept_edits(audited)
    assert audited.read("dvc.lock") == before
    assert len(accept_edits(audited)) == 6
    assert lines(audited) == []
    found = record.now(audited.root)
    assert len({made.accepted[0].run_id for made in found.values()}) == 1, "the acceptance of before counts"
    assert audited.sql("UPDATE tags SET value = value WHERE key = ?", kept.HOW) == 1, "and no second one was written"


def test_a_kill_after_the_run_cache_and_one_while_mlflow_is_written(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    comment(audited)

    def killed(self: object, stages: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dvc_entries.Locked, "write_lock", killed)
        with pytest.raises(KeyboardInterrupt):
            accept_edits(audited)
    assert len(accept_edits(audited)) == 6
    assert lines(audited) == []
    comment(audited, "# more\n")
    with monkeypatch.context() as patch:
        patch.setattr("flows.engine.mlflow_store.seal", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            accept_edits(audited)
    assert len(accept_edits(audited)) == 6
    assert lines(audited) == []


def test_two_at_once_and_beside_a_run(audited: Audited) -> None:
    comment(audited)
    with Coordinator(audited.root), pytest.raises(PlanError, match="another `posttrain run` is at work"):
        accept_edits(audited)
    names = accept_edits(audited)
    before = audited.read("dvc.lock")
    accepting.accept_edits(audited.root, "language", names)
    assert audited.read("dvc.lock") == before


def test_plain_dvc_commit_would_write_the_same(audited: Audited, tmp_path: Path) -> None:
    other = audited.at(tmp_path / "other")
    comment(audited)
    comment(other)
    accept_edits(audited)
    other.dvc("commit", "--force")
    assert audited.lock == other.lock
    [mine, theirs] = [
        sorted(file.name for file in (toy.root / ".dvc/cache/runs").glob("??/*/*")) for toy in (audited, other)
    ]
    assert mine == theirs


def test_the_record_is_plain_json_with_both_versions_beside_it(audited: Audited) -> None:
    old = audited.read("helper.py")
    comment(audited)
    accept_edits(audited)
    [step, *_] = record.now(audited.root)["a"].accepted
    folder = audited.root / f"mlruns/artifacts/{step.run_id}/artifacts"
    versions = {file.read_text() for file in folder.glob("*.py")}
    assert versions == {old, audited.read("helper.py")}
    assert "+# reads them all" in (folder / "accepted.diff").read_text()
    content = json.loads((folder / "record.json").read_text())["accepted"]
    assert content["how"] == "edit"
    assert content["stages"]["a"]["files"] == {"helper.py": "comments or layout"}

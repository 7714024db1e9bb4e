"""A person's word for edits, in a repository that has run: nothing runs again, DVC agrees, and every record knows."""

import json
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_changes import MIXED
from flows.lineage import chain, execution_record, verifying
from flows.lineage.acceptance import acceptance_runs, accepting, dvc_entries
from flows.lineage.comparison import comparing
from flows.lineage.staleness import find_staleness_causes
from tests.flows.lineage.audited import Audited, replace
from tests.flows.lineage.edited import accept, comment, planned

CLEAN = "Data and pipelines are up to date."
STAGES = ["a", "b", "c", "evaluate@b", "evaluate@c", "report"]


SAID = "accepted by nobody, helper.py: a comment"


@pytest.fixture(autouse=True)
def _by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.common.run_environment.get_user_name", lambda: "nobody")


def lines(toy: Audited) -> list[str]:
    """All that an audit finds, but that acceptances are vouched for."""
    return [finding.line for finding in toy.audit().findings if "vouched for, not proven" not in finding.line]


@pytest.mark.slow
def test_a_comment_runs_nothing_and_every_record_knows(audited: Audited) -> None:
    before, runs = audited.lock, {stage: audited.run_of(stage) for stage in STAGES}
    comment(audited)
    assert {stage.name: stage.reason for stage in planned(audited)}["b"] == "dep helper.py changed"
    assert sorted(accept(audited)) == STAGES

    assert audited.dvc("status").strip() == CLEAN
    assert "up to date" in audited.dvc("repro")
    assert accept(audited) == []
    for stage, entry in audited.lock["stages"].items():
        assert entry["outs"] == before["stages"][stage]["outs"]
    assert {stage: made.run_id for stage, made in execution_record.load_current_records(audited.root).items()} == runs
    assert lines(audited) == []
    assert audited.audit().counts["accepted changes"] == 6
    assert {result.state for result in audited.pipeline().values()} == {"up-to-date"}
    assert lines(audited) == []

    link = chain.trace_lineage(audited.root, "b")
    assert link.run_id == runs["b"]
    assert link.accepted == (SAID,)
    tags = mlflow_run_lookup.get_finished_run(audited.root, runs["b"]).tags
    assert tags["posttrain.outs_accepted"].startswith("accepted by nobody: a comment (")


def test_a_person_may_vouch_for_an_entry_that_no_run_made(audited: Audited) -> None:
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
    assert MIXED in str(b.reason)
    accepting.accept_change(audited.root, "language", ["b"], "merged by hand")
    assert {stage.name: stage.reason for stage in planned(audited)}["b"] == "upstream a will run"


def test_a_fresh_restore_takes_the_accepted_entry_from_the_run_cache(audited: Audited) -> None:
    comment(audited)
    accept(audited)
    shutil.rmtree(audited.root / "data/b")
    (audited.root / "dvc.lock").unlink()
    assert audited.pipeline("b")["b"].state == "restored"
    assert audited.dvc("status", "b").strip() == CLEAN
    found = execution_record.load_current_records(audited.root)["b"]
    assert found.run_id == audited.run_of("b")
    assert found.accepted


def test_edits_one_after_the_other_and_back(audited: Audited) -> None:
    original = audited.read("helper.py")
    run = audited.run_of("b")
    comment(audited)
    accept(audited)
    audited.commit()
    comment(audited, '"""How to read."""\n')
    accept(audited)
    found = execution_record.load_current_records(audited.root)["b"]
    assert (found.run_id, len(found.accepted)) == (run, 2)
    assert found.entry == execution_record.load_run_record(audited.root, run).entry
    assert chain.trace_lineage(audited.root, "b").accepted == (
        SAID,
        SAID,
    )
    assert lines(audited) == []
    audited.write("helper.py", original)
    accept(audited)  # back to the first version, which ran
    assert execution_record.load_current_records(audited.root)["b"].accepted == ()
    assert lines(audited) == []


@pytest.mark.slow
def test_an_edit_of_code_that_was_never_committed(audited: Audited) -> None:
    """The run's patch has what it read."""
    replace(audited.root / "helper.py", "file.is_file()", "file.is_file() and file.name")
    assert audited.pipeline()["a"].state == "ran"
    comment(audited)
    assert len(accept(audited)) == 6
    comment(audited, "# more\n")
    assert len(accept(audited)) == 6, "the version before is kept with its acceptance"
    assert lines(audited) == []


def test_what_an_edit_changed_is_shown_from_the_accepted_version_on(audited: Audited) -> None:
    comment(audited)
    accept(audited)
    replace(audited.root / "helper.py", "sorted(path", "list(path")
    [cause] = find_staleness_causes(audited.root, "b")
    changed = [line for line in cause.lines if line[:1] in "+-"]
    assert len(changed) == 2, "the comment was accepted before"


def test_it_is_compared_and_made_again_with_the_code_that_ran(audited: Audited) -> None:
    before = execution_record.load_current_records(audited.root)
    comment(audited)
    accept(audited)
    audited.commit()
    assert comparing.compare_snapshots(before, execution_record.load_current_records(audited.root)) == []
    wanted = verifying.resolve_execution_record(audited.root, "b")
    assert wanted.entry == before["b"].entry
    said: list[str] = []
    found = verifying.verify_execution(audited.root, wanted, said.append, lambda *_: None)
    assert found.verdict == "equal"
    assert f"note: {SAID}; made again with the code that ran" in said


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
            accept(audited)
    assert audited.read("dvc.lock") == before
    assert len(accept(audited)) == 6
    assert lines(audited) == []
    found = execution_record.load_current_records(audited.root)
    assert len({made.accepted[0].run_id for made in found.values()}) == 1, "the acceptance of before counts"
    assert audited.sql("UPDATE tags SET value = value WHERE key = ?", acceptance_runs.HOW) == 1, (
        "and no second one was written"
    )


def test_a_kill_after_the_run_cache_and_one_while_mlflow_is_written(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    comment(audited)

    def killed(self: object, stages: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dvc_entries.Locked, "write_dvc_lock_file", killed)
        with pytest.raises(KeyboardInterrupt):
            accept(audited)
    assert len(accept(audited)) == 6
    assert lines(audited) == []
    comment(audited, "# more\n")
    with monkeypatch.context() as patch:
        patch.setattr("flows.engine.mlflow_client.seal_run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            accept(audited)
    assert len(accept(audited)) == 6
    assert lines(audited) == []


def test_plain_dvc_commit_would_write_the_same(audited: Audited, tmp_path: Path) -> None:
    other = audited.at(tmp_path / "other")
    comment(audited)
    comment(other)
    accept(audited)
    other.dvc("commit", "--force")
    assert audited.lock == other.lock
    [mine, theirs] = [
        sorted(file.name for file in (toy.root / ".dvc/cache/runs").glob("??/*/*")) for toy in (audited, other)
    ]
    assert mine == theirs


def test_the_record_is_plain_json_with_both_versions_beside_it(audited: Audited) -> None:
    old = audited.read("helper.py")
    comment(audited)
    accept(audited)
    [step, *_] = execution_record.load_current_records(audited.root)["a"].accepted
    folder = audited.root / f"mlruns/artifacts/{step.run_id}/artifacts"
    versions = {file.read_text() for file in folder.glob("*.py")}
    assert versions == {old, audited.read("helper.py")}
    assert "+# reads them all" in (folder / "accepted.diff").read_text()
    content = json.loads((folder / "record.json").read_text())["accepted"]
    assert content["how"] == "person"
    assert content["stages"]["a"]["files"] == {"helper.py": ""}

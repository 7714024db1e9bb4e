"""A change that a person vouches for: what can be accepted so, and how it is told."""

import shutil
from pathlib import Path

import pytest

from flows.engine.dvc_repository import PlanError
from flows.lineage import chain, execution_record
from flows.lineage.acceptance import accepting
from tests.flows.lineage.audited import CODE, Audited, replace
from tests.flows.lineage.edited import accept, comment

CLEAN = "Data and pipelines are up to date."
WHY = "sums in another order, by hand the same"


def vouch(toy: Audited, *names: str) -> None:
    accepting.accept_change(toy.root, "language", names, WHY)


def faster(toy: Audited) -> None:
    replace(toy.root / "helper.py", "sorted(path.rglob(", "sorted(reversed([*path.rglob(")
    replace(toy.root / "helper.py", '("*"))', '("*")]))')


def test_it_stays_as_it_is_and_every_record_says_who_said_so(audited: Audited) -> None:
    before = audited.lock["stages"]["b"]
    faster(audited)
    vouch(audited, "b")
    assert audited.reasons("b") == {"a": "dep helper.py changed", "b": "upstream a will run"}
    assert audited.lock["stages"]["b"]["outs"] == before["outs"]
    made = execution_record.load_current_records(audited.root)["b"]
    assert made.run_id == audited.run_of("b")
    [step] = made.accepted
    assert (step.how, step.why) == ("person", WHY)
    assert chain.trace_lineage(audited.root, "b").accepted == (f"accepted by {step.by}, helper.py: {WHY}",)
    found = audited.audit("b")
    assert not [fault for fault in found.faults if fault.stage == "b"]
    [remark] = [one.line for one in found.remarks if one.check == "accepted"]
    assert remark.startswith(f"b: {step.by} accepted a change of helper.py on ")
    assert f": {WHY}. It is vouched for, not proven (run {step.run_id[:8]})" in remark


def test_a_new_module_a_parameter_and_the_command(audited: Audited) -> None:
    audited.write("more.py", "ORDER = 1\n")
    audited.stages["a"]["deps"] = [*CODE, "more.py", "data/raw/x.txt", "data/raw/y.txt"]
    audited.stages["a"]["cmd"] = audited.stages["a"]["cmd"].replace("python work.py", "python -B work.py")
    audited.change("a", more=2)
    vouch(audited, "a")
    assert set(audited.reasons().values()) == {None}
    assert audited.dvc("status").strip() == CLEAN
    found = audited.audit()
    assert found.faults == []
    [remark] = [one.line for one in found.remarks]
    assert "accepted a change of its command, a.more, more.py on " in remark
    assert {result.state for result in audited.pipeline().values()} == {"up-to-date"}


def test_one_after_the_other(audited: Audited) -> None:
    faster(audited)
    vouch(audited, "a", "b", "c", "evaluate@b", "evaluate@c", "report")
    comment(audited)
    assert len(accept(audited)) == 6
    assert [step.how for step in execution_record.load_current_records(audited.root)["b"].accepted] == [
        "person",
        "person",
    ]
    found = audited.audit()
    assert found.faults == []
    assert len(found.remarks) == 12


@pytest.mark.parametrize("what", ["up to date", "never run", "changed", "missing", "data", "code"])
def test_what_cannot_be_accepted(audited: Audited, what: str) -> None:
    expected = {
        "up to date": "b is up to date, so there is nothing to accept",
        "never run": "n has never run, so there is nothing to accept",
        "changed": "b: its out data/b is modified; only outs as they were recorded can be kept",
        "missing": "b: its out data/b is deleted; only outs as they were recorded can be kept",
        "data": "b: dep data/a changed; only code, parameters and the command can be accepted",
        "code": "",
    }[what]
    if what == "never run":
        audited.stages["n"] = {"cmd": "python work.py n", "deps": ["work.py"], "outs": ["data/n"]}
        audited.save()
    if what in ("changed", "missing", "code"):
        faster(audited)
    if what == "changed":
        audited.write("data/b/model.bin", "x")
    if what == "missing":
        shutil.rmtree(audited.root / "data/b")
    if what == "data":
        audited.write("data/a/table.csv", "x")
    before = audited.read("dvc.lock")
    if not expected:
        vouch(audited, "b")
        return
    with pytest.raises(PlanError) as raised:
        vouch(audited, "n" if what == "never run" else "b")
    assert str(raised.value) == expected
    assert audited.read("dvc.lock") == before
    assert not list(Path(audited.root, "mlruns").rglob("accepted.diff"))

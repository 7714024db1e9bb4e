"""`dvc freeze`: a frozen stage stays as it is, and what only it needs is left alone, as under plain `dvc repro`."""

import shutil

import pytest

from flows.engine.plan import PlanError
from tests.flows.engine.toy import Toy

pytestmark = pytest.mark.usefixtures("plain_commands")


@pytest.fixture
def frozen(toy: Toy) -> Toy:
    """a -> b -> c, with b frozen after a run."""
    toy.stage("a")
    toy.stage("b", "a")
    toy.stage("c", "b")
    toy.run()
    toy.stages["b"]["frozen"] = True
    toy.save()
    return toy


def test_what_is_above_a_frozen_stage_does_not_run_for_it(frozen: Toy) -> None:
    frozen.set(a=2, c=2)
    assert frozen.reasons("c") == {"b": None, "c": "param c changed 1 -> 2"}
    assert frozen.states("c") == {"b": "up-to-date", "c": "ran"}
    assert frozen.read("data/c").splitlines() == ["a 1", "b 1", "c 2"]
    assert frozen.reasons() == {"a": "param a changed 1 -> 2", "b": None, "c": None}, "it may be asked for by itself"
    assert "Stage 'c' didn't change" in frozen.dvc("repro", "c"), "plain DVC agrees"


@pytest.mark.parametrize("change", ["param", "command", "code", "data"])
def test_a_frozen_stage_stays_whatever_changes_and_the_plan_says_so(frozen: Toy, change: str) -> None:
    if change == "param":
        frozen.set(b=2)
    elif change == "command":
        frozen.stages["b"]["cmd"] += " && true"
        frozen.save()
    elif change == "code":
        frozen.write("work.py", frozen.read("work.py") + "#\n")
    else:
        frozen.set(a=2)
        frozen.run("a")
    b = next(stage for stage in frozen.plan() if stage.name == "b")
    assert b.reason is None
    assert b.frozen
    lock = frozen.lock["stages"]["b"]
    assert frozen.states("c")["b"] == "up-to-date"
    assert frozen.lock["stages"]["b"] == lock


def test_lost_outs_of_a_frozen_stage_come_back_as_they_were(frozen: Toy) -> None:
    frozen.set(a=2)
    frozen.run("a")
    lock, made = frozen.lock, frozen.read("data/b")
    (frozen.root / "data/b").unlink()
    assert frozen.states("c") == {"b": "restored", "c": "up-to-date"}
    assert (frozen.lock, frozen.read("data/b")) == (lock, made)
    shutil.rmtree(frozen.root / ".dvc/cache")
    (frozen.root / "data/b").unlink()
    failed = frozen.run("b")["b"]
    assert failed.state == "failed"
    assert "dvc unfreeze b" in failed.reason


def test_a_frozen_stage_cannot_be_forced_and_one_that_never_ran_is_named(frozen: Toy) -> None:
    with pytest.raises(PlanError, match="stage 'b' is frozen"):
        frozen.plan(force=["b"])
    (frozen.root / "dvc.lock").unlink()
    with pytest.raises(PlanError, match="stage 'b' is frozen"):
        frozen.plan("c")

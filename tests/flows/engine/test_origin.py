"""Entries of dvc.lock that no run made, and those whose run is not in the run cache here."""

import shutil
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.engine.dvc_changes import MIXED
from tests.flows.engine.toy import Toy

pytestmark = pytest.mark.usefixtures("plain_commands")
A, B = {"x": 1, "y": 1}, {"x": 2, "y": 1}


@pytest.fixture
def twice(toy: Toy) -> Toy:
    """Two stages that ran with two values each; the second values are in dvc.lock."""
    toy.stage("a")
    toy.stage("b", "a")
    toy.set(b=A)
    toy.run()
    toy.set(a=2, b=B)
    toy.run()
    return toy


def write_lock(toy: Toy, entries: dict[str, Any]) -> None:
    with (toy.root / "dvc.lock").open("w") as file:
        YAML().dump({"schema": "2.0", "stages": entries}, file)


def of_first_run(toy: Toy) -> dict[str, Any]:
    """The entries of the first run; the workspace is then as it was, and dvc.lock too."""
    toy.set(a=1, b=A)
    assert set(toy.states().values()) == {"restored"}
    first = toy.lock["stages"]
    toy.set(a=2, b=B)
    assert set(toy.states().values()) == {"restored"}
    return first


@pytest.mark.parametrize("checked_out", [False, True])
def test_outs_of_another_run_beside_these_deps_are_stale_and_replaced(twice: Toy, checked_out: bool) -> None:
    """As `git merge -X theirs` writes dvc.lock by lines: b's params and deps of one branch, its outs of the other."""
    first, second, true = of_first_run(twice), twice.lock["stages"], twice.read("data/b")
    write_lock(twice, {**second, "b": {**second["b"], "outs": first["b"]["outs"]}})
    if checked_out:
        twice.dvc("checkout")
        assert twice.read("data/b") != true
    assert MIXED in str(twice.reasons()["b"])
    assert twice.states() == {"a": "up-to-date", "b": "restored"}
    assert twice.read("data/b") == true
    assert set(twice.reasons().values()) == {None}


def test_deps_and_params_of_two_runs_that_never_met_are_run(twice: Toy) -> None:
    first, second = of_first_run(twice), twice.lock["stages"]
    mixed = {**first["b"], "params": second["b"]["params"]}
    write_lock(twice, {"a": first["a"], "b": mixed})
    twice.set(a=1)
    twice.dvc("checkout")
    assert twice.reasons() == {"a": None, "b": MIXED}
    assert twice.states() == {"a": "up-to-date", "b": "ran"}
    assert twice.read("data/b").splitlines() == ["a 1", "b {'x': 2, 'y': 1}"]


def test_an_entry_that_never_met_its_second_out_is_stale(toy: Toy) -> None:
    """Each out is known, but from two runs."""
    two = "mkdir -p data && echo ${a} > data/one && echo ${a} > data/two"
    toy.stage("a", cmd=two, outs=["data/one", "data/two"])
    toy.run()
    [one, _] = toy.lock["stages"]["a"]["outs"]
    toy.set(a=2)
    toy.run()
    entry = toy.lock["stages"]["a"]
    write_lock(toy, {"a": {**entry, "outs": [one, entry["outs"][1]]}})
    toy.dvc("checkout")
    assert toy.reasons() == {"a": MIXED}
    assert toy.states() == {"a": "restored"}
    assert (toy.read("data/one"), toy.read("data/two")) == ("2\n", "2\n")


def test_the_same_bytes_from_other_code_are_not_stale(toy: Toy) -> None:
    """A colleague ran it again after an edit that changed nothing, and pushed dvc.lock without the run cache."""
    toy.stage("a")
    toy.run()
    toy.write("work.py", toy.read("work.py") + "# more\n")
    toy.run()
    entry = toy.lock["stages"]["a"]
    shutil.rmtree(toy.root / ".dvc/cache/runs")
    toy.write("work.py", toy.read("work.py").removesuffix("# more\n"))
    toy.run(force=["a"])
    toy.write("work.py", toy.read("work.py") + "# more\n")
    write_lock(toy, {"a": entry})
    [stage] = toy.plan()
    assert (stage.reason, stage.elsewhere) == (None, True)


def test_what_dvc_pulled_without_the_run_cache_is_named_and_not_stale(twice: Toy) -> None:
    remote = twice.root.parent / "remote"
    twice.dvc("remote", "add", "-d", "disk", str(remote))
    twice.dvc("push", "--run-cache")
    for folder in ("cache", "tmp"):
        shutil.rmtree(twice.root / ".dvc" / folder)
    shutil.rmtree(twice.root / "data")
    assert {stage.name: stage.missing for stage in twice.plan()} == {"a": True, "b": True}
    twice.dvc("pull")
    assert [(stage.reason, stage.elsewhere) for stage in twice.plan()] == [(None, True), (None, True)]
    assert set(twice.states().values()) == {"up-to-date"}
    twice.dvc("pull", "--run-cache")
    assert [(stage.reason, stage.elsewhere) for stage in twice.plan()] == [(None, False), (None, False)]


def test_what_dvc_committed_or_the_run_cache_cannot_keep_is_recorded(toy: Toy) -> None:
    toy.stage("a")
    toy.stage("plain", cmd="mkdir -p data && echo 1 > data/plain", outs=[{"data/plain": {"cache": False}}])
    toy.run()
    toy.write("work.py", toy.read("work.py") + "# more\n")
    toy.write("data/a", "by hand\n")
    toy.dvc("commit", "-f")
    assert [(stage.reason, stage.elsewhere) for stage in toy.plan()] == [(None, False), (None, False)]


def test_a_stage_that_the_run_cache_does_not_keep_is_looked_at_as_dvc_does(twice: Toy) -> None:
    """One without outs, as for an upload."""
    twice.stages["upload"] = {"cmd": "true", "deps": ["data/b"]}
    twice.save()
    assert twice.states() == {"a": "up-to-date", "b": "up-to-date", "upload": "ran"}
    assert set(twice.reasons().values()) == {None}

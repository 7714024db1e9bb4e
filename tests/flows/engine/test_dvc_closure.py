"""What a plan loads of dvc.yaml: only the branches of `foreach` that are needed, with the same graph as DVC's own."""

from contextlib import closing
from pathlib import Path
from typing import Any

import networkx
import pytest

from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_repository import open_repo
from flows.engine.plan import PlanError
from tests.flows.engine.toy import Toy

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("plain_commands")


def branches(toy: Toy) -> None:
    """raw -> data@<set> -> bc@<set> -> score@<policy> (for one policy) -> table, from dictionaries in params.yaml."""
    toy.params["data"] = {"seed": 0, "sets": {name: {"size": 1} for name in ("big", "odd", "small-1")}}
    toy.params["score"] = {"policies": {"first": {"of": "small-1"}}}
    toy.stage("raw")
    made = {"cmd": "python work.py data/${key}", "deps": ["work.py", "data/raw"], "outs": ["data/sets/${key}"]}
    own = {"params": ["data.seed", "data.sets.${key}"]}
    toy.stages["data"] = {"foreach": "${data.sets}", "do": {**made, **own}}
    cloned = {"cmd": "x ${item.size}", "deps": ["data/sets/${key}"], "outs": ["data/bc/${key}"]}
    toy.stages["bc"] = {"foreach": "${data.sets}", "do": cloned}
    scored = {"cmd": "y", "deps": ["data/bc/${item.of}/model"], "outs": [{"data/score/${key}": {"cache": False}}]}
    toy.stages["score"] = {"foreach": "${score.policies}", "do": scored}
    toy.stages["table"] = {"cmd": "z", "deps": ["data/score"], "outs": ["data/table"]}
    toy.save()


def test_branches_are_in_the_closure_only_where_they_are_needed(toy: Toy) -> None:
    branches(toy)
    planned = {stage.name: stage for stage in toy.plan("table")}
    assert list(planned) == ["raw", "data@small-1", "bc@small-1", "score@first", "table"]
    assert planned["bc@small-1"].upstream == ("data@small-1",)
    assert planned["bc@small-1"].cmd == "x 1"
    assert toy.reasons("bc").keys() == {"raw", *(f"{s}@{n}" for s in ("data", "bc") for n in ("big", "odd", "small-1"))}
    assert toy.reasons("data@odd").keys() == {"raw", "data@odd"}


def test_nothing_else_is_loaded(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    from dvc.stage.loader import StageLoader

    branches(toy)
    loaded = []
    load = StageLoader.__getitem__

    def watched(loader: StageLoader, name: str) -> Any:
        loaded.append(name)
        return load(loader, name)

    monkeypatch.setattr(StageLoader, "__getitem__", watched)
    toy.plan("table")
    assert sorted(loaded) == ["bc@small-1", "data@small-1", "raw", "score@first", "table"]


def test_a_key_that_is_added_re_runs_nothing_of_the_others(toy: Toy) -> None:
    branches(toy)
    for name in ("bc", "score", "table"):
        del toy.stages[name]
    toy.stages["data"]["do"]["cmd"] = "python work.py data/sets/${key} data/raw"
    toy.save()
    assert set(toy.states("data").values()) == {"ran"}
    toy.params["data"]["sets"] = {"new": {"size": 1}, **toy.params["data"]["sets"]}
    toy.params["data"]["sets"]["odd"]["size"] = 2
    toy.save()
    assert toy.reasons("data") == {
        "raw": None,
        "data@new": "never run",
        "data@big": None,
        "data@odd": "param data.sets.odd.size changed 1 -> 2",
        "data@small-1": None,
    }


def test_the_closure_is_that_of_dvc_for_every_stage_of_this_repository() -> None:
    """Asked at once for those on which no other depends, whose closures have all the others, and for some alone."""
    with closing(open_repo(ROOT)) as repo:
        whole = repo.index.graph
        pipeline = StageGraph(repo)
        stages = [stage for stage in whole if stage.cmd]
        last = [stage for stage in stages if not whole.in_degree(stage)]
        between = [stage for stage in stages if whole.in_degree(stage)]
        by_name = {stage.name: stage for stage in stages}
        reached: set[str] = set()
        for wanted in [last, *([stage] for stage in [*last[::12], *between[::60]])]:
            needed = pipeline.load_upstream_closure([stage.name for stage in wanted]).stages
            reached |= needed.keys()
            below = {other.name for stage in wanted for other in (stage, *networkx.descendants(whole, stage))}
            assert needed.keys() == below
            for name, (loaded, upstream) in needed.items():
                other = by_name[name]
                assert (loaded.cmd, set(upstream)) == (other.cmd, {up.name for up in whole.successors(other)})
        assert reached == by_name.keys()


def test_data_in_a_dvc_file_counts_as_made(toy: Toy) -> None:
    toy.write("raw/set/rows.csv", "1\n")
    toy.dvc("add", "raw/set", "--quiet")
    toy.stage("a", cmd="true")
    toy.stages["a"]["deps"] = ["raw/set/rows.csv"]
    toy.save()
    (toy.root / "raw/set/rows.csv").unlink()
    assert toy.reasons() == {"a": "never run"}
    (toy.root / "raw/set.dvc").unlink()
    with pytest.raises(PlanError, match=r"stage 'a': dep raw/set/rows.csv does not exist and no stage makes it"):
        toy.plan()


def test_an_entry_that_dvc_would_refuse_is_refused(toy: Toy) -> None:
    """Only the needed part of dvc.lock is parsed, and a fault in it gives the same error as in the whole file."""
    toy.diamond()
    toy.run()
    whole = toy.read("dvc.lock")
    for wrong, told in [
        (whole.replace("md5:", "md5: [", 1), r"dvc.lock: broken YAML in line \d+"),
        (whole.replace("  a:\n    cmd:", "  a:\n    command:"), "dvc.lock: stages.a"),
        (whole[: len(whole) * 3 // 4] + "'", "dvc.lock: broken YAML"),
    ]:
        toy.write("dvc.lock", wrong)
        with pytest.raises(PlanError, match=told):
            toy.plan("a")
    toy.write("dvc.lock", whole)
    assert set(toy.reasons().values()) == {None}


@pytest.mark.parametrize("names", [{}, []])
def test_a_stage_without_branches_says_where_they_are_named(toy: Toy, names: Any) -> None:
    branches(toy)
    toy.params["bc"] = {"sets": names}
    toy.stages["bc"]["foreach"] = "${bc.sets}"
    toy.save()
    assert toy.reasons("data@odd").keys() == {"raw", "data@odd"}
    with pytest.raises(PlanError, match=r"dvc.yaml: stage 'bc' has no branches: bc.sets is empty"):
        toy.plan("bc")

"""A sweep on real git and DVC repositories: what is shared, with whom, and that the workspace stays as it is."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.engine.dvc_repository import PlanError
from flows.params.files import ParameterError
from flows.sweeps import axes
from flows.sweeps import sweep as sweeping
from flows.sweeps.nodes import make_node_file_name
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import copied
from tests.flows.quick_dvc import quick_dvc
from tests.flows.sweeps.swept import Swept, in_shell, swept
from tests.flows.unsupervised import without_supervisors

OWN = (".git", ".dvc", "mlruns")  # what is no part of the workspace


def tree(root: Path) -> Mapping[str, str]:
    """Every file of the workspace with its hash and its time."""
    return {
        str(file.relative_to(root)): f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_mtime_ns}"
        for file in sorted(root.rglob("*"))
        if file.is_file() and file.relative_to(root).parts[0] not in OWN
    }


def shaped(toy: Toy) -> Toy:
    toy.diamond()
    toy.set(a={"x": 1}, b={"x": 1}, c={"x": 1}, d={"x": 1})
    return in_shell(toy)


@pytest.fixture
def diamond(toy: Toy) -> Toy:
    return shaped(toy)


@pytest.fixture(scope="module")
def first_sweep(template: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, Swept]:
    """A diamond of stages after a sweep over b.x=1,2, and what the sweep did."""
    shutil.copytree(template, root := tmp_path_factory.mktemp("first_sweep") / "toy")
    toy = shaped(Toy(root))
    with pytest.MonkeyPatch.context() as patch:
        without_supervisors(patch)
        quick_dvc(patch)
        return toy, swept(toy, "b.x=1,2")


@pytest.fixture
def after_sweep(first_sweep: tuple[Toy, Swept], tmp_path: Path) -> Toy:
    return copied(first_sweep[0], tmp_path / "swept")


def test_what_points_share_runs_once(first_sweep: tuple[Toy, Swept]) -> None:
    toy, found = first_sweep
    assert found.states == dict.fromkeys(["a", "b@x=1", "c", "d@x=1", "b@x=2", "d@x=2"], "ran")
    for number in (1, 2):
        made = found.content(toy, number, "data/d")
        lines = [f'"{name}": {{"x": {value}}}\n' for name, value in zip("abacd", (1, number, 1, 1, 1), strict=True)]
        assert made == "".join(lines)


def test_the_workspace_stays_as_it_is(diamond: Toy) -> None:
    diamond.run()
    before = tree(diamond.root)
    swept(diamond, "a.x=1,2")
    assert tree(diamond.root) == before
    assert set(diamond.reasons().values()) == {None}


def test_points_share_with_the_workspace_both_ways(diamond: Toy) -> None:
    diamond.set(b={"x": 2})
    diamond.run()
    diamond.set(b={"x": 1})
    found = swept(diamond, "b.x=2,3")
    assert {name for name, reason in found.reasons.items() if reason} == {"b@x=3", "d@x=3"}
    diamond.set(b={"x": 3})
    assert diamond.states() == {"a": "up-to-date", "c": "up-to-date", "b": "restored", "d": "restored"}
    assert diamond.read("data/d") == found.content(diamond, 2, "data/d")
    assert diamond.dvc("status").strip() == "Data and pipelines are up to date."


def test_plain_dvc_takes_what_a_sweep_made(after_sweep: Toy) -> None:
    after_sweep.set(b={"x": 2})
    said = after_sweep.dvc("repro")
    assert said.count("is cached - skipping run, checking out outputs") == 4
    assert "Running stage" not in said


def test_a_second_sweep_runs_only_what_is_new(after_sweep: Toy) -> None:
    found = swept(after_sweep, "b.x=2,5")
    assert {name for name, reason in found.reasons.items() if reason} == {"b@x=5", "d@x=5"}


def test_a_point_that_fails_holds_up_no_other_and_the_rest_is_kept(diamond: Toy) -> None:
    fails = """if [ $name = b ] && grep -q '"b": {"x": 3}' params.yaml; then echo three is too many; exit 1; fi\n"""
    diamond.write("work.sh", diamond.read("work.sh").replace("mkdir", f"{fails}mkdir", 1))
    found = swept(diamond, "b.x=1,3")
    assert {name: state for name, state in found.states.items() if state != "ran"} == {
        "b@x=3": "failed",
        "d@x=3": "skipped",
    }
    assert found.results["b@x=3"].reason == "three is too many (exit status 1)"
    assert [one.done for one in found.points] == [True, False]
    again = swept(diamond, "b.x=1,3")
    assert {name for name, reason in again.reasons.items() if reason} == {"b@x=3", "d@x=3"}


def test_an_edit_during_a_sweep_does_not_reach_it(diamond: Toy) -> None:
    points = axes.build_grid_points([axes.parse_axis("b.x=1,2")], None)
    with sweeping.prepare_sweep(diamond.root, points, ["b"]) as sweep, sweep.owner as owner:
        diamond.write("work.sh", "echo edited; exit 1\n")
        states = [owner.execute(stage.name, lambda event: None).state for stage in sweep.planned]
    assert states == ["ran"] * 3


def test_raw_data_that_git_ignores_is_read_as_it_is_now(diamond: Toy) -> None:
    diamond.write(".gitignore", "/data/\n/mlruns/\n/raw/\n")
    diamond.write("raw/one", "raw one\n")
    diamond.stage("a", cmd="cat raw/one > data/a", deps=["raw"])
    assert swept(diamond, "b.x=1,2", targets=["b"]).content(diamond, 1, "data/a") == "raw one\n"
    diamond.write("raw/one", "raw two\n")
    found = swept(diamond, "b.x=1,2", targets=["b"])
    assert set(found.states.values()) == {"ran"}
    assert found.content(diamond, 2, "data/a") == "raw two\n"


def test_a_sweep_reads_the_files_that_are_hashed(diamond: Toy) -> None:
    """Code that is a link, which the copy of the working files leaves out, and a folder without what .dvcignore leaves
    out.
    """
    diamond.write(".dvcignore", "*.log\n")
    diamond.write("raw/one", "raw one\n")
    diamond.write("raw/two.log", "left out\n")
    (diamond.root / "raw/three").symlink_to(diamond.write("elsewhere", "linked\n"))
    diamond.write("real.py", "print('code')\n")
    (diamond.root / "link.py").symlink_to("real.py")
    diamond.stage("a", cmd="cat raw/* > data/a; python link.py >> data/a", deps=["raw", "link.py"])
    assert swept(diamond, "b.x=1,2", targets=["b"]).content(diamond, 1, "data/a") == "raw one\nlinked\ncode\n"


def test_a_sweep_copies_no_folder_without_end(diamond: Toy) -> None:
    diamond.write("raw/one", "raw one\n")
    (diamond.root / "raw/up").symlink_to("..")
    diamond.stage("a", cmd="cat raw/one > data/a", deps=["raw"])
    with pytest.raises(PlanError, match=r"^raw/up: a link to \.\., a folder"):
        swept(diamond, "b.x=1,2", targets=["b"])


def test_large_raw_data_is_linked_to_and_a_change_meanwhile_is_found(
    diamond: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.sweeps.dvc_graph.SMALL", 3)
    raw = diamond.write("data/raw/large", "large\n")
    diamond.stage("a", cmd=f"cat data/raw/large > data/a; echo more >> {raw}", deps=["data/raw/large"])
    diamond.stage("e", cmd="cp data/raw/large data/e", deps=["data/raw/large"])
    diamond.set(e={"x": 1})
    found = swept(diamond, "e.x=1,2", targets=["a"], jobs=1)
    assert found.results["a"].reason == "data/raw/large changed while the stage ran; run the sweep again"
    assert swept(diamond, "e.x=1", targets=["e"]).content(diamond, 1, "data/e") == "large\nmore\n"


def test_deps_that_are_named_twice_or_lie_above_or_within_outs_hash_as_dvc_does(toy: Toy) -> None:
    make = "mkdir -p data/all; for n in b/x a-b a; do mkdir -p data/all/$(dirname $n); echo $n > data/all/$n; done"
    toy.stage("all", cmd=make, deps=["work.py"], outs=["data/all"])
    toy.stage("part", cmd="cp data/all/b/x data/part", deps=["data/all/b", "data/all/a", "work.py"])
    toy.stage("own", cmd="mkdir -p data/of; cp data/part data/of/own", deps=["data/part"], outs=["data/of/own"])
    toy.stage("two", cmd="mkdir -p data/of; cp data/part data/of/two", deps=["data/part"], outs=["data/of/two"])
    toy.stage("sum", cmd="cat data/of/* data/part > data/sum", deps=["data/of", "data/part", "data/part"])
    toy.set(sum={"x": 1})
    found = swept(toy, "sum.x=1,2")
    assert set(found.states.values()) == {"ran"}
    assert set(toy.states().values()) == {"restored"}, "the run cache has what DVC looks for"


def test_checkpoints_of_points_are_apart_and_outlive_a_failure(diamond: Toy) -> None:
    body = r"""
        x=$(sed 's/.*"b": {"x": \([0-9]*\)}.*/\1/' params.yaml)
        mark=mlruns/checkpoints/b
        [ -e $mark ] || { printf %s "$x" > $mark; echo killed; exit 1; }
        mkdir -p data
        printf 'went on from %s' "$(cat $mark)" > data/b
        rm $mark
        """
    diamond.write("train.sh", body)
    diamond.stage("b", "a", cmd="sh train.sh", deps=["train.sh", "data/a"])
    diamond.set(b={"x": 1})
    assert {state for name, state in swept(diamond, "b.x=1,2", targets=["b"]).states.items() if name != "a"} == {
        "failed"
    }
    found = swept(diamond, "b.x=1,2", targets=["b"])
    assert [found.content(diamond, number, "data/b") for number in (1, 2)] == ["went on from 1", "went on from 2"]
    assert not [*(diamond.root / "mlruns/checkpoints").iterdir()]


def test_seeds_move_the_sections_that_follow_and_no_other(toy: Toy) -> None:
    for name, upstream in (("a", ""), ("b", "a"), ("c", "b")):
        toy.stage(name, *upstream, cmd=f"mkdir -p data; cp params.yaml data/{name}")
    toy.write("params.yaml", "seed: &seed 0  # of all\na: {seed: 0}\nb:\n  seed: *seed\n  x: 1\nc: {seed: *seed}\n")
    found = swept(toy, "b.x=1,2", seeds="0,7")
    assert list(found.states) == [
        *("a", "b@x=1,seed=0", "c@x=1,seed=0", "b@x=1,seed=7", "c@x=1,seed=7"),
        *("b@x=2,seed=0", "c@x=2,seed=0", "b@x=2,seed=7", "c@x=2,seed=7"),
    ]
    read_by = {name: YAML(typ="safe").load(found.content(toy, 4, f"data/{name}"))[name] for name in "abc"}
    assert read_by == {"a": {"seed": 0}, "b": {"seed": 7, "x": 2}, "c": {"seed": 7}}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            {"outs": [{"data/b": {"cache": False}}]},
            "out data/b is not kept in DVC's cache, so that points cannot share it",
        ),
        (
            {"outs": [{"data/b": {"persist": True}}]},
            "out data/b is not kept in DVC's cache, so that points cannot share it",
        ),
        ({"always_changed": True}, "DVC keeps no outs of it that points could share"),
        ({"frozen": True}, "it is frozen, so that points cannot differ in it; `dvc unfreeze b` ends that"),
    ],
)
def test_a_stage_that_cannot_be_shared_is_named(diamond: Toy, more: dict[str, object], line: str) -> None:
    diamond.stage("b", "a", **more)
    with pytest.raises(PlanError) as caught:
        swept(diamond, "a.x=1,2")
    assert str(caught.value) == f"dvc.yaml: stage 'b': {line}"


def test_a_params_yaml_without_a_shared_seed_is_told_what_is_expected(diamond: Toy) -> None:
    with pytest.raises(ParameterError, match=r"^params.yaml: seed: missing; expected `seed: &seed 0` on a line"):
        swept(diamond, seeds="0,1")


def test_the_cache_that_lacks_a_file_is_not_taken_for_whole(after_sweep: Toy) -> None:
    for file in (after_sweep.root / ".dvc/cache/files").rglob("*"):
        if file.is_file() and '"b": {"x": 2}' in file.read_text() and '"d": ' not in file.read_text():
            file.chmod(0o644)
            file.unlink()
    found = swept(after_sweep, "b.x=1,2")
    assert {name for name, reason in found.reasons.items() if reason} == {"b@x=2", "d@x=2"}
    assert found.states["d@x=2"] == "restored", "its dep came out as before"


def test_values_that_are_no_file_names_have_logs_of_their_own(diamond: Toy) -> None:
    diamond.stage("a", cmd="mkdir -p data; echo a > data/a")
    diamond.stage("b", "a", cmd="cp params.yaml data/b")
    diamond.set(b={"x": 1})
    found = swept(diamond, "b.x=a/b,a_b,[1, ../../c]", targets=["b"])
    assert list(found.states.values()) == ["ran"] * 4
    logs = sorted(file.name for file in (diamond.root / "mlruns/logs").iterdir() if file.suffix == ".log")
    assert len([name for name in logs if name.startswith("b@x=")]) == 3
    assert make_node_file_name("b@x=" + "9" * 300) != make_node_file_name("b@x=" + "9" * 301)
    assert len(make_node_file_name("b@x=" + "9" * 300)) < 140


def test_dvc_settings_of_this_machine_are_no_obstacle(diamond: Toy) -> None:
    cache = diamond.root.parent / "elsewhere"
    diamond.write(".dvc/config.local", f"[core]\n    hardlink_lock = true\n[cache]\n    dir = {cache}\n")
    assert set(swept(diamond, "b.x=1,2", targets=["b"]).states.values()) == {"ran"}
    assert (cache / "files").is_dir()
    assert diamond.states("b") == {"a": "restored", "b": "restored"}

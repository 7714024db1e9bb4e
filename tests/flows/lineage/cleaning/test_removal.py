"""`posttrain clean` against DVC's own `dvc gc`, over whatever commits, branches, tags, runs and models name."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flows.engine.dvc_repository import PlanError
from flows.lineage.cleaning import dvc_cache, git_history, removal_log
from flows.lineage.cleaning.removal import Chosen, CleaningRequest, remove_selected, select_removable
from flows.lineage.cleaning.survey import survey_disk_usage
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.cleaning.world import STAGES, World

NUMBER = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(st.just("make"), st.sampled_from(STAGES), NUMBER),
    st.tuples(st.sampled_from(["commit", "tag", "branch", "back", "forget", "stash", "stage", "merge", "loose tag"])),
    st.tuples(st.just("run"), NUMBER, NUMBER),
    st.tuples(st.just("model"), st.sampled_from(STAGES), NUMBER, st.booleans()),
    st.tuples(st.just("cached"), st.sampled_from(STAGES), NUMBER),
)


@pytest.fixture
def make_world(template: Path, tmp_path: Path, empty_mlflow: Path) -> Callable[[], World]:
    count = iter(range(1000))
    return lambda: World(tmp_path / str(next(count)), template, empty_mlflow)


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    return make_world()


def cleaned(world: World, asked: CleaningRequest) -> Chosen:
    return remove_selected(
        world.root, asked, select_removable(survey_disk_usage(world.root, asked.keep_runs, asked.old_models), asked)
    )


def apply(world: World, number: int, step: tuple[str, *tuple[object, ...]]) -> None:
    match step:
        case ("make", stage, version):
            world.make(str(stage), int(str(version)))
        case ("commit",):
            world.commit()
        case ("tag",):
            world.commit()
            world.git("tag", f"tag-{number}")
        case ("branch",):
            world.commit()
            world.git("checkout", "--quiet", "-b", f"branch-{number}")
        case ("loose tag",):  # of a commit that no branch has
            world.commit()
            world.make("file", 50 + number)
            world.commit()
            world.git("tag", f"loose-{number}")
            world.git("reset", "--quiet", "--hard", "HEAD~1")
        case ("merge",):  # with results of its own, not those of the branch
            world.commit()
            world.git("checkout", "--quiet", "-b", f"side-{number}")
            world.make("file", 10 + number)
            world.commit()
            world.git("checkout", "--quiet", "-")
            world.git("merge", "--quiet", "--no-commit", "--no-ff", "--strategy", "ours", f"side-{number}")
            world.make("file", 60 + number)
            world.commit()
            world.make("file", 70 + number)
            world.git("branch", "--quiet", "-D", f"side-{number}")
        case ("back",):
            world.commit()
            world.git("checkout", "--quiet", "--detach", "HEAD~0")
        case ("forget",):  # a commit that nothing names any more
            world.commit()
            world.make("file", 20 + number)
            world.commit()
            world.git("reset", "--quiet", "--hard", "HEAD~1")
        case ("stash",):
            world.commit()
            world.make("file", 30 + number)
            world.git("stash", "--quiet")
        case ("stage",):
            world.commit()
            world.make("file", 40 + number)
            world.git("add", "dvc.lock")
            world.git("restore", "--worktree", "--source", "HEAD", ".")
        case ("run", one, two):
            world.pipeline({"file": world.made("file", int(str(one))), "folder": world.made("folder", int(str(two)))})
        case ("model", stage, version, aliased):
            world.model(world.made(str(stage), int(str(version))), bool(aliased))
        case ("cached", stage, version):
            world.made(str(stage), int(str(version)))


@example([("make", "file", 1), ("commit",), ("make", "file", 2)], 0, False)
@example([("make", "file", 1), ("merge",)], 0, False)
@example([("make", "file", 1), ("loose tag",), ("stash",)], 0, False)
@example([("make", "folder", 1), ("run", 2, 3), ("model", "file", 4, False), ("model", "file", 5, True)], 1, True)
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, min_size=4, max_size=8), st.integers(0, 3), st.booleans())
def test_what_dvc_the_last_runs_and_models_need_stays_and_all_else_goes(
    make_world: Callable[[], World], steps: list[tuple[str, *tuple[object, ...]]], keep_runs: int, old_models: bool
) -> None:
    world = make_world()
    world.write()
    for number, step in enumerate(steps):
        apply(world, number, step)
    before = world.left()
    runs = {md5 for outs in world.runs[:keep_runs] for md5 in outs}
    models = {md5 for md5, aliased in world.models.items() if aliased or not old_models}
    needed = world.with_files(world.used() | runs | models, before)
    beside = {f"file {number}" for number, step in enumerate(steps) if step[0] in ("stash", "stage")}
    asked = CleaningRequest(keep_runs=keep_runs, old_models=old_models)
    cleaned(world, asked)
    left = world.left()
    assert needed <= left
    extra = left - needed
    assert len(extra) <= len(beside), "only git's stash and index keep more than DVC knows of"
    assert not select_removable(survey_disk_usage(world.root, keep_runs, old_models), asked), (
        "a second call finds nothing"
    )
    gone = before - left
    assert gone <= set(removal_log.load_removal_times(world.root))


def test_as_dvc_gc_of_all_commits(four_times: Audited, tmp_path: Path) -> None:
    """On the same repository, after runs whose results no commit has."""
    audited, twin = four_times, four_times.at(tmp_path / "twin")
    twin.dvc("gc", "--all-commits", "--force")
    asked = CleaningRequest(keep_runs=0)
    chosen = select_removable(survey_disk_usage(audited.root, 0), asked)
    assert chosen
    assert len(remove_selected(audited.root, asked, chosen)) == len(chosen)
    ours, theirs = (
        {file.relative_to(root / ".dvc/cache") for file in (root / ".dvc/cache/files").rglob("*") if file.is_file()}
        for root in (audited.root, twin.root)
    )
    assert ours == theirs
    assert audited.faults(everything=True) == []


def test_experiments_of_dvc_keep_their_results(world: World) -> None:
    world.make("file", 1)
    world.commit()
    world.make("file", 2)
    world.commit()
    world.git("update-ref", "refs/exps/aa/bb/name", "HEAD")
    world.git("reset", "--quiet", "--hard", "HEAD~1")
    world.make("file", 1)
    found = survey_disk_usage(world.root, 0)
    kinds = {next(iter(sorted(found.keepers[md5]))) for md5 in found.objects}
    assert "experiment" in kinds
    assert not select_removable(found, CleaningRequest())
    world.git("update-ref", "-d", "refs/exps/aa/bb/name")
    assert len(cleaned(world, CleaningRequest())) == 1


def test_a_folder_that_stays_for_its_age_keeps_its_files(world: World) -> None:
    world.write()
    world.made("folder", 1)
    for file in world.cache.glob("*/*"):
        if not file.name.endswith(".dir"):
            os.utime(file, (0, time.time() - 90 * 86400))
    asked = CleaningRequest(older=30 * 86400.0)
    assert not select_removable(survey_disk_usage(world.root, 0), asked)
    for file in world.cache.glob("*/*"):
        os.utime(file, (0, time.time() - 90 * 86400))
    assert len(cleaned(world, asked)) == 3


def test_only_what_a_stage_made_goes(world: World) -> None:
    world.write()
    world.pipeline({"file": world.made("file", 1), "folder": world.made("folder", 1)})
    world.made("file", 2)  # no record says whose it is
    assert len(cleaned(world, CleaningRequest(keep_runs=0, stages=frozenset(["file"])))) == 1
    assert len(cleaned(world, CleaningRequest(keep_runs=0))) == 4


def test_what_went_has_its_date_in_its_run_and_is_shown_before_it_goes(world: World) -> None:
    world.write()
    parent = world.pipeline({"file": world.made("file", 1)})
    asked = CleaningRequest(keep_runs=0)
    shown = select_removable(survey_disk_usage(world.root, 0), asked)
    world.made("file", 2)  # came after the person had looked
    assert [one.md5 for one in remove_selected(world.root, asked, shown).objects] == [one.md5 for one in shown.objects]
    assert len(world.left()) == 1
    run_id = world.client.get_run(parent).data.tags["posttrain.run.file"]
    [when] = removal_log.load_removal_times(world.root).values()
    assert world.client.get_run(run_id).data.tags["posttrain.cleaned"] == f"{when:%Y-%m-%d %H:%M:%S}"


def test_what_is_kept_by_the_time_of_removal_stays(world: World) -> None:
    world.write()
    world.made("file", 1)
    asked = CleaningRequest(keep_runs=0)
    shown = select_removable(survey_disk_usage(world.root, 0), asked)
    world.make("file", 1)
    assert not remove_selected(world.root, asked, shown)
    assert len(world.left()) == 1


def test_links_of_the_workspace_and_other_names_of_a_file(world: World) -> None:
    world.write()
    md5, other = world.made("file", 1), world.made("file", 2)
    (world.root / "data").mkdir()
    (world.root / "data/linked").symlink_to(world.cache / md5[:2] / md5[2:])
    (world.root / "copy").hardlink_to(world.cache / other[:2] / other[2:])
    chosen = select_removable(survey_disk_usage(world.root, 0), CleaningRequest())
    assert [one.md5 for one in chosen.objects] == [other]
    assert chosen.frees == 0


def test_nothing_goes_where_git_or_mlflow_cannot_say_what_they_name(world: World, monkeypatch) -> None:
    world.write()
    world.made("file", 1)
    (world.root / ".git/HEAD").write_text("damaged")
    with pytest.raises(PlanError, match="git"):
        survey_disk_usage(world.root, 0)
    shutil.rmtree(world.root / ".git")
    with pytest.raises(PlanError, match="git"):
        survey_disk_usage(world.root, 0)
    monkeypatch.setattr(git_history, "collect_hashes_in_git_history", lambda root: git_history.NamedHashes())
    (world.root / "mlruns/mlflow.db").write_bytes(b"damaged" * 1000)
    with pytest.raises(PlanError, match="git"):
        survey_disk_usage(world.root, 0)
    monkeypatch.setattr(
        dvc_cache, "locate_dvc_cache", lambda root: dvc_cache.Cache(world.cache, world.cache, False, True, ())
    )
    with pytest.raises(PlanError, match=r"mlruns/mlflow\.db"):
        survey_disk_usage(world.root, 0)
    assert len(world.left()) == 1


def test_half_written_objects_and_damaged_lists_are_left_to_dvc(world: World) -> None:
    world.write()
    folder = world.make("folder", 1)
    file = world.cache / folder[:2] / folder[2:]
    file.chmod(0o644)
    file.write_text(file.read_text()[:-3])  # torn, but the names of its files are there
    (world.cache / "ab").mkdir(exist_ok=True)
    (world.cache / "ab/half.tmp").write_text("x")
    assert not select_removable(survey_disk_usage(world.root, 0), CleaningRequest())


def test_a_sweep_counts_as_one_run_with_all_its_points(world: World) -> None:
    world.write()
    world.pipeline({"file": world.made("file", 1)})
    sweep = world.pipeline({})
    for number in (2, 3):
        world.client.set_tag(world.pipeline({"file": world.made("file", number)}), "posttrain.sweep", sweep)
    world.client.set_tag(sweep, "posttrain.sweep", sweep)
    assert not select_removable(survey_disk_usage(world.root, 2), CleaningRequest(keep_runs=2))
    assert len(cleaned(world, CleaningRequest(keep_runs=1))) == 1
    assert world.left() == {world.made("file", number) for number in (2, 3)}

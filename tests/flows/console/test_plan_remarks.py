"""What is said of stages beside why they run."""

from flows.console.plan_remarks import format_library_changes, format_plan_remarks
from flows.engine.stage_types import PlannedStage


def stage(name: str, **facts: object) -> PlannedStage:
    return PlannedStage(name, None, (), 1, 0, **facts)  # type: ignore[arg-type]


def test_nothing_is_said_of_usual_stages() -> None:
    assert list(format_plan_remarks([stage("a"), stage("b")], "store")) == []


def test_a_frozen_stage_is_named_with_what_it_passes_over() -> None:
    quiet, changed = format_plan_remarks([stage("a", frozen=""), stage("b", frozen="param b.x changed 1 -> 2")], "")
    assert "although" not in quiet
    assert changed.startswith("b is frozen and does not run, although param b.x changed 1 -> 2; `dvc unfreeze b`")


def test_stages_of_one_kind_share_a_line() -> None:
    many = [stage(name, elsewhere=True) for name in "abcdefg"]
    [line] = format_plan_remarks(many, "")
    assert line.startswith("a, b, c, d and 3 more: made elsewhere")


def test_a_pull_is_named_only_where_there_is_a_remote() -> None:
    missing = [stage("a", missing=True), stage("b", missing=True)]
    assert list(format_plan_remarks(missing, "")) == []
    [line] = format_plan_remarks(missing, "store")
    assert line.startswith("a and b: ")
    assert line.endswith("from store")


def test_other_versions_of_libraries_are_one_line_for_all_stages() -> None:
    assert list(format_library_changes({})) == []
    changes = {"torch 2.13.0, installed 2.14.0": ["a", "b"], "numpy 1.0, installed 2.0": ["b"]}
    assert list(format_library_changes(changes)) == [
        "up to date, but made with torch 2.13.0, installed 2.14.0 (a and b); numpy 1.0, installed 2.0 (b)"
    ]

"""How long a run will still take, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.console.time_left import Remaining, estimate_run_seconds_left, estimate_stage_seconds_left, format_time_left


def stage(name: str, seconds: float, *upstream: str, cpu: int = 1) -> Remaining:
    return Remaining(name, seconds, cpu, upstream)


def test_stages_in_a_row_and_side_by_side() -> None:
    row = [stage("a", 10), stage("b", 20, "a"), stage("c", 5, "b")]
    assert estimate_run_seconds_left(row, cores=4) == 35
    side = [stage("a", 10), stage("b", 20, "a"), stage("c", 30, "a"), stage("d", 1, "b", "c")]
    assert estimate_run_seconds_left(side, cores=2) == 41
    assert estimate_run_seconds_left(side, cores=1) == 61
    assert estimate_run_seconds_left([stage("c", 30, "ended")], cores=1) == 30  # what has ended is not in the list
    assert estimate_run_seconds_left([stage("big", 7, cpu=8), stage("a", 1)], cores=2) == 8  # gets what the machine has
    assert estimate_run_seconds_left([], cores=2) == 0


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(1, 4))
def test_it_is_between_the_longest_stage_and_all_of_them(seconds: list[int], cores: int) -> None:
    left = estimate_run_seconds_left([stage(str(number), of) for number, of in enumerate(seconds)], cores)
    assert max(seconds, default=0) <= left <= sum(seconds)
    assert left >= sum(seconds) / cores - 1e-9


@pytest.mark.parametrize(
    ("seconds", "unknown", "said"),
    [(40, 0, "about 40 s left"), (150, 0, "about 2 min left"), (3700, 2, "at least 1 h 01 min left"), (0, 3, "")],
)
def test_how_it_is_told(seconds: float, unknown: int, said: str) -> None:
    assert format_time_left(seconds, unknown) == said


def test_what_a_stage_still_takes() -> None:
    assert estimate_stage_seconds_left({"sft": 60.0}, "sft", 20.0, None) == 40.0
    assert estimate_stage_seconds_left({"sft": 60.0}, "sft", 90.0, None) == 0.0
    assert estimate_stage_seconds_left({"sft": 60.0}, "sft", 20.0, 300.0) == 300.0  # its own steps know better
    assert estimate_stage_seconds_left({}, "sft", 0.0, None) is None

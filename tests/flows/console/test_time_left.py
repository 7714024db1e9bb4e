"""How long a run will still take, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.console.time_left import (
    Remaining,
    SpeedCalibration,
    StageEstimate,
    StepsLeft,
    estimate_run_seconds_left,
    estimate_stage_left,
    format_time_left,
)
from flows.lineage.expected_durations import ExpectedDuration


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
    ("low", "high", "unknown", "text"),
    [
        (40, 40.3, 0, "about 40 s left"),
        (20, 40, 0, "about 20 to 40 s left"),
        (50, 130, 0, "about 50 s to 2 min left"),
        (540, 1200, 0, "about 9 to 20 min left"),
        (3500, 7300, 0, "about 58 min to 2 h 01 min left"),
        (3700, 7300, 0, "about 1 h 01 min to 2 h 01 min left"),
        (3700, 7300, 2, "at least 1 h 01 min left"),
        (0, 0, 3, ""),
    ],
)
def test_the_words_of_the_time_left(low: float, high: float, unknown: int, text: str) -> None:
    assert format_time_left(low, high, unknown) == text


def test_what_a_stage_still_takes() -> None:
    here = ExpectedDuration(60.0, measured_here=True)
    speed = SpeedCalibration()
    assert estimate_stage_left(here, speed, 20.0, None) == StageEstimate(40.0, 1.15)
    assert estimate_stage_left(here, speed, 90.0, None) == StageEstimate(0.0, 1.15)
    assert estimate_stage_left(here, speed, 20.0, StepsLeft(300.0, 0.5)) == StageEstimate(300.0, 1.15)
    assert estimate_stage_left(here, speed, 20.0, StepsLeft(300.0, 0.0)) == StageEstimate(40.0, 1.15)
    early = estimate_stage_left(here, speed, 20.0, StepsLeft(300.0, 1 / 6))  # half by its steps
    assert early is not None
    assert early.seconds == pytest.approx(170.0)
    assert early.spread == pytest.approx((1.15 + (1.15 + 0.45 / 2)) / 2)
    assert estimate_stage_left(None, speed, 20.0, StepsLeft(300.0, 0.0)) == StageEstimate(300.0, 1.6)
    assert estimate_stage_left(None, speed, 0.0, None) is None


def test_stages_that_ended_tell_how_fast_the_machine_is_and_narrow_the_range() -> None:
    """A machine of half the speed: 60 s take 120 s; with 20 s at equal speed at first it is (120 + 20) / (60 + 20)."""
    elsewhere = ExpectedDuration(100.0, measured_here=False)
    speed = SpeedCalibration()
    assert estimate_stage_left(elsewhere, speed, 0.0, None) == StageEstimate(100.0, 1.6)
    speed.add(60.0, 120.0)
    estimate = estimate_stage_left(elsewhere, speed, 25.0, None)
    assert estimate is not None
    assert estimate.seconds == pytest.approx(100 * 140 / 80 - 25)
    assert estimate.spread == pytest.approx(1.3)
    assert estimate_stage_left(ExpectedDuration(100.0, measured_here=True), speed, 0.0, None) == StageEstimate(
        100, 1.15
    )

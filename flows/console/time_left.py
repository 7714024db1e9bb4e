"""How long a run will still take, by how long its stages are expected to take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from flows.console.summary import format_duration

if TYPE_CHECKING:
    from flows.lineage.expected_durations import ExpectedDuration

FIRST_SPREAD = 1.6  # of an estimate by another machine's run, before any stage has ended here
KNOWN_SPREAD = 1.15  # of one by a run of the same stage here, or by the stage's own steps
PRIOR_SECONDS = 20.0  # of stages that ended, which count as much as the first guess of this machine's speed


@dataclass(frozen=True)
class Remaining:
    """A stage that has not ended: what is left of it in seconds, the cores that it takes, and what it waits for."""

    name: str
    seconds: float
    cpu: int
    upstream: tuple[str, ...]


def estimate_run_seconds_left(stages: Sequence[Remaining], cores: int) -> float:
    """When the last of `stages`, which stand in their order, would end if each began as soon as its upstream has ended
    and cores are free.
    """
    names = {stage.name for stage in stages}
    waiting = list(stages)
    running = dict[str, float]()
    ended = set[str]()
    cores_needed = {
        stage.name: min(stage.cpu, cores) for stage in stages
    }  # a stage never waits for cores that no machine has
    now = 0.0
    while waiting or running:
        for stage in list(waiting):
            free = cores - sum(cores_needed[name] for name in running)
            if cores_needed[stage.name] <= free and not (names & {*stage.upstream}) - ended:
                running[stage.name] = now + stage.seconds
                waiting.remove(stage)
        if not running:
            break  # the rest waits for a stage that is not in the list's order
        now = min(running.values())
        ended |= {name for name, end in running.items() if end == now}
        running = {name: end for name, end in running.items() if end > now}
    return now


@dataclass(frozen=True)
class StageEstimate:
    """Seconds that a stage still takes, and by which factor either way it may be wrong."""

    seconds: float
    spread: float


class StepsLeft(NamedTuple):
    """Seconds until a stage's last step at the rate so far, and the share of its steps that is done."""

    seconds: float
    done: float


class SpeedCalibration:
    """How much slower this machine is than the one that was measured, by the stages that have ended so far."""

    def __init__(self) -> None:
        self.expected = 0.0
        self.measured = 0.0

    def add(self, expected: float, seconds: float) -> None:
        """A stage has ended that was expected to take `expected` seconds."""
        self.expected += expected
        self.measured += seconds

    @property
    def factor(self) -> float:
        """Seconds here for one second there; near 1 until stages of some length have ended."""
        return (self.measured + PRIOR_SECONDS) / (self.expected + PRIOR_SECONDS)

    @property
    def spread(self) -> float:
        """By which factor an estimate may be wrong: FIRST_SPREAD at the beginning, less as stages end."""
        return 1 + (FIRST_SPREAD - 1) / (1 + self.expected / PRIOR_SECONDS / 3)


def format_time_left(low: float, high: float, unknown: int) -> str:
    """`about 9 to 20 min left`, or `at least 9 min left` if nothing is known of some stages; nothing below a second."""
    if low < 1:
        return ""
    if unknown:
        return f"at least {format_rough_duration(low)} left"
    return f"about {format_duration_range(low, high)} left"


def format_duration_range(low: float, high: float) -> str:
    """`9 to 20 min`, or one duration where both read alike."""
    least = format_rough_duration(low)
    most = format_rough_duration(high)
    if least == most:
        return least
    number, _, unit = least.rpartition(" ")
    return f"{number if most.split(' ')[1:] == [unit] else least} to {most}"


def format_rough_duration(seconds: float) -> str:
    """An estimate as people read it: whole seconds below a minute, then whole minutes."""
    if seconds < 59.5:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 3570 else format_duration(seconds)


def estimate_stage_left(
    expected: "ExpectedDuration | None", speed: SpeedCalibration, elapsed: float, steps: StepsLeft | None
) -> StageEstimate | None:
    """What a stage that has run `elapsed` seconds still takes; None where neither steps nor runs say anything.

    What is expected of it counts at its beginning, and its own steps more and more until a third of them is done.
    """
    trust = min(3 * steps.done, 1.0) if steps else 0.0
    by_steps = (
        StageEstimate(steps.seconds, KNOWN_SPREAD + (FIRST_SPREAD - KNOWN_SPREAD) * (1 - trust)) if steps else None
    )
    if expected is None:
        return by_steps
    seconds = expected.seconds if expected.measured_here else expected.seconds * speed.factor
    spread = KNOWN_SPREAD if expected.measured_here else speed.spread
    before = StageEstimate(max(seconds - elapsed, 0.0), spread)
    if by_steps is None:
        return before
    return StageEstimate(
        trust * by_steps.seconds + (1 - trust) * before.seconds, trust * by_steps.spread + (1 - trust) * before.spread
    )

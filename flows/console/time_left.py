"""How long a run will still take, by how long its stages took before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.console.summary import format_duration


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


def format_time_left(seconds: float, unknown: int) -> str:
    """`about 12 min left`; with stages that never ran `at least 12 min left`, and nothing where that says nothing."""
    if seconds < 1:
        return ""
    return f"{'at least' if unknown else 'about'} {format_rough_duration(seconds)} left"


def format_rough_duration(seconds: float) -> str:
    """An estimate as people read it: from one minute on in whole minutes."""
    return format_duration(seconds) if seconds < 60 or seconds >= 3600 else f"{round(seconds / 60)} min"


def estimate_stage_seconds_left(
    past_seconds: Mapping[str, float], name: str, elapsed: float, estimate: float | None
) -> float | None:
    """Seconds that a stage still takes: by its own steps where it has told of them, else by its last run; None where
    neither is known.
    """
    if estimate is not None:
        return estimate
    return max(past_seconds[name] - elapsed, 0.0) if name in past_seconds else None

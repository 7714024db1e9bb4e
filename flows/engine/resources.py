"""The machine's cores and GPUs, and which stage holds which."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Condition


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs that this process may use, named as in CUDA_VISIBLE_DEVICES."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1"]
    return [str(index) for index, _ in enumerate(sorted(Path("/dev").glob("nvidia[0-9]*")))]


class Slots:
    """Hands out cores and GPUs to stages; a stage waits until all that it asks for is free.

    `jobs` replaces the number of cores; a stage that asks for more cores than there are gets them all. Among waiting stages the
    one with the highest rank goes first, and no stage behind it takes the cores that it waits for.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.cores, self.gpus = jobs or cores(), gpus(os.environ)
        self._cores, self._gpus = self.cores, list(self.gpus)
        self._changed, self._arrivals = Condition(), count()
        self._waiting: list[tuple[int, int, int]] = []  # minus the rank, arrival, GPUs

    @contextmanager
    def hold(self, cpu: int, gpu: int, rank: int = 0) -> Iterator[list[str]]:
        """Hold `cpu` cores and `gpu` GPUs; the highest `rank` goes first. Yields the names of the GPUs."""
        cpu, gpu = min(cpu, self.cores), min(gpu, len(self.gpus))
        with self._changed:
            own = (-rank, next(self._arrivals), gpu)
            self._waiting.append(own)
            self._changed.wait_for(lambda: self._turn(own) and self._cores >= cpu and len(self._gpus) >= gpu)
            self._waiting.remove(own)
            self._cores -= cpu
            held, self._gpus = self._gpus[:gpu], self._gpus[gpu:]
            self._changed.notify_all()  # for the stages that waited behind this one
        try:
            yield held
        finally:
            with self._changed:
                self._cores += cpu
                self._gpus = sorted(self._gpus + held)
                self._changed.notify_all()

    def _turn(self, own: tuple[int, int, int]) -> bool:
        """Whether no earlier stage waits for cores; a stage that lacks only GPUs does not hold up the others."""
        return not any(other < own and other[2] <= len(self._gpus) for other in self._waiting)

"""The machine's cores and GPUs, and who holds which of them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Condition


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1"]
    return [str(index) for index, _ in enumerate(sorted(Path("/dev").glob("nvidia[0-9]*")))]


class Slots:
    """Hands out cores and GPUs to stages; a stage waits until all that it asks for is free.

    `jobs` takes the place of the number of cores; a stage that asks for more than there are gets them all.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.cores, self.gpus = jobs or cores(), gpus(os.environ)
        self._cores, self._gpus = self.cores, list(self.gpus)
        self._changed = Condition()

    @contextmanager
    def taken(self, cpu: int, gpu: int) -> Iterator[list[str]]:
        """Hold `cpu` cores and `gpu` GPUs; yields the names of the GPUs."""
        cpu, gpu = min(cpu, self.cores), min(gpu, len(self.gpus))
        with self._changed:
            self._changed.wait_for(lambda: self._cores >= cpu and len(self._gpus) >= gpu)
            self._cores -= cpu
            held, self._gpus = self._gpus[:gpu], self._gpus[gpu:]
        try:
            yield held
        finally:
            with self._changed:
                self._cores += cpu
                self._gpus = sorted(self._gpus + held)
                self._changed.notify_all()

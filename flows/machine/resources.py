"""The machine's cores and GPUs, and which stage holds which."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Condition

from flows.machine import devices
from flows.machine.devices import Lease

POLL_SECONDS = 0.5  # between two looks at a device that another process holds


def count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def list_gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs that this process may use, named as in CUDA_VISIBLE_DEVICES."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1"]
    return [str(index) for index, _ in enumerate(sorted(Path("/dev").glob("nvidia[0-9]*")))]


@dataclass(frozen=True, order=True)
class _Waiting:
    """A stage that waits; the smallest goes first."""

    rank: int  # minus the rank that was asked for
    arrival: int
    cpu: int
    gpu: int


class Slots:
    """Hands out cores, and leases of GPUs; a stage waits until all that it asks for is free.

    `jobs` replaces the number of cores; a stage that asks for more cores than there are gets them all. Among waiting
    stages the one with the highest rank goes first, and no stage behind it takes the cores that it waits for. Other
    processes of the machine know nothing of the cores, but hold leases too. Once `stopped` says so, nothing waits any
    more.
    """

    def __init__(self, jobs: int | None = None, stopped: Callable[[], bool] = lambda: False) -> None:
        self.cores = jobs or count_cores()
        self.gpus = list_gpus(os.environ)
        self._cores = self.cores
        self._gpus = list(self.gpus)
        self._stopped = stopped
        self._changed = Condition()
        self._arrivals = count()
        self._waiting: list[_Waiting] = []

    @contextmanager
    def hold(
        self, cpu: int, gpu: int, rank: int = 0, holder: str = "", tell: Callable[[str], None] = lambda text: None
    ) -> Iterator[Lease]:
        """Hold `cpu` cores and `gpu` GPUs; the highest `rank` goes first. Yields the lease of the GPUs.

        `holder` is what other processes say that wait for them; `tell` is called with what this stage waits for, if
        another process holds it. In a run that was stopped the lease is empty. DeviceError if the locks cannot be used.
        """
        request = _Waiting(-rank, next(self._arrivals), min(cpu, self.cores), min(gpu, len(self.gpus)))
        lease = self._wait_for_lease(request, holder, tell)
        try:
            yield lease or Lease()
        finally:
            if lease is not None:
                with self._changed:
                    lease.release()
                    self._cores += request.cpu
                    self._gpus = [name for name in self.gpus if name in {*self._gpus, *lease.names}]
                    self._changed.notify_all()

    def _wait_for_lease(self, request: _Waiting, holder: str, tell: Callable[[str], None]) -> Lease | None:
        """The lease, or None in a run that was stopped."""
        seen = reported = ""
        with self._changed:
            self._waiting.append(request)
            try:
                while not self._stopped():
                    lease = self._try_lease(request, holder)
                    if lease is not None:
                        return lease
                    before = seen
                    seen = self._describe_held_devices(request.gpu)
                    if seen == before and seen not in ("", reported):  # a lock seen once may be another stage's look
                        reported = seen
                        tell(reported)
                    # Other processes give no sign when they free a device.
                    self._changed.wait(POLL_SECONDS if any(each.gpu for each in self._waiting) else None)
                return None
            finally:
                self._waiting.remove(request)
                self._changed.notify_all()  # for the stages that waited behind this one

    def _try_lease(self, request: _Waiting, holder: str) -> Lease | None:
        """All that a stage asks for, or None and nothing.

        A stage that lacks only GPUs does not hold up those behind it.
        """
        if request.cpu > self._cores or any(
            other < request and self._has_free_gpus(other.gpu) for other in self._waiting
        ):
            return None
        lease = devices.try_lease_devices(self._gpus, request.gpu, holder)
        if lease is not None:
            self._cores -= request.cpu
            self._gpus = [name for name in self._gpus if name not in lease.names]
        return lease

    def _has_free_gpus(self, gpu: int) -> bool:
        """Whether so many GPUs are free, of this run and of other processes."""
        lease = devices.try_lease_devices(self._gpus, gpu)
        if lease is not None:
            lease.release()
        return lease is not None

    def _describe_held_devices(self, gpu: int) -> str:
        """`waits for device 0, held by sft of /home/ann/posttrain (pid 123 on host)`; empty if no other process is in
        the way.
        """
        if not 0 < gpu <= len(self._gpus):
            return ""
        held = devices.list_device_holders(self._gpus)
        lacking = len(self._gpus) - len(held) < gpu
        return "; ".join(f"waits for device {name}, held by {who}" for name, who in held.items()) if lacking else ""

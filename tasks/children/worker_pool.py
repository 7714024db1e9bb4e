"""Processes that judge answers, each one at a time: started when first needed, replaced when one has ended."""

import queue
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar


class Worker(Protocol):
    """A process, as its parent sees it."""

    def alive(self) -> bool:
        """Whether it can judge another answer."""
        ...

    def close(self) -> None:
        """End it, whatever it does."""
        ...


OneWorker = TypeVar("OneWorker", bound=Worker)
Job = TypeVar("Job")


class WorkerPool(Generic[OneWorker]):
    """Up to `count` workers made by `start`."""

    def __init__(self, count: int, start: Callable[[], OneWorker]) -> None:
        self.start = start
        self._threads = ThreadPoolExecutor(count)
        self._places: queue.LifoQueue[OneWorker | None] = queue.LifoQueue()
        for _ in range(count):
            self._places.put(None)  # a free place for a process

    def start_first_worker(self) -> None:
        """Start a first worker now, so that one that cannot be is found before there is work."""
        self._places.get()
        self._places.put(self.start())

    def map(self, judge: Callable[[OneWorker, Job], float], jobs: Iterable[Job]) -> list[float]:
        """What `judge` says of each job, with a worker of its own at the time."""

        def judged(job: Job) -> float:
            worker = self._places.get()
            try:
                worker = worker or self.start()
                return judge(worker, job)
            finally:
                if worker is not None and not worker.alive():
                    worker.close()
                    worker = None
                self._places.put(worker)

        return list(self._threads.map(judged, jobs))

    def close(self) -> None:
        """End all workers."""
        self._threads.shutdown(cancel_futures=True)
        while not self._places.empty():
            if (worker := self._places.get()) is not None:
                worker.close()

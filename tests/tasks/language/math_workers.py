"""Processes of math-verify that outlive the verifier that started them: each costs seconds of imports."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tasks.language.rewards import verifier


class Workers:
    """The idle processes, by their limit of processor time."""

    def __init__(self) -> None:
        self.idle: dict[float, list[KeptWorker]] = {}

    def start(self, seconds: float) -> "KeptWorker":
        """An idle process, else a new one; it comes back when its verifier closes it."""
        while kept := self.idle.get(seconds):
            worker = kept.pop()
            if worker.alive():
                return worker
            worker.end()
        return KeptWorker(seconds, self)

    def end(self) -> None:
        """End all of them."""
        for kept in self.idle.values():
            while kept:
                kept.pop().end()


class KeptWorker(verifier.VerifierWorker):
    """A process that a verifier gives back instead of ending it."""

    def __init__(self, seconds: float, workers: Workers) -> None:
        self.seconds, self.workers = seconds, workers
        super().__init__(seconds)

    def close(self) -> None:
        """Give it back; a process that has ended is of no more use."""
        if self.alive():
            self.workers.idle.setdefault(self.seconds, []).append(self)
        else:
            self.end()

    def end(self) -> None:
        """End it, whatever it does."""
        super().close()


@contextmanager
def kept(workers: Workers) -> Iterator[None]:
    """Within it verifiers take their processes from `workers`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifier, "VerifierWorker", workers.start)
        yield

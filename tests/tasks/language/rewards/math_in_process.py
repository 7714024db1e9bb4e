"""math-verify in this process, where its own processes are not the point: each costs seconds of imports."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tasks.language.rewards import verifier
from tasks.language.rewards.math_worker import is_answer_equal_to_gold, parse_gold_expressions


class Worker:
    """Judges as a process of math-verify does, but without limits of time and memory."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def judge(self, gold: str, answer: str, near: bool = False) -> float:
        """1.0 or 0.0, nan for a reference that cannot be read."""
        return float(is_answer_equal_to_gold(gold, answer, near)) if parse_gold_expressions(gold) else math.nan

    def alive(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """There is nothing to end."""


@contextmanager
def verifier_in_process() -> Iterator[verifier.Verifier]:
    """A verifier whose only worker is this process."""
    with verifier.Verifier(workers=1) as judge:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(verifier, "VerifierWorker", Worker)
            assert judge(["\\frac{1}{2}"], ["\\boxed{0.5}"]) == [1.0]  # which makes the worker, and keeps it
        yield judge

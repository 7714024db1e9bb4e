"""A training that pauses at a share of its steps, from where it goes on later with the same result.

`posttrain sweep --early` (flows/sweeps/halving.py) asks for it by a variable, and compares its points by the numbers
that they then have.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Self

from tasks.algorithms.common.errors import TrainingError
from tasks.common import processes
from tasks.common.errors import WaitingError

VARIABLE = "POSTTRAIN_PAUSE"  # `{"share": "1/4", "metric": "eval_accuracy", "file": PATH}`


@dataclass(frozen=True)
class Pause:
    """After which share of its steps a training is to pause, and the file to write a metric of that step to."""

    share: Fraction
    metric: str
    file: Path

    @classmethod
    def asked(cls) -> Self | None:
        """What the variable asks for; None without it."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        request = json.loads(text)
        return cls(Fraction(request["share"]), request["metric"], Path(request["file"]))

    def step(self, total: int) -> int:
        """The step to pause after, from 1 on."""
        return max(1, int(self.share * total))

    def check(self, row: Mapping[str, float]) -> None:
        """TrainingError where a row has no such metric, or the training is one of several processes."""
        if processes.is_multi_process():
            raise TrainingError("--early: several processes of a training cannot pause")
        if self.metric not in row:
            raise TrainingError(f"--early {self.metric}: the curve has no such number; it has {', '.join(row)}")

    def end(self, rows: Sequence[Mapping[str, float]], total: int) -> None:
        """Write `{"metric": .., "step": .., "total": .., "value": ..}` and raise WaitingError; `rows` has at least
        those up to the step.

        TrainingError as of `check`.
        """
        step = self.step(total)
        row = rows[step - 1]
        self.check(row)
        facts = {"metric": self.metric, "step": step, "total": total, "value": row[self.metric]}
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps(facts))
        partial.replace(self.file)
        raise WaitingError(f"paused after step {step} of {total}")

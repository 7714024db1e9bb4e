"""The normalised score of a return: its place between two known returns of the environment."""

from dataclasses import dataclass

SCALE = (
    "0 is the random policy's return, 100 the expert's, or the optimum where it is known; an imported data set "
    "or transitions.references may say both"
)


@dataclass(frozen=True)
class ScoreReference:
    """Two mean returns that a score is measured between: 100 (R - minimum) / (maximum - minimum)."""

    minimum: float
    maximum: float

    def score(self, value: float) -> float:
        """The normalised score of a return."""
        return 100 * (value - self.minimum) / (self.maximum - self.minimum)

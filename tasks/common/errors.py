"""What a stage raises where it cannot do its work: a type that a notebook can catch, with a message of one line.

Only `main()` (tasks/stage.py) turns them into an exit status. What training raises is `TrainingError`
(tasks/algorithms/common).
"""

from tasks.common.terminal import message

WAITING = 75  # the exit status of a stage that waits for people (EX_TEMPFAIL of sysexits.h)


class StageError(Exception):
    """A stage cannot do its work; the text is the one line to show.

    It may quote other people's files, so line ends become spaces, a terminal's control characters are written out, and
    a long line is cut.
    """

    def __init__(self, text: str) -> None:
        super().__init__(message(text))


class ConfigError(StageError):
    """A value of params.yaml cannot be used."""


class DataError(StageError):
    """A table, a data set, a model or another file is not what was expected."""


class WaitingError(StageError):
    """The stage needs judgements that people have not given yet: nothing is wrong, and it can go on when they have.

    The text says how many, and by which command they are given: `waiting for 40 more: posttrain label`.
    """

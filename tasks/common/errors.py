"""What a stage raises where it cannot do its work: a type that a notebook can catch, with a message of one line.

Only `main()` (tasks/stage.py) turns them into an exit status. What training raises is `TrainingError` (tasks/algorithms/common).
"""


class StageError(Exception):
    """A stage cannot do its work; the text is the one line to show."""


class ConfigError(StageError):
    """A value of params.yaml cannot be used."""


class DataError(StageError):
    """A table, a data set, a model or another file is not what was expected."""

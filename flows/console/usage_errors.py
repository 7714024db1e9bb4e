"""What a command cannot do as it was given, in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from tasks.common.mlflow_address import AddressError


class WrongUseError(Exception):
    """The command cannot be carried out as given; the text is the line to show."""


@contextmanager
def convert_errors_to_wrong_use() -> Iterator[None]:
    """Turn what the engine or the disk raises into a WrongUseError."""
    from flows.engine.plan import PlanError

    try:
        yield
    except (PlanError, AddressError) as error:
        raise WrongUseError(str(error)) from None
    except OSError as error:  # the disk is full, broken or read-only
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise WrongUseError(f"{what}; what had finished is kept") from None

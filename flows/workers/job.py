"""What a coordinator asks of a worker, and what the worker says of it: two plain values that travel as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

from flows.engine.dvc_lock import Entry
from flows.engine.dvc_repository import PlanError

BEAT_SECONDS = 1.0  # between two reports of a running attempt
LOST_SECONDS = 20.0  # without a new report, while the server answers: the attempt counts as lost
Transport = Literal["shared", "clone"]


class _Message:
    """A dataclass that travels as a JSON object. Keys that this version does not know are left out."""

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        """The value that a JSON object stands for; PlanError if it is of another kind."""
        names = {attribute.name for attribute in fields(cls)}  # type: ignore[arg-type]
        try:
            return cls(**{name: value for name, value in message.items() if name in names})
        except TypeError:
            raise PlanError(f"expected a {cls.__name__.lower()} of this version of posttrain on the server") from None

    def json(self) -> dict[str, Any]:
        """The value as a JSON object."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class Job(_Message):
    """One attempt at a stage. With `transport` shared it runs in the checkout itself, else in a copy of the commit."""

    stage: str
    attempt: str  # a random name of this attempt
    transport: Transport
    checkout: str  # the id of the coordinator's checkout
    entry: Entry  # as dvc.lock will have it, without the hashes of the outs: cmd, deps, params, outs
    gpu: int = 0
    launcher: str = ""
    commit: str = ""
    patch: str = ""  # the tree's difference to the commit, compressed, in base64
    remote: str = ""  # DVC's name of the remote that both sides use; "" for the default


@dataclass
class Status(_Message):
    """What an attempt reports, once in BEAT_SECONDS. `ended` comes with the last report, after which the others
    hold.
    """

    beat: int = 0
    phase: str = ""  # what it waits for or does, where that is not the stage's own work
    step: int = 0
    total: int = 0
    seconds: float = 0.0  # since the command began
    measure: str = ""  # of what is training, as Event has it
    host: str = ""
    worker: str = ""
    pid: int = 0
    devices: list[str] = field(default_factory=list)
    ended: bool = False
    failure: str = ""  # why the stage failed, in one line
    waiting: str = ""  # what it waits for, where people have not judged enough yet
    lost: str = ""  # why the attempt ended though the stage did not fail: it may be tried again
    outs: list[dict[str, Any]] = field(default_factory=list)  # of the entry, with hashes
    files: dict[str, str] = field(default_factory=dict)  # "log" and "records" -> hash under which the remote has them
    environment: dict[str, str] = field(default_factory=dict)  # versions, the machine

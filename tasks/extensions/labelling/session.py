"""People at work on the record: what each gets next, and what they say, on disk before anything else is shown.

All that decides is the record and the seed. A server that was killed goes on where it was, and a page that did not hear
whether its judgement was saved may send it again: it is known by its ticket.
"""

import hmac
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import RLock

from tasks.extensions.labelling.assignment import Assignment, Progress, Shown
from tasks.extensions.labelling.item_view import convert_value_to_item_order
from tasks.language.judgements.judged_pairs import select_counted_judgements
from tasks.language.judgements.judgement_log import Writer
from tasks.language.judgements.lines import Flag, Item, Judgement, Skip, Undo, Value, find_value_fault

GONE_SECONDS = 1800.0  # who has said nothing of an item for so long has left, and it goes to others


class ConflictError(Exception):
    """What a page says does not go with the record any more; the text is the line to show."""


@dataclass(frozen=True)
class LabelTurn:
    """What a person sees now: an item with its ticket, or none when nothing is left; `value` is what they took back of
    it.
    """

    shown: Shown | None
    judgement: str
    value: Value | None
    undo: str | None  # the judgement that the person can take back
    progress: Progress
    pipeline: Progress | None


class Session:
    """All people's judging of one assignment. `key` is a secret that outlives the process; `wanted` is how many
    judgements the pipeline waits for, None if for none.
    """

    def __init__(self, writer: Writer, assignment: Assignment, key: str, wanted: int | None = None) -> None:
        self.writer = writer
        self.record = writer.record
        self.assignment = assignment
        self._key = key.encode()
        self._wanted = wanted
        self._lock = RLock()
        self._seeing: dict[str, tuple[str, float]] = {}  # the item that each person sees, and since when

    def next(self, person: str) -> LabelTurn:
        """The person's next item."""
        with self._lock:
            now = time.monotonic()
            seen = {who: item for who, (item, since) in self._seeing.items() if now - since < GONE_SECONDS}
            return self._start_turn(person, self.assignment.next(self.record, person, seen), None)

    def judge(self, judgement: str, person: str, item: str, value: Value, seconds: float) -> None:
        """Bring a judgement, in the places of the page, to the disk; once, however often it is said, and ConflictError
        where another one is there.
        """
        with self._lock:
            if (line := self.record.known(judgement)) is not None:
                if not self._is_recorded_judgement(line, person, item, value):
                    raise ConflictError("another judgement was saved from this page; load it anew")
                return
            assigned = self._get_item(item)
            repeat = self._count_judgements(person, item)
            if not hmac.compare_digest(judgement, self._make_ticket(judgement[:16], person, item, repeat)):
                raise ConflictError("you have judged this item elsewhere meanwhile")
            if wrong := find_value_fault(value, assigned):
                raise ConflictError(wrong)
            shown = self.assignment.shown(item, person, repeat)
            self._record_new_item(assigned)
            line = Judgement(
                judgement=judgement,
                item=item,
                person=person,
                mode=assigned.mode,
                order=shown.order,
                value=convert_value_to_item_order(value, shown.order),
                seconds=round(seconds, 2),
                repeat=repeat,
                at=format_current_time(),
            )
            self.writer.append(line)

    def _is_recorded_judgement(self, line: Judgement, person: str, item: str, value: Value) -> bool:
        """Whether a judgement of the record, which may have been taken back, is this one, in the places of the page."""
        if (line.person, line.item) != (person, item) or find_value_fault(value, self.record.items[line.item]):
            return False
        return convert_value_to_item_order(value, line.order) == line.value

    def undo(self, judgement: str, person: str) -> LabelTurn:
        """Take a judgement back and return to its item."""
        with self._lock:
            line = self.record.known(judgement)
            if line is None or line.person != person or line.item not in self.assignment.items:
                raise ConflictError("there is no such judgement of yours to take back")
            if line in self.record.judgements:
                self.writer.append(Undo(judgement=judgement, person=person, at=format_current_time()))
            return self._start_turn(person, self.assignment.shown(line.item, person, line.repeat), line.value)

    def skip(self, item: str, person: str, again: bool) -> None:
        """Leave an item to others. `again`: the page did not hear whether it was saved."""
        with self._lock:
            assigned = self._get_item(item)
            last = next((line.item for line in reversed(self.record.skips) if line.person == person), None)
            if not (again and last == item):
                self._record_new_item(assigned)
                self.writer.append(Skip(item=item, person=person, at=format_current_time()))

    def flag(self, item: str, person: str, reason: str) -> None:
        """Note that something is wrong with an item; the same reason is noted once."""
        with self._lock:
            assigned = self._get_item(item)
            if not any((line.item, line.person, line.reason) == (item, person, reason) for line in self.record.flags):
                self._record_new_item(assigned)
                self.writer.append(Flag(item=item, person=person, reason=reason, at=format_current_time()))

    def compute_pipeline_progress(self, judgements: Sequence[Judgement] = ()) -> Progress | None:
        """Of the judgements that the pipeline waits for, counted as its stage counts them, in all files of the record:
        solutions where steps are judged. None if it waits for none. The time left is at the pace of `judgements`.
        """
        if self._wanted is None:
            return None
        if any(item.mode == "steps" for item in self.assignment.items.values()):
            done = len({line.item for line in self.record.judgements if line.mode == "steps"})
        else:
            done = len(select_counted_judgements(self.record))
        left = max(0, self._wanted - done)
        return Progress(done, self._wanted, self.assignment.estimate_seconds_left(self.record, judgements, left))

    def _start_turn(self, person: str, shown: Shown | None, value: Value | None) -> LabelTurn:
        ticket = ""
        self._seeing.pop(person, None)
        if shown is not None:
            self._seeing[person] = (shown.item.item, time.monotonic())
            ticket = self._make_ticket(secrets.token_hex(8), person, shown.item.item, shown.repeat)
        judgements = [
            line for line in self.record.judgements if line.person == person and line.item in self.assignment.items
        ]
        progress = self.assignment.progress(self.record, person)
        pipeline = self.compute_pipeline_progress(judgements)
        return LabelTurn(shown, ticket, value, judgements[-1].judgement if judgements else None, progress, pipeline)

    def _make_ticket(self, drawn: str, person: str, item: str, repeat: int) -> str:
        """A judgement's id: drawn by lot, and bound to who judges what for which time, in a way that a page cannot
        read.
        """
        bound = hmac.digest(self._key, "\n".join((drawn, person, item, str(repeat))).encode(), "sha256")
        return drawn + bound.hex()[:16]

    def _count_judgements(self, person: str, item: str) -> int:
        return sum(line.person == person and line.item == item for line in self.record.judgements)

    def _get_item(self, item: str) -> Item:
        assigned = self.assignment.items.get(item)
        if assigned is None:
            raise ConflictError("this item is not asked about any more")
        return assigned

    def _record_new_item(self, item: Item) -> None:
        if item.item not in self.record.items:
            self.writer.append(item)


def format_current_time() -> str:
    """The time as the record has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

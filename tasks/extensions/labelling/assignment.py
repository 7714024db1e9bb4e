"""Which item comes next for a person, and with its answers in which order.

All of it follows from the seed and the record: after a reload or a kill it goes on where it was, and an item that was
taken back comes again as it was. People finish items that others have begun before they begin new ones, so that they
share items, and each goes through them in an order of their own. Gold items and repeats are mixed in, at shares drawn
for each judgement; nothing tells them from the others.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import Item, Judgement


@dataclass(frozen=True)
class AssignmentSettings:
    """How items are given out."""

    seed: int
    overlap: int  # people who judge each item
    gold: float  # share of a person's judgements that are of gold items, while there are any
    repeats: float  # share that are repeats of the person's own
    gap: int  # the fewest judgements between an item and its repeat


@dataclass(frozen=True)
class Shown:
    """An item as a person gets it: `order` are its answers' places, left or top first; `repeat` is 0 for the first
    time.
    """

    item: Item
    order: tuple[int, ...]
    repeat: int


@dataclass(frozen=True)
class Progress:
    """How many judgements there are of those that are wanted, and how long the rest will take; None: nobody has judged
    yet.

    Gold items and repeats count for nothing here, but for the time that they take.
    """

    done: int
    wanted: int
    seconds_left: float | None


class Assignment:
    """Gives out items, each to `overlap` people; gold items go to everybody.

    Where all items are gold, everybody gets all of them. A skipped item goes to other people; it comes back to the
    person who skipped it when nothing else is left, and no more when it is skipped again.
    """

    def __init__(self, items: Sequence[Item], settings: AssignmentSettings) -> None:
        self.settings = settings
        self.items = {item.item: item for item in items}
        self._gold = [item.item for item in self.items.values() if item.gold is not None]
        ordinary = [item.item for item in self.items.values() if item.gold is None]
        self._everybody_all = not ordinary
        self._wanted = ordinary or self._gold
        self._keys: dict[str, dict[str, int]] = {}  # by person, the order of the items

    def next(
        self, record: JudgementRecord, person: str, before_others: Mapping[str, str] | None = None
    ) -> Shown | None:
        """What the person judges next; None: nothing is left.

        `before_others` are the items that other people see just now, by person.
        """
        judgements = self._list_own_judgements(record, person)
        draw = self._hash_with_seed(person, str(len(judgements))) / 2**64
        settings = self.settings
        if draw < settings.repeats and (again := self._find_item_to_repeat(record, judgements, person)) is not None:
            return self.shown(again, person, 1)
        if settings.repeats <= draw < settings.repeats + settings.gold and not self._everybody_all:
            unseen = self._filter_unseen_items(record, judgements, person, self._gold)
            if unseen:
                return self.shown(min(unseen, key=self._compute_item_sort_keys(person).__getitem__), person, 0)
        counts = self._group_judges_by_item(record)
        for other, item in (before_others or {}).items():
            if other != person and other not in counts.get(item, ()):
                counts.setdefault(item, set()).add(other)
        candidates = self._list_open_items(record, judgements, person, counts)
        if not candidates:
            return None
        skipped = self._count_skips(record, person)
        keys = self._compute_item_sort_keys(person)
        first = min(candidates, key=lambda item: (skipped[item], -len(counts.get(item, ())), keys[item]))
        return self.shown(first, person, 0)

    def progress(self, record: JudgementRecord, person: str) -> Progress:
        """The person's: what is left shrinks too when others judge."""
        judgements = self._list_own_judgements(record, person)
        done = len({line.item for line in judgements} & set(self._wanted))
        left = len(self._list_open_items(record, judgements, person, self._group_judges_by_item(record)))
        return Progress(done, done + left, self.estimate_seconds_left(record, judgements, left))

    def compute_total_progress(self, record: JudgementRecord) -> Progress:
        """Of all people: each item wants `overlap` of them."""
        counts = self._group_judges_by_item(record)
        overlap = self.settings.overlap
        done = sum(min(overlap, len(counts.get(item, ()))) for item in self._wanted)
        wanted = overlap * len(self._wanted)
        return Progress(done, wanted, self.estimate_seconds_left(record, [], wanted - done))

    def _list_own_judgements(self, record: JudgementRecord, person: str) -> list[Judgement]:
        return [line for line in record.judgements if line.person == person and line.item in self.items]

    def _count_skips(self, record: JudgementRecord, person: str) -> Counter[str]:
        return Counter(line.item for line in record.skips if line.person == person)

    def _group_judges_by_item(self, record: JudgementRecord) -> dict[str, set[str]]:
        """Who has judged each item."""
        people: dict[str, set[str]] = {}
        for line in record.judgements:
            people.setdefault(line.item, set()).add(line.person)
        return people

    def _filter_unseen_items(
        self, record: JudgementRecord, judgements: Sequence[Judgement], person: str, items: Sequence[str]
    ) -> list[str]:
        """Those that the person has neither judged nor skipped."""
        seen = {line.item for line in judgements} | {*self._count_skips(record, person)}
        return [item for item in items if item not in seen]

    def _list_open_items(
        self, record: JudgementRecord, judgements: Sequence[Judgement], person: str, counts: Mapping[str, set[str]]
    ) -> list[str]:
        """Items that want one more person and that this one may get."""
        judged = {line.item for line in judgements}
        skipped = self._count_skips(record, person)
        return [
            item
            for item in self._wanted
            if item not in judged
            and skipped[item] < 2
            and (self._everybody_all or len(counts.get(item, ())) < self.settings.overlap)
        ]

    def _find_item_to_repeat(self, record: JudgementRecord, judgements: Sequence[Judgement], person: str) -> str | None:
        """An item that the person judged once, long enough ago."""
        judged = Counter(line.item for line in judgements)
        skipped = self._count_skips(record, person)
        old = [line.item for line in judgements[: max(0, len(judgements) - self.settings.gap)]]
        again = [item for item in old if judged[item] == 1 and not skipped[item] and self.items[item].gold is None]
        return min(again, key=self._compute_item_sort_keys(person).__getitem__) if again else None

    def shown(self, item: str, person: str, repeat: int) -> Shown:
        """The item as the person gets it for the first time, or again: the drawn order is the same whenever it is asked
        for.
        """
        positions = range(len(self.items[item].answers))
        order = sorted(positions, key=lambda position: self._hash_with_seed(person, item, str(repeat), str(position)))
        return Shown(self.items[item], tuple(order), repeat)

    def _compute_item_sort_keys(self, person: str) -> dict[str, int]:
        if person not in self._keys:
            self._keys[person] = {item: self._hash_with_seed(person, item) for item in self.items}
        return self._keys[person]

    def _hash_with_seed(self, *parts: str) -> int:
        """A number below 2**64 that follows from the seed and the parts."""
        text = "\n".join((str(self.settings.seed), *parts))  # no part has a line end
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")

    def estimate_seconds_left(
        self, record: JudgementRecord, judgements: Sequence[Judgement], left: int
    ) -> float | None:
        """How long so many more judgements take, at the pace of these, or of all where there are none."""
        durations = [line.seconds for line in judgements or record.judgements if line.seconds > 0]  # 0: not known
        share = max(0.01, 1 - self.settings.gold * bool(self._gold) - self.settings.repeats)
        return median(durations) * left / share if durations else None

"""The columns of one row of somebody's data, which remember what has been read of them; and rows that are left out.

What a row says and nobody reads is named once, and what is left out is counted, so that a data set is never learned
from in part without a word.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.common.errors import DataError

UNANSWERED = "without an answer"
BAD_ANSWER = "labelled as bad answers"
UNLEARNED = "whose answers are all marked as not learned"


class LeftOutError(DataError):
    """A row that is in a form that is read, and from which nothing can be learned; `why` is a part of a sentence."""

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.why = why


class Columns(Mapping[str, Any]):
    """A row's values by column. Looking a value up marks its column as read; `in` and `peek` do not."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._read: set[str] = set()
        self.unread_keys: set[str] = set()  # of messages in the columns

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._row[name]

    def __contains__(self, name: object) -> bool:
        return name in self._row

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def peek(self, name: str) -> Any:
        """The value of a column, or None, without marking the column as read."""
        return self._row.get(name)

    def use(self, *names: str) -> None:
        """Mark columns as read."""
        self._read.update(names)

    def unread(self) -> frozenset[str]:
        """Columns with something in them, and keys of messages, that nobody has read."""
        filled = {name for name, value in self._row.items() if value is not None and value not in ("", [], {})}
        return frozenset((filled - self._read) | self.unread_keys)


@dataclass
class Omissions:
    """Rows that a stage left out, counted by the reason, and columns and keys that it did not read, by how many rows
    have them.
    """

    left_out: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)

    def format_clause(self) -> str:
        """What is left out, to stand behind a message; empty where that is nothing."""
        left_out = ", ".join(f"{count:,} {why}" for why, count in sorted(self.left_out.items()) if count)
        return f"; rows left out: {left_out}" if left_out else ""

    def lines(self, source: str) -> list[str]:
        """A line each on the rows left out and on what is not read; none where there is nothing to say."""
        unread = ", ".join(f"{name} ({count:,} rows)" for name, count in sorted(self.unread.items()))
        return [
            *([f"{source}: {self.format_clause().removeprefix('; ')}"] if self.left_out else []),
            *([f"{source}: not read: {unread}"] if unread else []),
        ]

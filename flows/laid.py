"""Values that are laid over params.yaml for a run, and taken back where nothing has run with them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flows.engine.state import Event, Watcher
from flows.params.files import write


@dataclass
class Laid:
    """An edit of params.yaml: a line for each change, and whether something has run or was restored with it."""

    changes: Sequence[str] = ()
    used: bool = False

    def watching(self, watch: Watcher) -> Watcher:
        """The same watcher, which notes too whether something has begun."""

        def told(event: Event) -> None:
            self.used = self.used or event.state not in ("waiting", "up-to-date", "skipped")
            watch(event)

        return told


@contextmanager
def laid(root: Path, settings: Sequence[str], keep: bool) -> Iterator[Laid]:
    """Edit params.yaml; put it back at the end if `keep` is False, or after any exception before something has run with it."""
    edit = Laid()
    if settings:
        from flows.params import checking, editing

        before = editing.read(root)
        edit.changes = editing.edit(root, checking.sections(root), [editing.setting(text) for text in settings])
    try:
        yield edit
    except BaseException:
        keep = keep and edit.used
        raise
    finally:
        if edit.changes and not keep:
            write(root / "params.yaml", before)

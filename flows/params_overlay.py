"""Values that are laid over params.yaml for a run, and taken back where nothing has run with them."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from flows.engine.stage_types import Event, Watcher
from flows.params.files import PARAMS, write_file_atomically


@dataclass
class Laid:
    """An edit of params.yaml: a line for each change, and whether something has run or was restored with it."""

    changes: Sequence[str] = ()
    used: bool = False

    def wrap_watcher(self, watch: Watcher) -> Watcher:
        """The same watcher, which notes too whether something has begun."""

        def told(event: Event) -> None:
            self.used = self.used or event.state not in ("waiting", "up-to-date", "skipped")
            watch(event)

        return told


@contextmanager
def overlay_params(root: Path, settings: Sequence[str], keep: bool) -> Iterator[Laid]:
    """Edit params.yaml; put it back at the end if `keep` is False, or after any exception or signal before something
    has run with it.
    """
    edit = Laid()
    if not settings:
        yield edit
        return
    from flows.params import checking, editing

    before = editing.read_params_bytes(root)
    with _raise_interrupt_on_signals():
        try:
            edit.changes = editing.edit_params(
                root, checking.load_config_classes(root), [editing.parse_setting(text) for text in settings]
            )
            yield edit
        except BaseException:
            keep = keep and edit.used
            raise
        finally:
            file = root / PARAMS
            if not keep and not (file.is_file() and file.read_bytes() == before):
                write_file_atomically(file, before)


@contextmanager
def _raise_interrupt_on_signals() -> Iterator[None]:
    """What asks this process to end raises KeyboardInterrupt in the meantime: by default it would end with nothing
    undone.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    free = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if in_main_thread and signal.getsignal(number) == signal.SIG_DFL
    ]
    for number in free:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in free:
            signal.signal(number, signal.SIG_DFL)

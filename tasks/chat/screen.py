"""Where a chat is read from and shown: a terminal, or a pipe with one question a line."""

import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tasks.chat.conversation import Conversation
from tasks.common.terminal import escape_control_characters

HEADER = 3  # lines of the screen beside the columns


class Screen(Protocol):
    """A person at a terminal, or a script."""

    interactive: bool  # whether somebody is there to type something else after an error

    def read_questions(self) -> Iterator[str]:
        """What is typed, line by line."""
        ...

    def show(self, conversations: Sequence[Conversation], question: str) -> None:
        """Ask all models and show their answers while they are drawn."""
        ...

    def say(self, note: str) -> None:
        """Show a remark that is no answer."""
        ...


class Pipe:
    """One question a line from standard input, answers on standard output, remarks on standard error."""

    interactive = False

    def read_questions(self) -> Iterator[str]:
        """The lines of standard input."""
        yield from sys.stdin

    def show(self, conversations: Sequence[Conversation], question: str) -> None:
        """One answer after the other; with several models each begins with the model's name."""
        drawn = [conversation.ask(question) for conversation in conversations]
        for conversation, answer in zip(conversations, drawn, strict=True):
            if len(conversations) > 1:
                print(f"{conversation.name}: ", end="")
            _print_growing_answer(answer)
            for note in conversation.notes:
                self.say(f"{conversation.name}: {note}")

    def say(self, note: str) -> None:
        """On standard error, so that standard output has answers alone."""
        print(f"posttrain: {escape_control_characters(note)}", file=sys.stderr, flush=True)


class Terminal:
    """A person who types; two models answer in two columns."""

    interactive = True

    def __init__(self) -> None:
        with suppress(ImportError):
            import readline  # noqa: F401  # gives `input` line editing and the lines typed before
        self.console = Console(highlight=False)

    def read_questions(self) -> Iterator[str]:
        """The lines typed, until Ctrl-D."""
        while True:
            try:
                line = input("\n> ")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                self.say("Ctrl-D or /quit leaves")
                continue
            yield line

    def show(self, conversations: Sequence[Conversation], question: str) -> None:
        """The answers as they are drawn, side by side if there are several; Ctrl-C ends them all."""
        try:
            with ExitStack() as stack:
                stack.enter_context(_disable_terminal_echo())
                drawn = [stack.enter_context(closing(conversation.ask(question))) for conversation in conversations]
                if len(drawn) == 1:
                    _print_growing_answer(drawn[0])
                else:
                    self._show_answer_columns(conversations, drawn)
        except KeyboardInterrupt:
            self.say("stopped")
        for conversation in conversations:
            for note in conversation.notes:
                self.say(f"{conversation.name}: {note}" if len(conversations) > 1 else note)

    def say(self, note: str) -> None:
        """In dim letters; a short remark in brackets, since colours may be off."""
        self.console.print(
            Text(escape_control_characters(note) if "\n" in note else f"({escape_control_characters(note)})", "dim")
        )

    def _show_answer_columns(self, conversations: Sequence[Conversation], drawn: Sequence[Iterator[str]]) -> None:
        """Draw from all answers in turn; while they are drawn, the screen shows as much of their ends as fits."""
        texts = [""] * len(drawn)
        going = [*range(len(drawn))]

        def table(lines: int | None) -> RenderableType:
            width = self.console.width // len(drawn) - 2
            grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
            for _ in drawn:
                grid.add_column(ratio=1)
            grid.add_row(*(Text(conversation.name, "bold") for conversation in conversations))
            wrapped = [Text(text).wrap(self.console, width) for text in texts]
            grid.add_row(*(Text("\n").join(part[-lines:] if lines else part) for part in wrapped))
            return grid

        with Live(console=self.console, refresh_per_second=10) as live:
            try:
                while going:
                    for column in [*going]:
                        text = next(drawn[column], None)
                        if text is None:
                            going.remove(column)
                        else:
                            texts[column] = escape_control_characters(text)
                    live.update(table(max(self.console.height - HEADER, 1)))
            finally:
                live.update(table(None))


@contextmanager
def _disable_terminal_echo() -> Iterator[None]:
    """What is typed while an answer is shown stands in the next line, not in the answer."""
    before = termios.tcgetattr(sys.stdin)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _print_growing_answer(answer: Iterator[str]) -> None:
    """Print an answer as it grows, and the end of its last line."""
    before = 0
    try:
        for text in answer:
            print(escape_control_characters(text[before:]), end="", flush=True)
            before = len(text)
    finally:
        print(flush=True)

"""What others wrote, shown as text: a terminal's control characters in it are written out, so that they do nothing."""

import unicodedata

LONGEST = 2000  # characters of a message
JOINERS = "\u200c\u200d"  # characters of format that scripts and emojis are made with


def escape_control_characters(text: str) -> str:
    r"""The text without power over a terminal: ESC becomes `\x1b`. Line ends, tabs and all spaces stay."""

    def harmless(char: str) -> bool:
        return char.isprintable() or char in "\n\t" or char in JOINERS or unicodedata.category(char) == "Zs"

    return "".join(char if harmless(char) else char.encode("unicode_escape").decode() for char in text)


def format_in_one_line(text: str) -> str:
    """The same, with spaces for line ends."""
    return escape_control_characters(" ".join(text.splitlines()))


def message(text: str) -> str:
    """The same, without its end where it is longer than a message may be."""
    line = format_in_one_line(text[:LONGEST])
    return line if max(len(text), len(line)) <= LONGEST else f"{line[: LONGEST - 3]}..."

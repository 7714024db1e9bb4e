"""Which files can be hashed as they are read.

DVC follows links to files, goes into no linked folder, opens whatever else it finds, and reads a pipe or a device
without end.
"""

import os
import stat
from pathlib import Path

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

LONGEST = 200  # characters of a path in a message


def find_hashing_fault(path: str, within: bool) -> str:
    """Why a file or folder cannot be hashed as it is read, in words; empty where it can.

    `within` says that it was met on a walk: a link to a folder is refused there, and followed where it is the walk's
    beginning.
    """
    try:
        path.encode()
        mode = os.stat(path).st_mode
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    except OSError as error:
        link = _describe_link(path)
        return f"{link}, which leads nowhere" if link else f"it cannot be read ({error.strerror})"
    if stat.S_ISDIR(mode):
        if within and (link := _describe_link(path)):
            return (
                f"{link}, a folder, whose files are not hashed; make it a folder of links to the files (cp "
                "-rs), or a copy"
            )
        readable = os.access(path, os.R_OK | os.X_OK)
    elif stat.S_ISREG(mode):
        readable = os.access(path, os.R_OK)
    else:
        kind = f"{KINDS.get(stat.S_IFMT(mode), 'a special file')}; expected files and folders"
        return f"{link}, {kind}" if (link := _describe_link(path)) else kind
    return "" if readable else "it cannot be read (Permission denied)"


def make_folder(root: Path, within: Path) -> None:
    """Make a folder of the repository; FileNotFoundError where it is no longer at `root`: who renames it wants no
    second one there.
    """
    os.stat(root)
    (root / within).mkdir(parents=True, exist_ok=True)


def format_relative_path(path: str, root: str) -> str:
    """A path in a message: relative to `root` where it lies in there, without power over a terminal."""
    return _format_printable(path.removeprefix(f"{root}{os.sep}"))


def _describe_link(path: str) -> str:
    return f"a link to {_format_printable(os.readlink(path))}" if os.path.islink(path) else ""


def _format_printable(text: str) -> str:
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}...{text[-LONGEST // 2 :]}"

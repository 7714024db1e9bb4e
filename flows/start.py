"""The command `posttrain` from its first moment: where nothing has changed, it says so before anything else is
imported.
"""

import os
import sys
import time

from flows import no_change_check


def main() -> None:
    """Say that nothing has changed, or run the command line."""
    ensure_utf8_or_restart()
    text = no_change_check.find_remembered_output(sys.argv[1:], time.monotonic())
    if text is None:
        from flows import cli

        cli.main()
    else:
        sys.stdout.write(text)


def ensure_utf8_or_restart() -> None:
    """Print a question mark for a letter that the terminal does not have, and read and write every file as UTF-8.

    Where the locale has another encoding, the process starts anew in Python's UTF-8 mode, as its children do.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    utf8 = sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8"
    if not utf8 and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.environ.setdefault("PYTHONIOENCODING", f"{sys.stdout.encoding}:replace")
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    main()

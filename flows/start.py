"""The command `posttrain` from its first moment: where nothing has changed, it says so before anything else is imported."""

import sys
import time

from flows import unchanged


def main() -> None:
    """Say that nothing has changed, or run the command line."""
    told = unchanged.said(sys.argv[1:], time.monotonic())
    if told is None:
        from flows import cli

        cli.main()
    else:
        sys.stdout.write(told)


if __name__ == "__main__":
    main()

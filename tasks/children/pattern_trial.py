"""The process in which regular expressions of strangers are tried; a script that the kernel ends where they take too
long.
"""

import json
import re
import resource
import sys


def main(seconds: int, memory: int) -> None:
    """Match each expression of standard input with each text; print the number of each, and after it what is wrong, and
    stop there.
    """
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for number, pattern in enumerate(request["expressions"]):
        print(f"\n{number}", end="", flush=True)
        try:
            compiled = re.compile(pattern)
            for text in request["texts"]:
                compiled.fullmatch(text)
                compiled.match(text)
        except (re.error, RecursionError, OverflowError) as error:
            print("", " ".join(str(error).split())[:100], end="")
            sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

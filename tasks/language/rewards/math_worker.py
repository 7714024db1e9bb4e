"""The process in which math-verify judges one answer at a time; run as a script, and ended by the kernel if it takes
too long.

Answers come from a policy that is trained to be rewarded: `9**9**9**9` or a million brackets would hang the run. So
each judgement has a limit of processor time (a busy machine changes no verdict) and the process one of memory. Neither
torch nor the stage's own module is imported here, which makes a worker ready in a second and cheap to lose.
"""

import json
import os
import resource
import signal
import sys
from functools import lru_cache
from typing import Any

MEMORY_BYTES = 1 << 30
NEAR = 2e-5  # of the reference: math-verify rounds at the sixth decimal, where 5e-9 and 7e-9 are both nothing
READY = "ready"
UNKNOWN = "unknown"
KNOWN = "known"
RIGHT = "right"
WRONG = "wrong"


@lru_cache(maxsize=256)
def parse_gold_expressions(gold: str) -> list[object]:
    """What math-verify reads in the reference answer: sympy objects, none where it cannot read it."""
    from math_verify import parse

    expressions: list[object] = parse(gold, fallback_mode="no_fallback", parsing_timeout=None)
    return expressions


def is_answer_equal_to_gold(gold: str, answer: str, near: bool = False) -> bool:
    """True when math-verify holds `answer`, a text with the answer in it, to equal the reference.

    With `near` numbers have to agree to five digits too, however small they are (`NEAR`).
    """
    from math_verify import parse, verify

    # Its own time-outs are off (None): they are alarms that work in a main thread only.
    references = parse_gold_expressions(gold)
    answers = parse(answer, parsing_timeout=None)
    if not verify(references, answers, timeout_seconds=None):
        return False
    return not near or not (references and answers) or is_near_or_not_numeric(references[0], answers[0])


def is_near_or_not_numeric(reference: Any, answer: Any) -> bool:
    """False for two numbers, not 0, that differ by more than `NEAR` of the reference; True for all else."""
    if not all(getattr(expression, "is_number", False) and expression.is_finite for expression in (reference, answer)):
        return True
    if reference.is_zero:
        return True
    return bool(abs((reference - answer).evalf()) <= NEAR * abs(reference.evalf()))


def main(seconds: float) -> None:
    """Answer each line `[gold, answer, near]` of standard input by `unknown`, or by `known` and then `right` or
    `wrong`.
    """
    import math_verify  # noqa: F401  # before it is ready: a worker that cannot import it must not judge anything wrong

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes standard input
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    print(READY, file=replies)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # the parsers complain about every malformed answer
        os.dup2(nowhere, stream)
    for line in sys.stdin:
        gold, answer, near = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process, in the midst of C code too
        print(KNOWN if parse_gold_expressions(gold) else UNKNOWN, file=replies)
        if parse_gold_expressions(gold):
            signal.setitimer(signal.ITIMER_PROF, seconds)
            print(RIGHT if is_answer_equal_to_gold(gold, answer, near) else WRONG, file=replies)
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main(float(sys.argv[1]))

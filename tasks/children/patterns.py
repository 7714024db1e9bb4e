"""Regular expressions that somebody else wrote, tried in a process with limits of time and memory before anything here
matches by them.

A backtracking matcher may take for ever over a short name: `(.+)+!` doubles its time with each letter. What has neither
repetitions nor groups takes no time worth a process, and is not tried.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping

from tasks.children import pattern_trial

# of processor time and bytes, for all expressions of one source together
SECONDS = 5
MEMORY = 2**29
LONGEST = 1000  # characters of an expression that counts as simple
SIMPLE = re.compile(r"[^*+?{()\[]*")


def find_pattern_fault(expressions: Mapping[str, Iterable[str]], forms: Mapping[str, str], texts: Iterable[str]) -> str:
    """What is wrong with the first expression that cannot be matched with all texts within the limits, after its key;
    empty where all can.

    `forms` has by key what the expression is a part of, with {} in its place.
    """
    hard = [
        (key, expression)
        for key, several in expressions.items()
        for expression in several
        if not is_simple_pattern(expression)
    ]
    if not hard:
        return ""
    request = json.dumps(
        {"expressions": [forms[key].replace("{}", expression) for key, expression in hard], "texts": [*texts]}
    )
    command = [sys.executable, "-I", "-S", pattern_trial.__file__, str(SECONDS), str(MEMORY)]
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, check=False, timeout=60 + 20 * SECONDS
        )
    except subprocess.TimeoutExpired:  # on a machine that gives it no processor
        return f"{hard[0][0]}: its regular expressions could not be tried"
    if done.returncode == 0:
        return ""
    number, _, why = done.stdout.rpartition("\n")[2].partition(" ")
    key, pattern = hard[int(number or 0)]
    shown = pattern if len(pattern) <= 60 else f"{pattern[:57]}..."
    limits = f"takes more than {SECONDS} s to match, or {MEMORY >> 20} MiB"
    return f"{key}: {shown!r} {f'is no regular expression ({why})' if why else limits}"


def is_simple_pattern(pattern: str) -> bool:
    """Whether matching takes no longer than reading both."""
    return len(pattern) <= LONGEST and SIMPLE.fullmatch(pattern) is not None

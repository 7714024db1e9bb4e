"""The judges of answers take time linear in the answer's length, whatever the answer says."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rubric_zoo import ANSWER, HOSTILE, NATURAL, QUESTION, SOLUTION
from tasks.language.rewards import equations
from tasks.language.rewards.rubric import score_response
from tasks.language.rewards.verifier import judge_number_answer

ROOT = Path(__file__).parent.parent.parent
ZOO = NATURAL | HOSTILE
JUDGE = """
import resource, sys
from benchmarks.rubric_zoo import ANSWER, HOSTILE, NATURAL, QUESTION, SOLUTION
from tasks.language.rewards.rubric import score_response
from tasks.language.rewards.verifier import judge_number_answer

length, seconds = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
for name, make in (NATURAL | HOSTILE).items():
    text = make(length)
    assert abs(len(text) - length) < 10, name
    print(name, flush=True)
    score_response(QUESTION, SOLUTION, ANSWER, text, True)
    judge_number_answer(ANSWER, text)
"""


def judged(length, seconds):
    """The kinds of answers that were begun before the kernel ended the process, and the exit status."""
    command = [sys.executable, "-c", JUDGE, str(length), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines(), done.returncode


def test_long_answers_are_judged():
    """All kinds, 10,000 characters each; with patterns that read a stretch twice the fifth kind does not finish in
    time.
    """
    assert judged(10_000, 12) == (list(ZOO), 0)


@pytest.mark.slow
def test_very_long_answers_are_judged():
    """At 100,000 characters linear judges take seconds in all, quadratic ones would take hours."""
    assert judged(100_000, 120) == (list(ZOO), 0)


def calls(text):
    """The number of function calls to judge an answer, which is the same on every machine."""
    found = 0

    def count(*_):
        nonlocal found
        found += 1

    equations._parse_line_equations.cache_clear()
    sys.setprofile(count)
    try:
        score_response(QUESTION, SOLUTION, ANSWER, text, True)
        judge_number_answer(ANSWER, text)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("kind", ZOO)
def test_four_times_the_text_takes_at_most_four_times_the_calls(kind):
    score_response(QUESTION, SOLUTION, ANSWER, "", True)  # fills the cache of the reference
    short, long = ZOO[kind](1_000), ZOO[kind](4_000)
    assert calls(long) <= 4 * calls(short) + 300

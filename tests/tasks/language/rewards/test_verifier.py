import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.rewards import math_worker
from tasks.language.rewards.answers import find_final_answer_number, strip_number_wrapping
from tasks.language.rewards.math_worker import is_answer_equal_to_gold
from tasks.language.rewards.numerals import is_same_number
from tasks.language.rewards.verifier import (
    Verifier,
    VerifierWorker,
    format_boxed_answer,
    judge_number_answer,
    judge_without_algebra,
)
from tests import repository
from tests.tasks import forks
from tests.tasks.language.rewards.math_in_process import verifier_in_process

DATA = Path(__file__).parents[5] / "shared" / "data"
HALF = ("\\frac{1}{2}", "so \\boxed{0.5}")


@pytest.fixture(scope="module")
def verifier():
    with verifier_in_process() as judge:
        yield judge


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("42", "14 + 7 = 21\n21 * 2 = 42\n#### 42", 1),
        ("42", "14 + 7 = 21\n21 * 2 = 42\n#### 24", 0),
        ("42", "the answer is 42.", 1),
        ("42", "#### 42\n####", 1),
        ("42", "#### 42 or 43\nso it is\n#### 43", 0),
        ("60", "The average speed is 60 km/h because speed equals distance divided by time.", 1),
        ("7", "14 / 2 = 7", 1),
        ("1000", "\\boxed{\\$1{,}000}", 1),
        ("1,000", "It is $\\boxed{1000.}$", 1),
        ("50", "\\boxed{50\\%}", 1),
        ("7", "#### 7\nno, \\boxed{8}", 0),
        ("7", "\\boxed{7}\n#### 9", 0),
        ("9", "\\boxed{7}\n#### 9", 1),
        ("42", "14 + 7 = 21\n21 * 2 = 42\n#### pens", 0),
        ("42", "", 0),
        ("42", "I do not know", 0),
        ("025", "25", 1),
        ("\\$32,\\!348", "\\boxed{32348}", 1),
        ("$7$", "#### $7$.", 1),
        ("3e8", "\\boxed{3 \\times 10^8}", 1),
        ("3e8", "it is 300 000 000 m", 1),
        ("3e8", "\\boxed{3 \\times 10^9}", 0),
        ("1e-5", "#### 0.00001", 1),
        ("1000", "The answer is 1e3.", 1),
        ("3", "The answer is 1e3.", 0),
        ("567", "The answer is 1 234 567", 0),
        ("0", "\\boxed{1\u202f000}", 0),
        ("-5", "It is \u22125.", 1),
        ("5", "It is \u22125.", 0),
        ("3.14", "\\boxed{3{,}14}", 1),
        ("5.3e-9", "The answer is $5.3e-8$.", 0),
        ("1000", "The answer is $1\\,000$.", 1),
        ("0", "The answer is $1\\,000$.", 0),
        ("1000", "#### **1,000**", 1),
        ("1000", "\\boxed{\\mathrm{1e3}}", 1),
        ("5", "\\boxed{\u2212\u00a05}", 0),
        ("-5", "\\boxed{-\\,5}", 1),
        ("5", "#### - 5 pens", 0),
        ("-5", "#### \u2212 5", 1),
        ("5", "so x = - 5", 0),
        ("5", "\\boxed{\u200b5\\ }", 1),
    ],
)
def test_plain_numbers(gold, response, right):
    assert judge_number_answer(gold, response) == right


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("0.5", "\\boxed{\\frac{1}{2}}", 1),
        ("0.5", "#### 1/2", 1),
        ("0.5", "so it must be 1/2", 1),
        ("2", "so it must be 1/2", 0),
        ("2", "#### \\sqrt{4}", 1),
        ("4", "#### \\sqrt{4}", 0),
        ("8", "#### 2^3", 1),
        ("7", "#### 3 + 4 = 7", 1),
        ("3", "#### 3 + 4 = 7", 0),
        ("7", "\\boxed{7 \\text{ dollars}}", 1),
        ("7", "#### 7 or 8", 0),  # naming several does not pay
        ("8", "#### 7 or 8", 0),
        ("8", "\\boxed{6, 7, 8}", 0),
        ("7", "\\boxed{7x}", 0),
        ("3e8", "\\boxed{\\SI{3e8}{m}}", 1),
        ("3e8", "\\boxed{\\num{3e9}}", 0),
        ("3", "\\boxed{3~\\mathrm{m/s}}", 1),
        ("3", "\\boxed{\u22483.0}", 1),
        ("7", "\\boxed{7 + x}", 0),
        ("3e8", "\\boxed{3 e \\cdot 8}", 0),
        ("3e8", "\\boxed{3 \\times 10^{8} \\text{ m/s}}", 1),
        ("5.3e-9", "\\boxed{5.3 \\times 10^{-9} \\mathrm{~m}}", 1),
        ("5.3e-9", "\\boxed{5.4 \\times 10^{-9} \\mathrm{~m}}", 0),  # both nothing at math-verify's sixth decimal
        ("5.3e-9", "\\boxed{\\frac{53}{10^{10}}}", 1),
        ("1.5", "\\boxed{1 1/2}", 1),
        ("1.5", "so it is 1\u00bd", 1),
        ("1", "so it is 1\u00bd", 0),
        ("0.002", "\\boxed{2e - 3}", 0),
        ("12345", "\\boxed{1 234, 5}", 0),
        ("\\frac{1}{2}", "\\boxed{0.5}", 1),
        ("\\frac{1}{2}", "\\boxed{\\frac{2}{4}}", 1),
        ("\\frac{1}{2}", "\\boxed{\\frac{1}{3}}", 0),
        ("\\frac{1}{2}", "The answer is $\\frac12$.", 1),
        ("\\frac{1}{2}", "\\boxed{\\frac{1}{2}", 1),  # cut off after the answer
        ("x^2 + 2x + 1", "\\boxed{(x+1)^2}", 1),
        ("x^2 + 2x + 1", "\\boxed{(x-1)^2}", 0),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "\\boxed{(3, \\pi/2)}", 1),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "\\boxed{(\\pi/2, 3)}", 0),
        ("\\text{Evelyn}", "\\boxed{\\text{Evelyn}}", 1),
        ("x = 5", "\\boxed{5}", 1),
        ("2x + 3 = 5", "\\boxed{5}", 0),  # the reference comes first: the other way round this is right
        ("5", "\\boxed{2x + 3 = 5}", 1),
        ("(0,1]", "\\boxed{(0, 1]}", 1),
        ("(0,1]", "\\boxed{[0, 1]}", 0),
        ("(-\\infty,3)\\cup(5,\\infty)", "The answer is $(-\\infty, 3) \\cup (5, \\infty)$.", 1),
        ("\\{1,2,3\\}", "\\boxed{\\{3,2,1\\}}", 1),
        ("\\{1,2,3\\}", "\\boxed{\\{1,2\\}}", 0),
        ("1,2", "\\boxed{2, 1}", 1),
        ("1,2", "\\boxed{1}", 0),
        ("1\\frac{1}{2}", "\\boxed{3/2}", 1),
        ("\\text{even}", "\\boxed{even}", 1),
        ("\\text{even}", "\\boxed{\\text{odd}}", 0),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\boxed{\\begin{pmatrix}1\\\\2\\end{pmatrix}}", 1),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\boxed{\\begin{pmatrix}2\\\\1\\end{pmatrix}}", 0),
        ("2\\sqrt{3}", "#### \\sqrt{12}", 1),
        ("3+2i", "\\boxed{2i + 3}", 1),
        ("1 \\pm \\sqrt{2}", "\\boxed{1 + \\sqrt2, 1 - \\sqrt2}", 1),
        ("90^\\circ", "\\boxed{90}", 1),
        ("90^\\circ", "The angle is 90\u00b0.", 1),
        ("\\text{all of them}", "\\boxed{\\text{all of}~\\mathrm{them}}", 1),
        ("\\text{all of them}", "\\boxed{\\text{all of us}}", 0),
        ("2e - 3", "\\boxed{2e-3}", 1),  # beside Euler's number it is a difference
        ("1,10,100", "\\boxed{100, 10, 1}", 1),
        ("\\frac{1}{2000}", "\\boxed{5e-4}", 1),
        ("-1./3", "\\boxed{-\\frac13}", 1),
        ("\\sqrt{2} \\times 10^{-20}", "\\boxed{1.41421356e-20}", 1),
        ("\\sqrt{2} \\times 10^{-20}", "\\boxed{1.5e-20}", 0),
    ],
)
def test_algebra(verifier, gold, response, right):
    assert judge_number_answer(gold, response) is None
    assert verifier([gold], [response]) == [right]


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("\\text{4:30 p.m.}", "\\boxed{4:30 \\text{ p.m.}}", 1),
        ("4:30 \\text{ p.m.}", "\\boxed{\\text{4:30 p.m.}}", 1),
        ("4:30 \\text{ p.m.}", "#### 4:30 PM", 1),
        ("4\\!:\\!30~\\mathrm{pm}", "The bus leaves at 3 p.m. and comes at 4:30 p.m.", 1),
        ("\\text{4:30 p.m.}", "\\boxed{16:30}", 1),
        ("4:30 \\text{ p.m.}", "\\boxed{4:30 \\text{ a.m.}}", 0),
        ("4:30 \\text{ p.m.}", "\\boxed{2:15 \\text{ p.m.}}", 0),  # equal as ratios
        ("4:30 \\text{ p.m.}", "\\boxed{4:30}", 0),
        ("\\text{4:30 p.m.}", "#### 4:30 p.m. or 5:30 p.m.", 0),
        ("12 a.m.", "\\boxed{0:00}", 1),
        ("12:05 a.m.", "\\boxed{00:05}", 1),
        ("11{:}30 p.m.", "\\boxed{23:30}", 1),
        ("12:05 pm", "\\boxed{12:05 \\text{ p.m.}}", 1),
    ],
)
def test_times_of_day(gold, response, right):
    assert judge_without_algebra(gold, response) == right


@pytest.mark.parametrize("gold", ["", "garbage (", "!!!", "\\frac{"])
def test_a_reference_that_cannot_be_read_is_unknown(verifier, gold):
    assert math.isnan(verifier([gold], ["\\boxed{5}"])[0])
    assert math.isnan(verifier([gold], [f"\\boxed{{{gold}}}"])[0])


whole = st.integers(-20_000, 20_000)
decimals = st.integers(0, 5)


@st.composite
def pairs(draw):
    """Two written numbers in common forms; they are equal in half of the cases."""
    value, places = draw(whole), draw(decimals)
    other = draw(st.one_of(st.just(value), whole))

    def written(number, further):
        text = f"{number / 10**places:{draw(st.sampled_from(['', ',']))}.{places + further}f}"
        sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text)
        return sign + draw(st.sampled_from(["", "$"])) + digits + draw(st.sampled_from(["", "%"]))

    return written(value, 0), written(other, draw(st.integers(0, 2)) if places else 0)


@given(pairs())
@settings(max_examples=40)
def test_plain_numbers_as_math_verify_judges_them(pair):
    """math-verify is the oracle.

    By design `is_same_number` reads 50% as 50, so math-verify gets both without percent signs.
    """
    gold, answer = pair
    expected = is_answer_equal_to_gold(
        format_boxed_answer(strip_number_wrapping(gold)), format_boxed_answer(strip_number_wrapping(answer))
    )
    for response in (f"so\n#### {answer}", f"\\boxed{{{answer}}}", f"The answer is {answer}."):
        assert judge_number_answer(gold, response) == expected


def test_where_plain_numbers_are_judged_otherwise_than_by_math_verify():
    """math-verify rounds decimals to six places, and reads 50% in plain text as 1/2; ours compares exact fractions."""
    assert is_answer_equal_to_gold("$0.5$", "$0.50000001$")
    assert judge_number_answer("0.5", "#### 0.50000001") == 0
    assert is_answer_equal_to_gold("$0.5$", "50%")
    assert judge_number_answer("0.5", "#### 50%") == 0
    assert judge_number_answer("50", "#### 50%") == 1


HOSTILE = [
    "\\boxed{9^{9^{9^{9}}}}",
    "\\boxed{" + "(" * 100_000 + "}",
]
MORE_HOSTILE = [
    "#### 9**9**9**9",
    "\\boxed{100000000!}",
    "\\boxed{" + "9" * 100_000 + "}",
    "9" * 100_000,
    "(" * 100_000,
    "$" * 100_000,
    "\\boxed{" * 20_000 + "}" * 20_000,
    "\\boxed{" + "\\frac{1}{" * 3_000 + "2" + "}" * 3_000 + "}",
    "\\boxed{" + "1+" * 50_000 + "1}",
    "#### " + "1/" * 50_000 + "1",
    "####" * 30_000,
    "$\\frac{" * 20_000,
    "\\boxed{\\sum_{k=1}^{10^{12}} k^k}",
    "\\boxed{\\int e^{x^{x^x}} dx}",
    "\\boxed{\ud800\x00}",
]


@pytest.mark.slow
@pytest.mark.parametrize("gold", ["5", "\\frac{1}{2}"])
def test_more_hostile_answers(gold):
    with Verifier(workers=2, seconds=1) as judge:
        answers = HOSTILE + MORE_HOSTILE
        assert judge([gold] * len(answers), answers) == [0] * len(answers)
        assert judge(*zip(HALF, strict=True)) == [1]


def test_processes_start_when_needed_are_replaced_and_end_with_the_block():
    """A hostile answer is wrong and ends its process; the pool goes on, off the main thread too."""
    known = set(psutil.Process().children())

    def started():
        return set(psutil.Process().children()) - known

    with Verifier(workers=2, seconds=1) as judge:
        assert judge(["42", "42"], ["#### 42", "#### 41"]) == [1, 0]
        assert not started()
        assert judge([HALF[0], "1", HALF[0]], [HALF[1], "#### 1", HALF[1]]) == [1, 1, 1]
        (worker,) = started()  # equal pairs are judged once
        assert worker.rlimit(psutil.RLIMIT_AS) == (math_worker.MEMORY_BYTES,) * 2
        assert judge([HALF[0]], [HOSTILE[0]]) == [0]
        assert judge.timed_out([HALF[0], HALF[0]], [HOSTILE[0], HALF[1]]) == [True, False]
        assert not started()
        verdicts = []
        thread = threading.Thread(target=lambda: verdicts.extend(judge(*zip(HALF, strict=True))))
        thread.start()
        thread.join()
        assert verdicts == [1]
        (last,) = started()
        assert judge([HALF[0]], ["\\boxed{\\frac{1}{3}}"]) == [0]
        assert math.isnan(judge(["garbage ("], ["\\boxed{5}"])[0])
        assert judge.timed_out([HALF[0], "garbage ("], ["\\boxed{\\frac{1}{3}}", "\\boxed{5}"]) == [False, False]
        assert started() == {last}
        last.kill()
        last.wait()
        assert math.isnan(judge([HALF[0]], ["\\boxed{\\frac{1}{5}}"])[0]), (
            "what the machine has ended nobody has judged"
        )
        assert judge([HALF[0]], ["\\boxed{\\frac{1}{7}}"]) == [0]
    assert not any(process.is_running() for process in (worker, last))


def test_a_reference_that_hangs_is_unknown_and_ends_its_process(tmp_path, monkeypatch):
    """In a child of this process, which has imported all that a worker needs, and more than its memory."""
    asked, replies = tmp_path / "asked", tmp_path / "replies"
    asked.write_text(json.dumps([format_boxed_answer("(" * 100_000), "\\boxed{5}", True]) + "\n")

    def work():
        monkeypatch.setattr(math_worker.resource, "setrlimit", lambda *_: None)
        os.dup2(os.open(replies, os.O_WRONLY | os.O_CREAT), 1)
        sys.stdin = asked.open()
        math_worker.main(0.3)

    assert forks.ended(forks.start(work)) == -signal.SIGPROF
    assert replies.read_text().split() == [math_worker.READY]


def test_a_reply_that_is_none_is_the_last_of_its_process(monkeypatch, tmp_path):
    """Or else what it says next would be taken for the verdict on another answer."""
    script = tmp_path / "worker.py"
    monkeypatch.setattr(math_worker, "__file__", str(script))
    for first, verdict in (("a warning", math.nan), ("known\nx" + "x" * 10**6, 0.0)):
        script.write_text(
            f"print('ready', flush=True)\nwhile input(): print({first!r}, 'known', 'right', sep='\\n', flush=True)"
        )
        worker = VerifierWorker(1.0)
        assert worker.judge("1", "1") == pytest.approx(verdict, nan_ok=True)
        assert not worker.alive()
        worker.close()


def test_a_process_that_ends_is_unknown_before_it_has_read_the_reference_and_wrong_after_it(monkeypatch, tmp_path):
    script = tmp_path / "worker.py"
    monkeypatch.setattr(math_worker, "__file__", str(script))
    for replies, verdict in ((["ready"], math.nan), (["ready", "known"], 0.0)):
        script.write_text(f"print({replies[0]!r}, flush=True); input(); print(*{replies[1:]!r})")
        worker = VerifierWorker(1.0)
        assert worker.judge("1", "2") == pytest.approx(verdict, nan_ok=True)
        assert not worker.alive()
        worker.close()


def test_a_busy_worker_does_not_outlive_a_killed_parent():
    code = (
        "import os, threading; from tasks.language.rewards.verifier import VerifierWorker\nworker = "
        "VerifierWorker(1.0)\n"
        "print(worker.process.pid, flush=True); worker.judge('$1$', '$9^{9^{9^{9}}}$')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    forks.wait_for_end([worker])


def test_a_worker_that_does_not_start_is_an_error_and_judges_nothing(monkeypatch, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text("raise SystemExit(3)")
    monkeypatch.setattr(math_worker, "__file__", str(script))
    with pytest.raises(RuntimeError, match=r"does not start \(exit 3\)"):
        VerifierWorker(1.0)
    with Verifier(workers=1) as judge, pytest.raises(RuntimeError, match="does not start"):
        judge(*zip(HALF, strict=True))


@pytest.mark.skipif(not DATA.exists(), reason=repository.needs("data"))
def test_gsm8ks_own_answers():
    """All 1,319 answers, by fractions alone: each is right for its own problem, and for the next problem only if the
    answers are equal.
    """
    answers = [json.loads(line)["answer"] for line in (DATA / "gsm8k" / "test.jsonl").read_text().splitlines()]
    golds = [answer.rpartition("#### ")[2] for answer in answers]
    assert [judge_number_answer(*pair) for pair in zip(golds, answers, strict=True)] == [1.0] * 1319
    shifted = answers[1:] + answers[:1]
    expected = [
        float(is_same_number(gold, find_final_answer_number(text))) for gold, text in zip(golds, shifted, strict=True)
    ]
    assert [judge_number_answer(*pair) for pair in zip(golds, shifted, strict=True)] == expected
    assert sum(expected) < 30


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason=repository.needs("data"))
def test_math500s_own_solutions():
    rows = [json.loads(line) for line in (DATA / "math500" / "test.jsonl").read_text().splitlines()]
    golds, solutions = [row["answer"] for row in rows], [row["solution"] for row in rows]
    with Verifier(workers=2) as judge:
        assert judge(golds, solutions) == [1.0] * 500
        assert judge(golds, [f"\\boxed{{{gold}}}" for gold in golds]) == [1.0] * 500
        assert judge(golds, [f"The answer is ${gold}$." for gold in golds]) == [1.0] * 500
        assert sum(judge(golds, solutions[1:] + solutions[:1])) < 10

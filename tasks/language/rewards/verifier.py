"""Whether a response's final answer equals the reference: numbers by exact fractions, letters of choices, all else by
math-verify.

A run judges tens of thousands of answers, nearly all of them numbers, which cost microseconds here. LaTeX, fractions
and expressions go to processes (math_worker.py) that a hostile answer can slow or kill without harm to the run.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from tasks.children.worker_pool import WorkerPool
from tasks.language.rewards import math_worker
from tasks.language.rewards.answers import (
    BOX,
    STYLE,
    find_final_answer_number,
    find_final_clock_time,
    find_marked_answer,
    normalise_answer_text,
    parse_clock_time,
    strip_number_wrapping,
)
from tasks.language.rewards.choices import find_chosen_letter, parse_gold_letter
from tasks.language.rewards.numerals import (
    EULER,
    NUMBER,
    find_numbers,
    is_same_number,
    parse_number_ignoring_percent,
    rewrite_numbers_for_latex,
)

# A text whose number is not its value: LaTeX, powers, roots, fractions. Numbers themselves are looked at as a single
# digit.
ALGEBRA = re.compile(r"[\\^√\u2044\u00bc-\u00be\u2150-\u215e]|\d\s*/\s*[-(\d]")
MOST = 100  # characters of a line of the process that judges


def judge_number_answer(gold: str, response: str) -> float | None:
    """1.0 or 0.0 where reference and final answer are plain numbers, None where algebra has to decide.

    answers.py decides which answer is the final one, as for the rubric and the accuracies. Words may stand beside a
    number on a `####` line; a box has to hold the number alone.
    """
    gold = strip_number_wrapping(gold)
    if parse_number_ignoring_percent(gold) is None:
        return None
    mark = find_marked_answer(response)
    if mark is None:  # the last number, which may be the result of steps on its line
        text = response.rstrip().rpartition("\n")[2].rpartition("=")[2]
    elif len(find_numbers(mark.text)) > 1 or (mark.boxed and parse_number_ignoring_percent(mark.text) is None):
        return None
    else:
        text = mark.text
    if ALGEBRA.search(NUMBER.sub("0", text)):
        return None
    final = find_final_answer_number(response)
    return float(final is not None and is_same_number(gold, final))


def judge_without_algebra(gold: str, response: str) -> float | None:
    """The verdict where no algebra is needed for it, else None; nan where there is no reference."""
    if not gold.strip():
        return math.nan
    if parse_gold_letter(gold):
        return judge_choice_answer(gold, response)
    if (time := parse_clock_time(gold)) is not None:
        return float(find_final_clock_time(response) == time)
    return judge_number_answer(gold, response)


def judge_choice_answer(gold: str, response: str) -> float:
    """1.0 or 0.0 where the reference is a letter, of a question with choices; choices.py decides which letter is the
    answer.
    """
    return float(find_chosen_letter(response) == parse_gold_letter(gold))


def extract_answer_latex(response: str) -> str:
    """The text for math-verify to read: what is marked as the answer, in a box; else the whole response."""
    mark = find_marked_answer(response)
    return response if mark is None else format_boxed_answer(mark.text)


def format_boxed_answer(answer: str) -> str:
    """The answer in a box, without percent signs: a comment in LaTeX, and 50% is also 50 (as in `is_same_number`)."""
    return f"{BOX}{answer.replace('%', '')}}}"


class VerifierWorker:
    """One process that judges answers, as its parent sees it."""

    def __init__(self, seconds: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", math_worker.__file__, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if not self._await_reply(math_worker.READY):
            self.close()
            raise RuntimeError(f"the process that runs math-verify does not start (exit {self.process.returncode})")

    def judge(self, gold: str, answer: str, near: bool = False) -> float:
        """1.0 or 0.0, nan for a reference that cannot be read, or where the process has ended before; `near` as in
        `is_answer_equal_to_gold`.

        An answer that ends the process is wrong.
        """
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # no reply says it
            self.process.stdin.write(json.dumps([gold, answer, near]) + "\n")
            self.process.stdin.flush()
        if self._await_reply(math_worker.KNOWN, math_worker.UNKNOWN) != math_worker.KNOWN:
            return math.nan
        return float(self._await_reply(math_worker.RIGHT, math_worker.WRONG) == math_worker.RIGHT)

    def alive(self) -> bool:
        """Whether it can judge another one."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.communicate()

    def _await_reply(self, *words: str) -> str:
        """The next reply; empty where it is none of the words, and the process is ended: its next one could answer
        another question.
        """
        assert self.process.stdout is not None
        reply = self.process.stdout.readline(MOST).strip()
        if reply in words:
            return reply
        if reply:
            self.process.kill()
        self.process.wait()  # it has ended, or is about to
        return ""


class Verifier:
    """Judges answers in up to `workers` processes, started when first needed and ended with the `with` block."""

    def __init__(self, workers: int = 2, seconds: float = 3.0) -> None:
        """`seconds` of processor time for one judgement; MATH-500's own solutions take 4 ms on average, 0.3 s at
        most.
        """
        self._pool = WorkerPool(workers, lambda: VerifierWorker(seconds))
        self._ended: set[tuple[str, str]] = set()

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def __call__(self, golds: Sequence[str], responses: Sequence[str]) -> list[float]:
        """For each response 1.0 where its answer is the reference's, else 0.0; nan where the reference is absent or
        cannot be read.
        """
        verdicts: dict[tuple[str, str], float] = {}
        hard = []
        for pair in dict.fromkeys(zip(golds, responses, strict=True)):  # a group's responses often agree
            quick = judge_without_algebra(*pair)
            if quick is None:
                hard.append(pair)
            else:
                verdicts[pair] = quick
        verdicts.update(zip(hard, self._pool.map(self._judged, hard), strict=True))
        return [verdicts[pair] for pair in zip(golds, responses, strict=True)]

    def texts(self, references: Sequence[str], responses: Sequence[str]) -> list[float]:
        """The same where math-verify itself finds the answers in both texts, as it does by default."""
        pairs = list(dict.fromkeys(zip(references, responses, strict=True)))
        verdicts = dict(zip(pairs, self._pool.map(self._judge_raw_texts, pairs), strict=True))
        return [verdicts[pair] for pair in zip(references, responses, strict=True)]

    def timed_out(self, golds: Sequence[str], responses: Sequence[str]) -> list[bool]:
        """Which of the responses that were judged here ended their process: they took too long or broke it, and are
        wrong.
        """
        return [pair in self._ended for pair in zip(golds, responses, strict=True)]

    def _judge_raw_texts(self, worker: VerifierWorker, pair: tuple[str, str]) -> float:
        return self._record_ended_worker(worker, pair, worker.judge(*pair))

    def _judged(self, worker: VerifierWorker, pair: tuple[str, str]) -> float:
        gold, response = pair
        reference = rewrite_numbers_for_latex(strip_number_wrapping(gold))
        answer = rewrite_numbers_for_latex(extract_answer_latex(response), powers_of_e=not EULER.search(reference))
        verdict = self._record_ended_worker(
            worker, pair, worker.judge(format_boxed_answer(reference), answer, near=True)
        )
        return 1.0 if verdict == 0 and is_same_but_for_latex_style(gold, response) else verdict

    def _record_ended_worker(self, worker: VerifierWorker, pair: tuple[str, str], verdict: float) -> float:
        if verdict == 0 and not worker.alive():
            self._ended.add(pair)
        return verdict


def is_same_but_for_latex_style(gold: str, response: str) -> bool:
    """Whether the marked answer is the reference but for the styles that LaTeX sets its words in, such as `\\text{all
    of it}`.
    """
    mark = find_marked_answer(response)
    return (
        mark is not None
        and bool(STYLE.search(gold + mark.text))
        and normalise_answer_text(mark.text) == normalise_answer_text(gold)
    )

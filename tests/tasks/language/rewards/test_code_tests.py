"""The reward for programs: which text is the program, the forms of tests, and what is said of wrong ones."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tasks.common.errors import ConfigError
from tasks.language.rewards import code_lock
from tasks.language.rewards.code_tests import (
    CodeJudge,
    ProgramWorker,
    build_test_job,
    extract_program,
    find_tests_fault,
)
from tests.tasks import forks


@pytest.fixture(scope="module")
def judge():
    with CodeJudge(workers=1, seconds=2) as judge:
        yield judge


@pytest.mark.parametrize(
    ("response", "found"),
    [
        ("x = 1", "x = 1"),
        ("So:\n```python\nx = 1\n```\nDone.", "x = 1"),
        ("```python\nx = 1\n```\nor\n```py\nx = 2\n\ny = 3\n```", "x = 2\n\ny = 3"),
        ("```\nx = 1\n```\nprints\n```text\n1\n```", "x = 1"),
        ("```Python3\nx = 1", "x = 1"),
        ("```text\nx = 1\n```", "```text\nx = 1\n```"),
        ("```text\nx = 1", "```text\nx = 1"),
        ("  ```python\n  x = 1\n  ```", "  x = 1"),
        ("```python\n```", ""),
        ("", ""),
    ],
)
def test_the_last_block_of_python_is_the_program(response, found):
    assert extract_program(response) == found


ADD = "def add(a, b):\n    return a + b"
MBPP = {"test_list": ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"], "test_setup_code": "", "task_id": 3}
PROMPT = (
    "from typing import List\n\ndef twice(x):\n    return 2 * x\n\ndef total(xs: List[int]) -> int:\n    "
    '"""Twice the sum."""\n'
)
CHECK = (
    "METADATA = {}\n\ndef check(candidate):\n    assert candidate([1, 2]) == twice(3)\n    assert candidate([]) == 0\n"
)
HUMAN_EVAL = {"test": CHECK, "entry_point": "total", "canonical_solution": "    return 2 * sum(xs)"}
PAIRS = {"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]}
READS = "import sys\nprint(sum(map(int, sys.stdin.read().split())))"


@pytest.mark.parametrize(
    ("columns", "right", "wrong"),
    [
        (MBPP, ADD, ADD.replace("+", "*")),
        ({"tests": MBPP["test_list"]}, ADD, ADD.replace("a + b", "3")),
        ({"tests": json.dumps(MBPP["test_list"])}, ADD, "add = None"),
        ({**MBPP, "test_setup_code": "import math", "test_list": ["assert math.isclose(half(1), 0.5)"]}, "half = lambda x: x / 2", "half = round"),  # noqa: E501
        ({"test_imports": ["import math as m"], "test_list": ["assert m.isclose(half(1), 0.5)"]}, "half = lambda x: x / 2", "half = round"),  # noqa: E501
        (HUMAN_EVAL, "def total(xs: List[int]) -> int:\n    return 2 * sum(xs)", "def total(xs):\n    return sum(xs)"),
        (HUMAN_EVAL, "def total(xs):\n    return twice(sum(xs))", "def twice(x):\n    return 0\n\ndef total(xs):\n "
                                                                  "   return 0"),
        (PAIRS, READS, READS.replace("sum", "max")),
        (PAIRS, "a = open(0).read().split()\nprint('', int(a[0]) + int(a[1]), '\\n')", "print(3)"),
        ({"input_output": json.dumps(PAIRS)}, READS, ""),
        ({"tests": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}])}, READS, "print(4)"),
        ({"tests": PAIRS}, "def main():\n    print(sum(int(x) for x in (input() + ' ' + input()).split()))\ntry:\n "
                           "   main()\nexcept EOFError:\n    print(3)", "input()"),
    ],
)  # fmt: skip
def test_the_forms_of_tests(judge, columns, right, wrong):
    assert find_tests_fault(columns) is None
    assert judge(
        [build_test_job(PROMPT, columns, text) for text in (f"So\n```python\n{right}\n```", wrong, right)]
    ) == [1, 0, 1]


def test_all_tests_have_to_pass(judge):
    half = {"test_list": [f"assert square({n}) == {n * n}" for n in range(20)]}
    assert judge(
        [build_test_job("", half, text) for text in ("square = lambda n: n * n", "square = lambda n: min(n * n, 300)")]
    ) == [1, 0]
    half = {"inputs": [f"{n}" for n in range(5)], "outputs": [f"{n * n}" for n in range(5)]}
    assert judge(
        [build_test_job("", half, text) for text in ("print(int(input()) ** 2)", "print(min(int(input()) ** 2, 15))")]
    ) == [1, 0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "expected tests as .*; the columns are none"),
        ({"answer": "3"}, "the columns are answer"),
        ({"tests": []}, r"tests: expected a list of assert statements, got \[\]"),
        ({"tests": "assert f(1)"}, "tests: expected a list of assert statements, got 'assert f"),
        ({"test_list": ["assert f(1)", 3]}, "tests: expected a list of assert statements"),
        ({"tests": ["assert f(1)", "assert f("]}, r"tests\[1\]: expected Python code, got 'assert f\('"),
        ({"test": "def check(c): pass"}, "expected tests as"),
        ({"entry_point": "f"}, "test: expected a text that is not blank, got None"),
        ({"entry_point": " ", "test": "def check(c): pass"}, "entry_point: expected a text"),
        ({"entry_point": "f", "test": "assert f(1)"}, "test: expected a function `check`"),
        ({"inputs": ["1"]}, "outputs: expected a list of texts, got None"),
        ({"inputs": ["1", 2], "outputs": ["1", "2"]}, r"inputs\[1\]: expected a text, or its lines, got 2"),
        ({"inputs": ["1", "2"], "outputs": ["1"]}, "outputs: expected one to each of 2 inputs, got 1"),
        ({"input_output": '{"inputs": [[1]], "outputs": [1], "fn_name": "f"}'}, "fn_name: inputs and outputs of a named function"),  # noqa: E501
        ({"tests": [{"input": "1", "output": "2", "testtype": "functional"}]}, "fn_name: inputs and outputs of a named"),  # noqa: E501
        ({"tests": [{"input": "1"}]}, r"outputs\[0\]: expected a text, or its lines, got None"),
        ({"tests": ["import unittest\nclass T(unittest.TestCase):\n    pass"]}, r"tests\[0\]: expected an assert statement or a call"),  # noqa: E501
        ({"tests": ["\x00"]}, r"tests\[0\]: expected Python code"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_tests_is_said_in_a_line(columns, said):
    fault = find_tests_fault(columns)
    assert re.search(said, fault)
    assert "\n" not in fault


def test_equal_jobs_are_run_once_and_processes_end_with_the_block(tmp_path):
    before = set(psutil.Process().children(recursive=True))
    with CodeJudge(workers=2, seconds=2) as judge:
        started = set(psutil.Process().children(recursive=True)) - before
        assert len(started) == 2  # an examiner and its runner
        assert judge([build_test_job("", MBPP, ADD)] * 3) == [1, 1, 1]
        assert set(psutil.Process().children(recursive=True)) - before == started
    forks.wait_for_end(started)


@pytest.mark.parametrize("tests", [{"tests": ["assert f(1)"]}, {"inputs": ["1"], "outputs": ["1"]}])
def test_a_busy_program_does_not_outlive_a_killed_parent(tests):
    code = (
        "import sys, json; from tasks.language.rewards.code_tests import ProgramWorker, build_test_job\n"
        "worker = ProgramWorker(60)\n"
        f"print(worker.process.pid, flush=True); worker.judge(build_test_job('', {tests}, 'while True: pass'))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        examiner = psutil.Process(int(parent.stdout.readline()))
        while len(started := examiner.children(recursive=True)) < 2:
            time.sleep(0.02)
        os.kill(parent.pid, signal.SIGKILL)
    forks.wait_for_end([examiner, *started])


def test_where_there_is_no_lock_nothing_runs(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(ConfigError, match="on Linux on x86_64 and aarch64 only, not on Linux on riscv64"):
        ProgramWorker(1)
    with pytest.raises(ConfigError, match="the reward code"), CodeJudge():
        pass


def test_a_kernel_without_the_lock_runs_nothing(monkeypatch, tmp_path):
    """The worker tries its lock on a program of its own; here on one that gets out of it."""
    script = tmp_path / "open_worker.py"
    script.write_text(
        "from tasks.language.rewards import code_lock, code_program, code_worker\n"
        "code_program.lock_process = lambda seconds: None\ncode_worker.main(2)\n"
    )
    monkeypatch.setattr(
        "tasks.language.rewards.code_tests.ROOT", f"{code_lock.__file__.split('/tasks/')[0]}:{tmp_path}"
    )
    monkeypatch.setattr("tasks.language.rewards.code_worker.__name__", "open_worker")
    with pytest.raises(ConfigError, match="no program can be judged on this machine: its kernel refuses the lock"):
        ProgramWorker(2)

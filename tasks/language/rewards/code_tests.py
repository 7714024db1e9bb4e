"""The reward for programs: 1 where the response's program passes all tests of its problem, else 0.

All or nothing is the standard of reinforcement learning on code: a share would pay for special cases. A problem brings
its tests in one of three forms: a list of assert statements (MBPP), a function `check` and the name it is given
(HumanEval), or inputs with the outputs that the program has to print (APPS, TACO, DeepCoder). Where and how programs
run: code_worker.py and code_lock.py.
"""

import ast
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.children.worker_pool import WorkerPool
from tasks.common.errors import ConfigError
from tasks.language.rewards import code_lock, code_worker

Job = dict[str, Any]
LANGUAGES = ("", "python", "python3", "py")  # of a fence
RUNS = (ast.Assert, ast.Expr, ast.For, ast.While, ast.If, ast.Try, ast.With)  # statements that can fail a test
ROOT = Path(__file__).parents[3]
MOST = 1000  # characters of a line of the process that judges
FORMS = (
    "`tests` or `test_list` (assert statements), `test` and `entry_point` (HumanEval), or `inputs` and "
    "`outputs` (texts)"
)


def extract_program(response: str) -> str:
    """The program in a response: its last fenced block of Python, or without a language; else the whole response.

    A block that is not closed goes on to the end.
    """
    last_block: list[str] | None = None
    block: list[str] | None = None
    python = False
    for line in response.split("\n"):
        if not line.lstrip().startswith("```"):
            if block is not None:
                block.append(line)
        elif block is None:
            block = []
            python = line.strip().strip("`").strip().lower() in LANGUAGES
        else:
            last_block = block if python else last_block
            block = None
    if block is not None and python:
        last_block = block
    return response if last_block is None else "\n".join(last_block)


def has_tests(columns: Mapping[str, Any]) -> bool:
    """Whether a prompt has tests, be they in order or not."""
    return any(columns.get(name) is not None for name in ("tests", "test_list", "test", "inputs", "input_output"))


def build_test_job(question: str, columns: Mapping[str, Any], response: str) -> Job:
    """What code_worker.py judges: the response's program and the tests in `columns`, with which `check` found nothing
    wrong.
    """
    tests = _normalise_test_columns(columns)
    setup = "\n".join([*(tests.get("test_imports") or ()), tests.get("test_setup_code") or ""])
    judged: Job = {"source": extract_program(response), "setup": setup, "entry": None}
    if "inputs" in tests:
        return {
            **judged,
            "pairs": [
                *zip(map(_join_text_lines, tests["inputs"]), map(_join_text_lines, tests["outputs"]), strict=True)
            ],
        }
    if "entry_point" in tests:  # the prompt is the beginning of the program, with its imports and helpers
        return {**judged, "setup": f"{question}\n{setup}", "tests": [tests["test"]], "entry": tests["entry_point"]}
    return {**judged, "tests": tests["tests"]}


def find_tests_fault(columns: Mapping[str, Any]) -> str | None:
    """What is wrong with a problem's tests, in a line: which field, and what was expected; None if nothing is."""
    tests = _normalise_test_columns(columns)
    if "fn_name" in tests:
        return "fn_name: inputs and outputs of a named function are not read; expected assert statements in `tests`"
    if "inputs" in tests or "outputs" in tests:
        return _find_pairs_fault(tests)
    if "entry_point" in tests:
        for name in ("entry_point", "test"):
            if not isinstance(tests.get(name), str) or not tests[name].strip():
                return f"{name}: expected a text that is not blank, got {tests.get(name)!r:.60}"
        return _find_code_fault("test", tests["test"], "check")
    sources = tests.get("tests")
    if sources is None:
        return f"expected tests as {FORMS}; the columns are {', '.join(sorted(map(str, columns))) or 'none'}"
    if (
        not isinstance(sources, list)
        or not sources
        or not all(isinstance(test, str) and test.strip() for test in sources)
    ):
        return f"tests: expected a list of assert statements, got {sources!r:.60}"
    return next(filter(None, (_find_code_fault(f"tests[{index}]", test) for index, test in enumerate(sources))), None)


def _normalise_test_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns under one name each; `input_output` and `tests` may hold inputs and outputs, as JSON too."""
    tests = {name: value for name, value in columns.items() if value is not None}
    if "test_list" in tests:
        tests.setdefault("tests", tests["test_list"])
    for name in ("input_output", "tests"):
        inner = tests.get(name)
        if isinstance(inner, str):
            with suppress(ValueError, RecursionError):
                inner = json.loads(inner)
        if isinstance(inner, list) and inner and all(isinstance(pair, dict) for pair in inner):
            inner = {
                f"{part}s": [pair.get(part) for pair in inner] for part in ("input", "output")
            } | _build_function_tests_mark(inner)
        if isinstance(inner, dict):
            tests.update(inner)
        elif name == "tests" and name in tests:
            tests[name] = inner
    return tests


def _build_function_tests_mark(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """DeepCoder's pairs of an input and an output say whether they are a function's arguments and value."""
    return (
        {"fn_name": None} if any(pair.get("testtype") == "functional" or pair.get("fn_name") for pair in pairs) else {}
    )


def _join_text_lines(lines: Any) -> str:
    """APPS has some inputs and outputs as lists of lines."""
    return lines if isinstance(lines, str) else "\n".join(lines)


def _find_pairs_fault(tests: Mapping[str, Any]) -> str | None:
    for name in ("inputs", "outputs"):
        texts = tests.get(name)
        if not isinstance(texts, list) or not texts:
            return f"{name}: expected a list of texts, got {texts!r:.60}"
        for index, lines in enumerate(texts):
            if not all(isinstance(line, str) for line in (lines if isinstance(lines, list) else [lines])):
                return f"{name}[{index}]: expected a text, or its lines, got {lines!r:.60}"
    if len(tests["inputs"]) != len(tests["outputs"]):
        return f"outputs: expected one to each of {len(tests['inputs'])} inputs, got {len(tests['outputs'])}"
    return None


def _find_code_fault(name: str, source: str, function: str | None = None) -> str | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{name}: expected Python code, got {source!r:.60} ({error})"
    if not function and not any(isinstance(node, RUNS) for node in tree.body):
        return f"{name}: expected an assert statement or a call, since else every program passes, got {source!r:.60}"
    if function and not any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body):
        return f"{name}: expected a function `{function}`, got {source!r:.60}"
    return None


class ProgramWorker:
    """One process that judges programs, as its parent sees it."""

    def __init__(self, seconds: int) -> None:
        if fault := code_lock.find_lock_fault():
            raise ConfigError(f"the reward code: {fault}")
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-P", "-m", code_worker.__name__, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
            text=True,
        )
        if (reply := self._await_reply()) != code_worker.READY:
            self.close()
            raise ConfigError(
                "the reward code: no program can be judged on this machine: "
                f"{reply or f'exit {self.process.returncode}'}"
            )

    def judge(self, judged: Job) -> float:
        """1.0 or 0.0, which a program that takes too long gets too; nan where the process has ended, which no program
        can make it do.
        """
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # no reply says it
            self.process.stdin.write(json.dumps(judged) + "\n")
            self.process.stdin.flush()
        if (reply := self._await_reply()) not in (code_worker.RIGHT, code_worker.WRONG):
            self.process.kill()  # whatever it says next could be the verdict on another program
            print(
                f"the reward code: the process that judges programs has ended (exit {self.process.wait()})",
                file=sys.stderr,
            )
            return math.nan
        return float(reply == code_worker.RIGHT)

    def alive(self) -> bool:
        """Whether it can judge another one."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it and all that it started, whatever they do."""
        self.process.kill()
        self.process.communicate()

    def _await_reply(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline(MOST).strip()


class CodeJudge:
    """Judges programs in up to `workers` processes, which end with the `with` block; ConfigError where there is no
    lock.
    """

    def __init__(self, workers: int = 2, seconds: int = 5) -> None:
        """`seconds` of processor time for a program, for each input where it reads inputs."""
        self._pool = WorkerPool(workers, lambda: ProgramWorker(seconds))

    def __enter__(self) -> "CodeJudge":
        """Start a first process, so that a machine without a lock is found before anything is trained."""
        self._pool.start_first_worker()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def __call__(self, jobs: Sequence[Job]) -> list[float]:
        """For each job 1.0 where the program passes all tests, else 0.0; nan where nobody could judge it."""
        texts = [json.dumps(judged) for judged in jobs]
        different = dict(zip(texts, jobs, strict=True))  # a group's responses often agree
        verdicts = dict(zip(different, self._pool.map(ProgramWorker.judge, different.values()), strict=True))
        return [verdicts[text] for text in texts]

"""Mutation testing: small faults are put into the code one at a time, to see whether the fast tests fail.

`python -m benchmarks.mutation --sample 300 --seed 0` draws the same number of faults from every folder of flows/ and
tasks/, and tries each one. Outcomes are kept in benchmarks/results/mutation.json as they come, so that the same command
goes on after a stop, and benchmarks/mutation.md is made of them. `--tree FOLDER --column NAME` tries the same faults on
another checkout, with that checkout's tests; the page then compares the columns. What is asked of a later column is
that it kills what an earlier one killed, so the earlier one need not be tried where the later one kills:
`--unless-killed-by NAME` leaves those out.

mutmut makes the faults. Each is written into a copy of the checkout, so processes that the tests start have it too. The
tests that are run are the test files nearest to the changed module (tests/reach.py), at most FILES of them. A test that
takes longer than LIMIT seconds counts as failed. What only slow tests or tests further away notice counts as survived.
"""

import argparse
import ast
import contextlib
import importlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.engine import describe_machine
from tasks.common.estimates import estimate_share
from tests.reach import Reach, files_of

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/mutation.json"
FILES = 10  # test files that are run for a fault at most
LIMIT = 120  # seconds of one test, many times what the slowest fast test takes
SOURCES = ("flows", "tasks")
KILLED = ("killed", "timeout")
PRELOADED = (
    "torch",
    "transformers",
    "pandera.pandas",
    "matplotlib.pyplot",
    "hypothesis",
    "pydantic",
    "dvc.repo",
    "xdist",
)


@dataclass
class Mutant:
    """One fault: the function that has it, and the lines that it replaces and puts there, without indentation."""

    module: str
    function: str
    before: str
    after: str
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)  # by column: outcome, first failed test, seconds


@dataclass(frozen=True)
class Function:
    """A function or method of a module: its name with its class, and its first and last line, counted from 1."""

    module: str
    name: str
    first: int
    last: int
    indent: int


def list_module_functions(root: Path, module: str) -> list[Function]:
    """The functions of a module and the methods of its classes; not those that stand in other functions."""
    body: list[tuple[str, ast.stmt]] = [("", node) for node in ast.parse((root / module).read_text()).body]
    functions = []
    while body:
        outer, node = body.pop(0)
        if isinstance(node, ast.ClassDef):
            body += [(f"{outer}{node.name}.", child) for child in node.body]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            functions.append(Function(module, outer + node.name, first, node.end_lineno, node.col_offset))
    names = [function.name for function in functions]
    return [function for function in functions if names.count(function.name) == 1 and function.name.count(".") < 2]


def generate_function_mutants(root: Path, function: Function) -> dict[tuple[str, str], str]:
    """mutmut's faults of a function: the lines that each replaces and puts there, and the module's text with it."""
    from mutmut.configuration import reset_config
    from mutmut.mutation.file_mutation import mutate_file_contents

    lines = (root / function.module).read_text().splitlines()
    own = "\n".join(lines[function.first - 1 : function.last])
    outer, _, name = function.name.rpartition(".")
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        Path("pyproject.toml").write_text('[tool.mutmut]\nsource_paths = ["."]\n')
        reset_config()
        mutated = mutate_file_contents(function.module, f"class {outer}:\n{own}\n" if outer else f"{own}\n")
        reset_config()
    made = mutated.code.splitlines()
    texts = {
        mangled: textwrap.dedent("\n".join(made[span.start - 1 : span.end]).strip("\n")).replace(mangled, name)
        for mangled, span in mutated.line_span_by_function_name.items()
    }
    mutants: dict[tuple[str, str], str] = {}
    for mangled in mutated.mutant_names:
        original = texts[f"{mangled.rpartition('__mutmut_')[0]}__mutmut_orig"]
        indented = textwrap.indent(texts[mangled], " " * function.indent)
        text = "\n".join([*lines[: function.first - 1], indented, *lines[function.last :]]) + "\n"
        before, after = ([line.strip() for line in part.splitlines()] for part in (original, texts[mangled]))
        mutants[extract_differing_lines(before, after)] = text
    return mutants


def extract_differing_lines(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """The lines of two texts without their common beginning and end."""
    start = _count_common_lines(before, after)
    rest = [list(before[start:]), list(after[start:])]
    end = _count_common_lines(rest[0][::-1], rest[1][::-1])
    first, second = ("\n".join(lines[: len(lines) - end]) for lines in rest)
    return first, second


def _count_common_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal lines at the beginning of two texts."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def draw_mutants(root: Path, sample: int, seed: int, files: Iterable[str]) -> list[Mutant]:
    """The same number of faults from each folder with code; in a folder, long functions give more."""
    folders: dict[str, list[Function]] = {}
    for file in files:
        if file.endswith(".py") and file.split("/")[0] in SOURCES:
            folders.setdefault(file.rpartition("/")[0], []).extend(list_module_functions(root, file))
    generator = random.Random(seed)
    drawn: dict[tuple[str, str, str, str], Mutant] = {}
    while len(drawn) < sample:
        order = sorted(folder for folder, functions in folders.items() if functions)
        generator.shuffle(order)
        for folder in order:
            functions = folders[folder]
            [function] = generator.choices(functions, [other.last - other.first + 1 for other in functions])
            keys = sorted(generate_function_mutants(root, function))
            if keys and len(drawn) < sample:
                before, after = generator.choice(keys)
                drawn[function.module, function.name, before, after] = Mutant(
                    function.module, function.name, before, after
                )
    return [drawn[key] for key in sorted(drawn)]


class Trials:
    """Copies of a checkout, in each of which one fault at a time is tried by a process of its own."""

    def __init__(self, tree: Path, scratch: Path, processes: int) -> None:
        self.tree = tree
        self.reach = Reach(tree)
        self.copies = [scratch / f"copy{number}" for number in range(processes)]
        self.running: dict[int, tuple[Path, Mutant, float]] = {}
        for copy in self.copies:
            for name in self.reach.files:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(tree / name, copy / name)
            who = ["-c", "user.name=mutation", "-c", "user.email=mutation@example.org"]
            for command in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "copy"]):
                subprocess.run(["git", *command], cwd=copy, check=True)

    def build_mutated_source(self, mutant: Mutant) -> tuple[str, str] | None:
        """The module that has the function now, and its text with the fault; None if the function's lines are gone."""
        candidates = [mutant.module, *(file for file in self.reach.files if _has_same_file_name(file, mutant.module))]
        for module in dict.fromkeys(candidates):
            known = list_module_functions(self.tree, module) if module in self.reach.files else []
            for function in known:
                text = (
                    generate_function_mutants(self.tree, function).get((mutant.before, mutant.after))
                    if function.name == mutant.function
                    else None
                )
                if text is not None:
                    return module, text
        return None

    def start(self, mutant: Mutant) -> bool:
        """Begin to try it in a free copy; False if there is nothing to try."""
        found = self.build_mutated_source(mutant)
        if found is None:
            return False
        module, text = found
        busy = {copy for copy, _, _ in self.running.values()}
        copy = next(copy for copy in self.copies if copy not in busy)
        (copy / module).write_text(text)
        child = os.fork()
        if child == 0:
            os.setsid()  # so that what it leaves behind can be ended
            _run_tests_and_exit(copy, [*self.reach.tests_of([module])][:FILES])
        self.running[child] = copy, mutant, time.monotonic()
        return True

    def wait(self) -> tuple[Mutant, dict[str, Any]]:
        """Wait until one is tried; its outcome."""
        child, status = os.wait()
        copy, mutant, began = self.running.pop(child)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        subprocess.run(["git", "reset", "--quiet", "--hard"], cwd=copy, check=True)
        subprocess.run(["git", "clean", "--quiet", "-fdx", "--exclude=__pycache__"], cwd=copy, check=True)
        code = os.waitstatus_to_exitcode(status)
        failed = copy.with_suffix(".failed")
        test = failed.read_text() if failed.exists() else ""
        failed.unlink(missing_ok=True)
        # pytest's status 2: an error in collection
        words = {0: "survived", 1: "killed", 2: "killed", 5: "survived", -signal.SIGALRM: "timeout"}
        return mutant, {
            "outcome": words.get(code, f"exit {code}"),
            "test": test,
            "seconds": round(time.monotonic() - began, 1),
        }


def _has_same_file_name(file: str, module: str) -> bool:
    return file.rpartition("/")[2] == module.rpartition("/")[2] and file.split("/")[0] in SOURCES


class FirstFailure:
    """A pytest plugin: limits a test's time, and writes the name of the test that failed first."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Before each test."""
        self.file.write_text(nodeid)
        signal.alarm(LIMIT)

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self.file.write_text(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """After the last test."""
        signal.alarm(0)
        if not exitstatus:
            self.file.unlink(missing_ok=True)


def _run_tests_and_exit(copy: Path, tests: Sequence[str]) -> None:
    """Run the tests in this process, and end it with pytest's exit status."""
    import sys

    import pytest

    code = 4
    try:
        os.chdir(copy)
        scratch = copy.with_suffix(".tmp")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        os.environ |= {
            "PYTHONPATH": str(copy),
            "OMP_NUM_THREADS": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # some of them are imported above, of which pytest warns
            "TMPDIR": str(scratch),
        }
        tempfile.tempdir = None
        here = str(ROOT)
        sys.path[:] = [str(copy), *(path for path in sys.path if path not in ("", here))]
        for name in [name for name in sys.modules if name.split(".")[0] in ("flows", "tasks", "tests", "benchmarks")]:
            del sys.modules[name]
        output = os.open(copy.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        options = ["-x", "-m", "not slow and not gpu", "-pno:cacheprovider", "-o", "faulthandler_timeout=0"]
        code = 0
        for part in (tests[:1], tests[1:]):  # the nearest alone: most faults are noticed there
            if part and code in (0, 5):
                code = pytest.main([*options, *part], plugins=[FirstFailure(copy.with_suffix(".failed"))])
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(int(code))


def is_killed(mutant: Mutant, column: str) -> bool:
    """Whether the tests of a column noticed a fault."""
    return mutant.outcomes.get(column, {}).get("outcome") in KILLED


def run_mutant_trials(tree: Path, column: str, mutants: Sequence[Mutant], processes: int, keep: Any) -> None:
    """Try each fault without an outcome, those first that another column's tests noticed; `keep` follows each."""
    for name in PRELOADED:
        importlib.import_module(name)
    left = [mutant for mutant in mutants if column not in mutant.outcomes]
    left.sort(key=lambda mutant: not any(is_killed(mutant, other) for other in mutant.outcomes))
    done = len(mutants) - len(left)
    total = len(mutants)
    with tempfile.TemporaryDirectory() as scratch:
        trials = Trials(tree, Path(scratch), processes)
        while left or trials.running:
            while left and len(trials.running) < processes:
                mutant = left.pop(0)
                if not trials.start(mutant):
                    mutant.outcomes[column] = {"outcome": "gone", "test": "", "seconds": 0.0}
                    done += 1
            if trials.running:
                mutant, outcome = trials.wait()
                mutant.outcomes[column] = outcome
                done += 1
                print(
                    f"{done}/{total} {outcome['outcome']} {outcome['seconds']:.0f} s  {mutant.module} "
                    f"{mutant.function}",
                    flush=True,
                )
            keep()


def render(result: dict[str, Any]) -> str:
    """benchmarks/mutation.md."""
    mutants = [Mutant(**row) for row in result["mutants"]]
    lines = [
        "# Faults that the tests notice",
        "",
        f"Made by `python -m benchmarks.mutation` on {result['machine']}.",
        "",
        f"mutmut made {len(mutants)} faults, the same number in each folder of flows and tasks (seed "
        f"{result['seed']}). Each was tried on the fast tests of the",
        f"{FILES} test files nearest to its module. Faults that change nothing a caller could see count as "
        "survived; they are not sorted out.",
        "A column that was not tried on all of them has no share: which ones it was tried on depends on what the "
        "other column's tests noticed.",
        "",
        "| tests of | tried | killed | survived | gone | other | share killed (Wilson's 95 % interval) | seconds, "
        "summed over faults |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for column in result["columns"]:
        outcomes = [mutant.outcomes[column] for mutant in mutants if column in mutant.outcomes]
        words = [outcome["outcome"] for outcome in outcomes]
        noticed = sum(word in KILLED for word in words)
        survived = words.count("survived")
        gone = words.count("gone")
        tried = noticed + survived
        score = estimate_share([1.0] * noticed + [0.0] * survived) if tried and len(words) == len(mutants) else None
        interval = f"{100 * score.mean:.1f} % ({100 * score.low:.1f} to {100 * score.high:.1f})" if score else ""
        spent = round(sum(outcome["seconds"] for outcome in outcomes))
        cells = [column, len(words), noticed, survived, gone, len(words) - tried - gone, interval, spent]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for earlier, later in zip(result["columns"], result["columns"][1:], strict=False):
        lines += ["", f"## Killed by the tests of {earlier}, not by those of {later}", ""]
        lines += [
            f"- {mutant.module}, {mutant.function}: `{mutant.before}` -> `{mutant.after}`; "
            f"{mutant.outcomes[later]['outcome']}; before by {mutant.outcomes[earlier]['test']}"
            for mutant in mutants
            if later in mutant.outcomes and is_killed(mutant, earlier) and not is_killed(mutant, later)
        ] or ["None."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try the faults, and keep what comes of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="how many faults are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout with the code and the tests")
    parser.add_argument("--column", default="here", help="the name of that checkout in the results")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--result", type=Path, default=RESULT, help="outcomes; faults in it are tried again")
    parser.add_argument(
        "--unless-killed-by", metavar="COLUMN", default="", help="leave out the faults that this column's tests noticed"
    )
    given = parser.parse_args()
    if given.result.exists():
        result = result_files.load_result(given.result)
        mutants = [Mutant(**row) for row in result["mutants"]]
    else:
        mutants = draw_mutants(given.tree, given.sample, given.seed, files_of(given.tree))
        result = {"machine": describe_machine("mutmut", "torch"), "seed": given.seed, "columns": []}
    if given.column not in result["columns"]:
        result["columns"].append(given.column)

    def keep() -> None:
        result["mutants"] = [asdict(mutant) for mutant in mutants]
        result_files.write_result(given.result, result, adds=True)

    asked = [mutant for mutant in mutants if not is_killed(mutant, given.unless_killed_by)]
    run_mutant_trials(given.tree.resolve(), given.column, asked, given.processes, keep)


if __name__ == "__main__":
    main()

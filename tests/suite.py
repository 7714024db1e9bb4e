"""Parts of the tests: `python -m tests.suite check | changed | slow`. The Makefile and .ci/run call it.

- check: the fast tests nearest to the uncommitted change, as many as take about 20 s;
- changed: slow tests that what differs from a commit can reach, cheapest first, as many as take some minutes;
- slow: all slow tests. A run that was stopped goes on where it was, as long as no file has changed.

How long a test takes comes from the file that the last complete run of the slow tests wrote (tests/slow_seconds.json,
in the repository) and from this clone's own runs of the fast ones (.pytest_cache).
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from math import inf
from pathlib import Path

from tests.reach import Reach, files_of

ROOT = Path(__file__).parent.parent
SLOW_SECONDS = ROOT / "tests/slow_seconds.json"
FAST_SECONDS = ROOT / ".pytest_cache/fast_seconds.json"
UNKNOWN = inf  # seconds of a slow test that has not been timed: it is left out, and the next complete run times it
PROCESSES = 2
CHECK_SECONDS = 20.0
UNTIMED = 4.0  # seconds of a fast test file that has not been timed in this clone
FAST, SLOW = "not slow and not gpu", "slow and not gpu"


def run(selection: Sequence[str], *options: str) -> int:
    """Run pytest on these files or tests in two processes; its exit status, 0 where nothing was collected.

    An option that names a file is one argument with it: pytest would take the file's folder for its root, and this
    one's settings for none.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.kept",
        "--numprocesses",
        str(PROCESSES),
        "--dist",
        "loadfile",
    ]
    done = subprocess.run(
        [*command, *options, *selection],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""},
        check=False,
    )
    return 0 if done.returncode == 5 else done.returncode


def seconds(file: Path) -> dict[str, float]:
    """The seconds of each test function, by `FILE::FUNCTION`."""
    return dict(json.loads(file.read_text())) if file.exists() else {}


def differing(base: str | None) -> list[str]:
    """The files that differ from a commit, or without one from HEAD, uncommitted and new ones too."""
    differ = _git("diff", "--name-only", base or "HEAD").splitlines()
    new = _git("ls-files", "--others", "--exclude-standard").splitlines()
    return sorted({*differ, *new})


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def check() -> int:
    """The nearest fast tests to the uncommitted change."""
    changed = differing(None)
    if not changed:
        print("No uncommitted change: nothing to test (make test runs all fast tests)")
        return 0
    known = seconds(FAST_SECONDS)
    by_file: dict[str, float] = {}
    for name, taken in known.items():
        by_file[name.partition("::")[0]] = by_file.get(name.partition("::")[0], 0.0) + taken
    chosen: list[str] = []
    left = PROCESSES * CHECK_SECONDS
    reached = Reach(ROOT).tests_of(changed)
    for file in reached:
        cost = by_file.get(file, UNTIMED)
        if cost <= left or not chosen:
            chosen.append(file)
            left -= cost
    print(
        f"{len(changed)} changed files reach {len(reached)} test files; running the nearest {len(chosen)}", flush=True
    )
    return run(chosen, "-m", FAST, f"--seconds={FAST_SECONDS}") if chosen else 0


def changed(base: str, minutes: float) -> int:
    """Slow tests, beside the core, that what differs from `base` can reach."""
    try:
        files = differing(base)
    except subprocess.CalledProcessError:
        print(f"{base} is no commit here: no further slow tests are chosen")
        return 0
    reached = Reach(ROOT).tests_of(files)
    if not reached:
        print(f"{len(files)} files differ from {base}, and reach no test")
        return 0
    functions = slow_functions([*reached])
    known = seconds(SLOW_SECONDS)
    chosen, left_out = cheapest(functions, known, PROCESSES * 60 * minutes)
    print(
        f"{len(files)} files differ from {base}; of {len(functions)} slow tests that they reach, {len(chosen)} run",
        flush=True,
    )
    for name in left_out:
        print(f"  left out: {name} ({f'{known[name]:.0f} s' if name in known else 'not timed yet'})", flush=True)
    later = ["--no-later", str(60 * minutes), "-rs"]
    return run(by_file(chosen, functions), "-m", f"{SLOW} and not core", *later) if chosen else 0


def slow_functions(files: Sequence[str]) -> list[str]:
    """The slow test functions in these files, beside the core, as FILE::FUNCTION."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", f"{SLOW} and not core", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode not in (0, 5):  # 5: there are none
        sys.exit(f"the slow tests cannot be collected:\n{listed.stdout}{listed.stderr}")
    return list(dict.fromkeys(line.partition("[")[0] for line in listed.stdout.splitlines() if "::" in line))


def cheapest(functions: Sequence[str], known: Mapping[str, float], budget: float) -> tuple[list[str], list[str]]:
    """As many test functions as fit into a number of seconds, cheapest first, and those left out."""
    ordered = sorted(functions, key=lambda name: (known.get(name, UNKNOWN), name))
    chosen: list[str] = []
    for name in ordered:
        budget -= known.get(name, UNKNOWN)
        if budget < 0:
            break
        chosen.append(name)
    return chosen, ordered[len(chosen) :]


def by_file(chosen: Sequence[str], functions: Sequence[str]) -> list[str]:
    """The chosen tests file by file, each file in its own order: its tests may share what one of them changes."""
    tests: dict[str, list[str]] = {name.partition("::")[0]: [] for name in chosen}
    for name in functions:
        if name in chosen:
            tests[name.partition("::")[0]].append(name)
    return list(chain.from_iterable(tests.values()))


def slow() -> int:
    """All slow tests, from where a run on the same files stopped."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "posttrain-ci"
    passed = state / f"slow-{_digest()}.txt"
    timed = state / f"seconds-{_digest()}.json"
    status = run([], "-m", SLOW, f"--passed={passed}", f"--seconds={timed}")
    if status == 0:
        SLOW_SECONDS.write_text(json.dumps(dict(sorted(seconds(timed).items())), indent=0) + "\n")
        print(f"All slow tests have passed on these files; seconds in {SLOW_SECONDS.relative_to(ROOT)}")
    return status


def _digest() -> str:
    """Of all files of the repository but the one that this writes."""
    digest = hashlib.sha256()
    for name in files_of(ROOT):
        if ROOT / name != SLOW_SECONDS:
            digest.update(name.encode() + b"\0" + hashlib.sha256((ROOT / name).read_bytes()).digest())
    return digest.hexdigest()[:16]


def main() -> int:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("part", choices=["check", "changed", "slow"])
    parser.add_argument("--base", default="HEAD~1", help="the commit that `changed` compares with")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long `changed` may take")
    arguments = parser.parse_args()
    if arguments.part == "changed":
        return changed(arguments.base, arguments.minutes)
    return check() if arguments.part == "check" else slow()


if __name__ == "__main__":
    sys.exit(main())

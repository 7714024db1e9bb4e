"""Mutation testing with mutmut: small faults are put into the learning and the stages, one at a time, to see whether tests fail.

`python -m benchmarks.mutation --sample 150 --seed 0 [MODULE ...]` writes benchmarks/results/mutation.json, of which
benchmarks/mutation.md is made (benchmarks/claims.py). Without --sample every fault is tried, which takes hours.

mutmut keeps all faults of a module in one file, behind a switch, and runs for each fault the tests that call the function with
it. It works in a folder of links to this checkout, so uncommitted work counts. The tests of a folder are run only for its
own modules, and slow tests are not run: a fault that only other tests notice counts as survived. So does a fault in code that
runs in a process of its own (math_worker), where the switch is off.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine import machine
from tasks.common.estimates import share

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/mutation.json"
LEARNING = ("tasks/algorithms/common", "tasks/algorithms/language")
FOLDERS = (
    *LEARNING,
    *(f"tasks/language{folder}" for folder in ("", "/data", "/rewards", "/training")),
)  # tests/ mirrors them
BESIDE = ("params.yaml", "params.schema.json", "dvc.yaml", "presets", "flows", "benchmarks", "docs")  # tests read them
KILLED, SURVIVED = ("killed", "timeout"), ("survived", "no tests")  # mutmut's words for the outcome of a fault
CONFIG = """
[tool.mutmut]
source_paths = {sources}
only_mutate = {modules}
also_copy = {beside}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "not slow and not gpu", "-p", "no:cacheprovider", "-p", "benchmarks.mutation_fixtures"]
timeout_constant = 5.0
timeout_multiplier = 4.0
use_git_change_detection = false
"""


@dataclass(frozen=True)
class Mutant:
    """One fault: mutmut's name for it, the module, the function's lines that it removes and those that replace them."""

    name: str
    module: str
    before: str
    after: str


def mutants(root: Path, modules: Iterable[str]) -> list[Mutant]:
    """Every fault that mutmut knows for the functions of the modules (paths below `root`)."""
    from mutmut.configuration import reset_config
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name

    found = []
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        Path("pyproject.toml").write_text('[tool.mutmut]\nsource_paths = ["."]\n')
        reset_config()
        for module in modules:
            made = mutate_file_contents(module, (root / module).read_text())
            lines = made.code.splitlines()
            texts = {
                function: [line.strip().replace(function, "") for line in lines[span.start - 1 : span.end]]
                for function, span in made.line_span_by_function_name.items()
            }
            for name in made.mutant_names:
                original = texts[f"{mangled_name_from_mutant_name(name)}__mutmut_orig"]
                before, after = difference(original, texts[name])
                found.append(Mutant(get_mutant_name(Path(module), name), module, before, after))
        reset_config()
    return found


def difference(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """The lines of two texts without their common beginning and end."""
    start = alike(before, after)
    parts = before[start:], after[start:]
    end = alike(*(part[::-1] for part in parts))
    return tuple("\n".join(part[: len(part) - end]) for part in parts)


def alike(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal lines at the beginning of two texts."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def outcomes(root: Path, chosen: Sequence[Mutant], tests: Sequence[str]) -> dict[str, str]:
    """The outcome of each fault, by name, under those of `tests` (paths below `root`) that reach it.

    SystemExit with the end of mutmut's output if mutmut fails, as it does where a test fails without any fault.
    """
    from mutmut.stats import status_by_exit_code

    modules = sorted({mutant.module for mutant in chosen})
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "mutants").mkdir()  # Python ignores entries of PYTHONPATH that do not exist when it starts
        sources = sorted({module.split("/")[0] for module in modules})
        beside = [path for path in BESIDE if (root / path).exists()]
        for path in (*sources, *beside, "tests"):
            (scratch / path).symlink_to(root / path)
        filled = CONFIG.format(sources=sources, modules=modules, beside=beside, tests=list(tests))
        project = root / "pyproject.toml"
        (scratch / "pyproject.toml").write_text((project.read_text() if project.is_file() else "") + filled)
        names = [mutant.name for mutant in chosen]
        command = [Path(sys.executable).with_name("mutmut"), "run", "--max-children", "1", *names]
        environment = {**os.environ, "PYTHONPATH": f"{scratch / 'mutants'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
        codes: dict[str, int | None] = {}
        for module in modules:
            meta = scratch / f"mutants/{module}.meta"
            codes |= json.loads(meta.read_text())["exit_code_by_key"] if meta.is_file() else {}
        if done.returncode or any(codes.get(name) is None for name in names):
            raise SystemExit(f"mutmut: {done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return {name: status_by_exit_code[codes[name]] for name in names}


def counts(chosen: Iterable[Mutant], found: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """For each module the number of faults, and how many were killed, survived or ended otherwise."""
    table: dict[str, Counter[str]] = {}
    for mutant in chosen:
        outcome = found[mutant.name]
        kind = "killed" if outcome in KILLED else "survived" if outcome in SURVIVED else "other"
        table.setdefault(mutant.module, Counter(mutants=0, killed=0, survived=0, other=0)).update(["mutants", kind])
    return {module: dict(row) for module, row in sorted(table.items())}


def measure(modules: Sequence[str], sample: int | None, seed: int) -> dict[str, Any]:
    """Try all faults or a sample, folder by folder."""
    known = mutants(ROOT, modules)
    chosen = known if sample is None else random.Random(seed).sample(known, min(sample, len(known)))
    found: dict[str, str] = {}
    began = time.monotonic()
    for folder in sorted({str(Path(mutant.module).parent) for mutant in chosen}):
        part = [mutant for mutant in chosen if str(Path(mutant.module).parent) == folder]
        print(f"{folder}: {len(part)} faults", flush=True)
        found |= outcomes(ROOT, part, tests_of(folder))
    table = counts(chosen, found)
    killed = [row["killed"] for row in table.values()]
    values = [1.0] * sum(killed) + [0.0] * (len(chosen) - sum(killed))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        "machine": machine("mutmut", "torch"),
        "commit": commit.stdout.strip(),
        "seed": seed,
        "known": len(known),
        "tried": len(chosen),
        "seconds": time.monotonic() - began,
        "score": asdict(share(values)),
        "modules": table,
        "survivors": [asdict(mutant) for mutant in chosen if found[mutant.name] not in KILLED],
    }


def tests_of(folder: str) -> list[str]:
    """The test files of a folder of `tasks`, without those of folders below it."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / folder).glob("test_*.py"))


def modules_of(folder: str) -> list[str]:
    """The modules of a folder, without those of folders below it."""
    paths = sorted((ROOT / folder).glob("*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py"]


def render(result: dict[str, Any]) -> str:
    """benchmarks/mutation.md."""
    score = result["score"]
    lines = [
        "# Faults that the tests notice",
        "",
        f"Made by `python -m benchmarks.mutation` on {result['machine']}, at commit {result['commit'][:7]}, in {result['seconds']:.0f} s.",
        "",
        f"mutmut knows {result['known']:,} faults of these modules' functions. Tried: {result['tried']:,}, drawn with seed {result['seed']}. "
        f"Killed: {100 * score['mean']:.1f} % (Wilson's 95 % interval {100 * score['low']:.1f} to {100 * score['high']:.1f}).",
        "",
        "A module's faults are tried on the fast tests of its own folder that reach the function. Survivors are not sorted out: "
        "faults that change nothing a caller could see count against the score.",
        "",
        "| module | mutants | killed | survived | other | score |",
        "|---|---|---|---|---|---|",
    ]
    for module, row in result["modules"].items():
        cells = [row["mutants"], row["killed"], row["survived"], row["other"]]
        lines.append(f"| {module} | {' | '.join(map(str, cells))} | {100 * row['killed'] / row['mutants']:.0f} % |")
    lines += [f"\n{note}" for note in result.get("notes", ())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try the faults, and write the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, help="how many faults are tried; all without it")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("modules", nargs="*", help="paths; without any, all modules of the learning and the stages")
    given = parser.parse_args()
    every = [module for folder in FOLDERS for module in modules_of(folder)]
    result = measure(given.modules or every, given.sample, given.seed)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    RESULT.parents[1].joinpath("mutation.md").write_text(render(result))


if __name__ == "__main__":
    main()

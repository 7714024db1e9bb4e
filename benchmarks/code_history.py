"""What a change of the code costs: how many stages each of the last commits would run again, by whole files and by
definitions.

`python -m benchmarks.code_history [COMMITS]` goes through the last commits that touch tasks/ (400 unless told) and
compares each with the one before. By whole files a stage runs again if any module that it imports, directly or not, has
changed; by definitions if something that it reaches has (tasks/code). Comments, layout, docstrings and annotations that
nothing reads are left out on both sides. What reads them in today's code was looked at, so that it does not count
(tasks/code/without_influence.py). In older commits nobody looked, so they are compared both ways.
"""

import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ruamel.yaml import YAML

from benchmarks import result_files, tables
from tasks import contract
from tasks.code import registries
from tasks.code.modules import Module
from tasks.code.reachable_code import RUNS, PackageCode, StageReach
from tasks.code.without_influence import LOOKED_AT, WITHOUT_INFLUENCE

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/code_history.json"
WAYS = {  # of telling what a stage depends on
    "files": "all modules that it imports",
    "definitions": "the definitions that it reaches",
    "looked_at": "the same, where no reader of docstrings or sources counts",
}
Versions = dict[str, dict[str, str]]  # stage -> way -> hash


class Commits:
    """Reads stages' code as commits have it. What several commits share is parsed once."""

    def __init__(self) -> None:
        self._modules: dict[tuple[str, bytes], Module] = {}
        self._contents: dict[str, bytes] = {}
        self._whole: dict[int, str] = {}
        self._git = subprocess.Popen(
            ["git", "cat-file", "--batch"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def versions(self, commit: str) -> Versions:
        """The code of each stage of a commit, as hashes."""
        listed = get_git_output("ls-tree", "-r", commit, "--", "tasks", "dvc.yaml", registries.PARAMS).splitlines()
        blobs = {path: meta.split()[2] for meta, _, path in (line.partition("\t") for line in listed)}

        def source(path: str) -> bytes | None:
            return self._content(blobs[path]) if path in blobs else None

        code = PackageCode(source, without_influence=WITHOUT_INFLUENCE, looked_at=LOOKED_AT, cache=self._modules)
        if "dvc.yaml" not in blobs:
            return {}
        pipeline = YAML(typ="safe").load(self._content(blobs["dvc.yaml"]))
        choices = registries.collect_choices(registries.parse_params_yaml(source(registries.PARAMS)))
        versions: Versions = {}
        for name, module in contract.collect_stage_modules(pipeline).items():
            if code.module(module):
                reached = StageReach(code, module, registries.list_chosen_modules(name, choices))
                code.looked_at = frozenset(LOOKED_AT)
                as_now = {
                    "files": self._hash_imported_modules(code, module),
                    "definitions": hash_canonical_repr(reached.digests()),
                }
                code.looked_at = _list_docstring_readers(reached)
                versions[name] = {**as_now, "looked_at": hash_canonical_repr(reached.digests())}
        return versions

    def _content(self, blob: str) -> bytes:
        if blob not in self._contents:
            assert self._git.stdin is not None
            assert self._git.stdout is not None
            self._git.stdin.write(f"{blob}\n".encode())
            self._git.stdin.flush()
            size = int(self._git.stdout.readline().split()[2])
            self._contents[blob] = self._git.stdout.read(size + 1)[:size]
        return self._contents[blob]

    def _hash_imported_modules(self, code: PackageCode, stage: str) -> str:
        """The hash of all modules that a stage imports, directly or not."""
        found = dict[str, str]()
        waiting = [stage]
        while waiting:
            name = waiting.pop()
            module = code.module(name)
            if module is None or name in found:
                continue
            found[name] = self._hash_module(module)
            waiting += [*module.imported, *(one for part in (*module.parts, *module.program) for one in part.modules)]
        return hash_canonical_repr(found)

    def _hash_module(self, module: Module) -> str:
        if id(module) not in self._whole:
            parts = [*module.parts, *module.program]
            self._whole[id(module)] = hash_canonical_repr(
                [one.digest(docstrings=False, annotations=False) for one in parts]
            )
        return self._whole[id(module)]


def _list_docstring_readers(reached: StageReach) -> frozenset[str]:
    """All definitions that read docstrings or sources, as tasks/code/without_influence.py names those of the present
    code.
    """
    return frozenset(f"{name}.{', '.join(part.names) or RUNS}" for name, part in reached.parts.values() if part.reads)


def hash_canonical_repr(value: Any) -> str:
    """A hash of anything that is printed alike wherever it is equal."""
    ordered = sorted(value.items()) if isinstance(value, Mapping) else value
    return hashlib.sha256(repr(ordered).encode()).hexdigest()


def get_git_output(*arguments: str) -> str:
    """What git says."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def count_reruns_per_commit(commits: list[str]) -> Iterator[dict[str, Any]]:
    """For each commit but the first: the number of stages that both have, and of those that run again."""
    reader = Commits()
    before = Versions()
    for number, commit in enumerate(commits):
        now = reader.versions(commit)
        both = [name for name in now if name in before]
        if number:
            yield {
                "commit": commit[:10],
                "stages": len(both),
                **{way: sum(before[name][way] != now[name][way] for name in both) for way in WAYS},
            }
        before = now


def render(result: Mapping[str, Any]) -> str:
    """A row for each way of telling what a stage depends on."""
    rows = [
        [
            "a stage depends on",
            "stages run again, mean",
            "median",
            "commits that run none",
            "commits that run more than half",
        ]
    ]
    for name, words in WAYS.items():
        again = [commit[name] for commit in result["commits"]]
        none, half = (
            sum(map(bool, found))
            for found in (
                [not count for count in again],
                [2 * count > commit["stages"] for count, commit in zip(again, result["commits"], strict=True)],
            )
        )
        rows.append([words, f"{fmean(again):.1f}", f"{median(again):g}", str(none), str(half)])
    return tables.render_markdown_table(rows)


def main() -> None:
    """Go through the history on all cores."""
    count = int(sys.argv[1]) if sys.argv[1:] else 400
    commits = get_git_output(
        "log", "--first-parent", f"-{count + 1}", "--format=%H", "--reverse", "--", "tasks"
    ).split()
    pieces = [commits[start : start + 26] for start in range(0, len(commits) - 1, 25)]
    with ProcessPoolExecutor(2) as pool:
        found = [row for rows in pool.map(_list_rerun_counts, pieces) for row in rows]
    result_files.write_result(RESULT, {"commits": found})
    print(render({"commits": found}))


def _list_rerun_counts(commits: list[str]) -> list[dict[str, Any]]:
    return [*count_reruns_per_commit(commits)]


if __name__ == "__main__":
    main()

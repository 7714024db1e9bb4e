"""What a command made again, held against the recorded outs: nothing that differs, or in each file the first
difference.

Files are compared by their hashes. Only where these differ are they read, in a child process that knows tensors and
tables.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.engine.dvc_lock import get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.reproduction import digests
from flows.lineage.reproduction.digests import Files
from flows.lineage.reproduction.scratch_copy import CannotReproduceError
from tasks.common import run_environment

MODULE = "tasks.first_difference"
READ = 10  # files that are read for their first difference; of more only the names are told
MACHINE = ("cpu", "cores", "platform")  # the others are versions of packages
GIVEN = ("threads", "products")  # the command is given the recorded ones, whatever they are here


@dataclass(frozen=True)
class FileDifference:
    """A file that is not as it was recorded.

    `facts` says where in it, as `python -m tasks.first_difference` found it.
    """

    path: str
    what: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """For a person."""
        return f"{self.path}: {self.what}"


def compute_output_digests(record: ExecutionRecord, copy: Path) -> dict[str, Files]:
    """The digests of all outs that the command left in the copy; CannotReproduceError if one is missing."""
    made: dict[str, Files] = {}
    for path in get_entry_hashes(record.entry, "outs"):
        if not (copy / path).exists():
            raise CannotReproduceError(f"{path}: the recorded command ended without making it again")
        made[path] = digests.compute_path_digests(copy, copy / path)
    return made


def compare_outputs(
    repository: Path, record: ExecutionRecord, copy: Path, made: Mapping[str, Files]
) -> list[FileDifference]:
    """The files that differ from the record, in the order of the outs; none if all is equal to the bit."""
    differences = list[FileDifference]()
    pairs = dict[str, tuple[Path, Path]]()
    for path, md5 in get_entry_hashes(record.entry, "outs").items():
        if digests.compute_dvc_hash(made[path]) == md5:
            continue
        before = _find_recorded_file_hashes(repository, path, md5)
        if before is None:
            gone = (
                f"{md5} recorded, {digests.compute_dvc_hash(made[path])} made; the recorded bytes are not kept any more"
            )
            differences.append(FileDifference(path, gone))
            continue
        for name in sorted({*before, *made[path]}):
            shown = f"{path}/{name}" if name else path
            if name not in made[path]:
                differences.append(FileDifference(shown, "recorded, but not made again"))
            elif name not in before:
                differences.append(FileDifference(shown, "made now, but not on record"))
            elif before[name] != made[path][name].md5:
                differences.append(FileDifference(shown, f"{before[name]} recorded, {made[path][name].md5} made"))
                if (kept := _find_recorded_file(repository, shown, before[name])) is not None and len(pairs) < READ:
                    pairs[shown] = kept, copy / shown
    where = _locate_first_differences(repository, pairs) if pairs else {}
    return [FileDifference(each.path, **where[each.path]) if each.path in where else each for each in differences]


def find_environment_differences(record: ExecutionRecord) -> dict[str, tuple[str, str]]:
    """What of versions and machine is another now than on record: name -> (recorded, here)."""
    actual = run_environment.collect_environment_facts() | dict.fromkeys(
        run_environment.filter_foreign_injections(record.environment), "left out"
    )
    return {
        name: (value, actual[name])
        for name, value in sorted(record.environment.items(), key=lambda item: (item[0] in MACHINE, item[0]))
        if name in actual and name not in GIVEN and actual[name] != value
    }


def _find_recorded_file_hashes(repository: Path, path: str, md5: str) -> dict[str, str] | None:
    """Path within the out -> MD5 of each recorded file; None where neither the cache nor the workspace has the list."""
    try:
        return cache_objects.read_cached_file_hashes(repository, md5)
    except PlanError:
        if (repository / path).exists():
            files = digests.compute_path_digests(repository, repository / path)
            if digests.compute_dvc_hash(files) == md5:
                return {name: digest.md5 for name, digest in files.items()}
        return None


def _find_recorded_file(repository: Path, path: str, md5: str) -> Path | None:
    """A file with the recorded bytes, in the cache or the workspace."""
    candidates = [cache_objects.find_cache_object(repository, md5), repository / path]
    return next(
        (file for file in candidates if file and file.is_file() and digests.compute_file_digest(file).md5 == md5), None
    )


def _locate_first_differences(repository: Path, pairs: Mapping[str, tuple[Path, Path]]) -> dict[str, dict[str, Any]]:
    """For each pair of files the words and the facts of its first difference; nothing where the child fails."""
    request = [[name, str(before), str(after)] for name, (before, after) in pairs.items()]
    command: Sequence[str] = [sys.executable, "-m", MODULE]
    done = subprocess.run(
        command, input=json.dumps(request), cwd=repository, capture_output=True, text=True, check=False
    )
    try:
        answers = json.loads(done.stdout)
    except ValueError:
        return {}
    return {name: {"what": facts.pop("what"), "facts": facts} for name, facts in zip(pairs, answers, strict=True)}

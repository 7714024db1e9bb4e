"""Whose bytes are these: the run, the other output or the git branch that bytes belong to which are where others were
expected.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from flows.engine import mlflow_client, mlflow_run_lookup
from flows.engine.dvc_lock import LOCKFILE, Entry, get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_run_lookup import PREFIX, Index
from flows.lineage import cache_objects, execution_record
from flows.lineage.checks.findings import SHORT
from flows.lineage.checks.lock_differences import format_entry_value, list_entry_differences
from tasks.common import source_code

TRIED = 200  # folders of other runs that are looked through for one file
BRANCHES = 100


class Origins:
    """Looks up wrong bytes by their hash; only where something is wrong, so it need not be fast."""

    def __init__(self, root: Path, entries: Mapping[str, Entry]) -> None:
        self.root = root
        self._recorded = {
            md5: path
            for entry in entries.values()
            for kind in ("outs", "deps")
            for path, md5 in get_entry_hashes(entry, kind).items()
        }

    @cached_property
    def index(self) -> Index:
        """Which run made what."""
        return Index(self.root)

    def of(self, md5: str, path: str, expected: Entry) -> str:
        """Whose bytes these are, as the end of a sentence; empty where nobody here is known to have made them."""
        for run_id in self.index.makers(md5):
            made = execution_record.load_run_record(self.root, run_id)
            made_path = next(
                (out for out, out_md5 in get_entry_hashes(made.entry, "outs").items() if out_md5 == md5), path
            )
            as_what = "" if made_path == path else f" as {made_path}"
            return (
                f"these are the bytes that run {run_id[:SHORT]} of {made.stage} "
                f"made{as_what}{_format_run_difference(made.entry, expected)}"
            )
        if (other := self._recorded.get(md5)) not in (None, path):
            return f"these are the bytes of {other}"
        return self._find_branch_remark(md5)

    def format_file_origin(self, md5: str, within: str, name: str, expected: Entry) -> str:
        """Whose file of this name within an output has these bytes."""
        for run_id, folder in self._iterate_folder_versions(within, expected):
            try:
                listed = cache_objects.read_cached_file_hashes(self.root, folder)
            except PlanError:
                continue
            if listed.get(name) == md5:
                made = execution_record.load_run_record(self.root, run_id)
                return (
                    f"these are the bytes that run {run_id[:SHORT]} of {made.stage} "
                    f"made{_format_run_difference(made.entry, expected)}"
                )
        return ""

    def _iterate_folder_versions(self, path: str, expected: Entry) -> Iterator[tuple[str, str]]:
        """Run and hash of every version of a folder that some run made."""
        current = get_entry_hashes(expected, "outs").get(path)
        key = PREFIX + mlflow_client.format_tag_name("out", path)
        with mlflow_run_lookup.open_records_reader(self.root) as records:
            rows = records.versions(key, TRIED) if records else []
        for run_id, md5 in rows:
            if md5 != current and md5.endswith(".dir"):
                yield run_id, md5

    def _find_branch_remark(self, md5: str) -> str:
        branches = _read_git_output_lines(
            self.root, "for-each-ref", "--format=%(refname)", f"--count={BRANCHES}", "refs/heads", "refs/remotes"
        )
        if branches:
            for grep_line in _read_git_output_lines(
                self.root, "grep", "-l", "-F", "-e", md5, *branches, "--", LOCKFILE
            ):
                return f"{LOCKFILE} of {grep_line.rpartition(':')[0].removeprefix('refs/heads/')} records these bytes"
        return ""


def list_swapped_paths(actual: Mapping[str, str], expected: Mapping[str, str]) -> list[tuple[str, str]]:
    """The pairs of paths of which each has what was expected of the other."""
    wrong = {path: md5 for path, md5 in actual.items() if expected.get(path) not in (None, md5)}
    holders = {expected[path]: path for path in wrong}
    pairs = []
    for path, md5 in wrong.items():
        other = holders.get(md5)
        if other is not None and path < other and wrong[other] == expected[path]:
            pairs.append((path, other))
    return pairs


def _format_run_difference(made: Entry, expected: Entry) -> str:
    """In what the other run differed."""
    changes = list_entry_differences(made, expected)
    settings = [
        f"{difference.name} {format_entry_value(difference.first)}"
        for difference in changes
        if difference.kind == "param"
    ]
    inputs = [difference.name for difference in changes if difference.kind == "dep" and difference.first is not None]
    if settings:
        return f" with {', '.join(settings[:3])}{' and more' if len(settings) > 3 else ''}"
    return f" from another {', '.join(inputs[:3])}{' and more' if len(inputs) > 3 else ''}" if inputs else ""


def _read_git_output_lines(root: Path, *arguments: str) -> Sequence[str]:
    try:
        done = source_code.call_git(root, arguments)
    except OSError:
        return []
    return done.stdout.decode(errors="replace").splitlines()

"""Files as some record has them, by their hashes: whoever has such bytes is as good as any other.

Looked for in the current commit, in DVC's cache, among what acceptances kept, in the commit and patch of the run that
read them, and in the last commits that changed the file.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_lock import Entry, join_out_hashes
from flows.engine.dvc_stage import compute_run_cache_key
from flows.lineage import cache_objects, execution_record, git_files
from flows.lineage.acceptance import acceptance_runs
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.git_files import CLEAN, Tree
from tasks.common import source_code
from tasks.common.source_code import NO_COMMIT, GitError

COMMITS = 50  # of the last that changed a file


def compute_md5(content: bytes) -> str:
    """DVC's hash of a file."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def collect_recorded_contents(
    root: Path, entry: Callable[[], Entry | None], wanted: Mapping[str, str]
) -> dict[str, bytes]:
    """Path -> content of these files, by their hashes, of a stage with this entry of dvc.lock; what cannot be had is
    left out.
    """
    contents: dict[str, bytes] = {}
    for more in (
        _read_from_commit,
        _read_from_cache,
        _read_from_acceptances,
        partial(_read_from_maker_run, entry),
        _read_from_history,
    ):
        lacking = {path: md5 for path, md5 in wanted.items() if path not in contents}
        if lacking:
            candidates = more(root, lacking)
            contents |= {path: content for path, content in candidates.items() if compute_md5(content) == wanted[path]}
    return contents


def _read_from_commit(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    return git_files.read_tree_files(root, Tree("HEAD"), wanted)


def _read_from_cache(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    files = {
        path: cache_objects.find_cache_object(root, md5) for path, md5 in wanted.items() if not path.endswith(".py")
    }
    return {path: file.read_bytes() for path, file in files.items() if file is not None}


def _read_from_acceptances(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    versions = {path: acceptance_runs.load_accepted_code(root, md5) for path, md5 in wanted.items()}
    return {path: content for path, content in versions.items() if content is not None}


def _read_from_maker_run(
    recorded: Callable[[], Entry | None], root: Path, wanted: Mapping[str, str]
) -> dict[str, bytes]:
    entry = recorded()
    if entry is None:
        return {}
    key = compute_run_cache_key(entry)
    outs = join_out_hashes(entry)
    run_id = mlflow_run_lookup.find_maker_run(root, key, outs) or mlflow_run_lookup.find_accepted_maker_run(
        root, key, outs
    )
    return read_run_files(root, execution_record.load_run_record(root, run_id), wanted) if run_id else {}


def read_run_files(root: Path, made: ExecutionRecord, wanted: Mapping[str, object]) -> dict[str, bytes]:
    """These files as the run read them, as far as git has them; of a folder those below it."""
    if made.commit is None or made.commit in NO_COMMIT:
        return {}
    return git_files.read_tree_files(root, Tree(made.commit, None if made.dirty in CLEAN else made.patch), wanted)


def _read_from_history(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path, md5 in wanted.items():
        trees = {Tree(commit): [path] for commit in _iterate_file_commits(root, path)}
        hashes = git_files.compute_tree_file_hashes(root, trees)
        for tree in trees:
            if hashes.get(tree, {}).get(path) == md5:
                contents |= git_files.read_tree_files(root, tree, [path])
                break
    return contents


def _iterate_file_commits(root: Path, path: str) -> Iterator[str]:
    with suppress(GitError):
        yield from (
            source_code.read_git_output(root, "rev-list", "-n", str(COMMITS), "HEAD", "--", f":(literal){path}")
            .decode()
            .split()
        )

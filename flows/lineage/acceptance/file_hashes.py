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
from flows.engine.dvc_lock import Entry, joined
from flows.engine.dvc_stage import run_cache_key
from flows.lineage import cache_objects, execution_record, git_files
from flows.lineage.acceptance import acceptance_runs
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.git_files import CLEAN, Tree
from tasks.common import source_code
from tasks.common.source_code import NO_COMMIT, GitError

COMMITS = 50  # of the last that changed a file


def md5_of(content: bytes) -> str:
    """DVC's hash of a file."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def recorded(root: Path, entry: Callable[[], Entry | None], wanted: Mapping[str, str]) -> dict[str, bytes]:
    """Path -> content of these files, by their hashes, of a stage with this entry of dvc.lock; what cannot be had is
    left out.
    """
    contents: dict[str, bytes] = {}
    for more in (_committed, _cached, _kept, partial(_of_maker, entry), _earlier):
        lacking = {path: md5 for path, md5 in wanted.items() if path not in contents}
        if lacking:
            candidates = more(root, lacking)
            contents |= {path: content for path, content in candidates.items() if md5_of(content) == wanted[path]}
    return contents


def _committed(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    return git_files.contents(root, Tree("HEAD"), wanted)


def _cached(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    files = {path: cache_objects.path(root, md5) for path, md5 in wanted.items() if not path.endswith(".py")}
    return {path: file.read_bytes() for path, file in files.items() if file is not None}


def _kept(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    versions = {path: acceptance_runs.version(root, md5) for path, md5 in wanted.items()}
    return {path: content for path, content in versions.items() if content is not None}


def _of_maker(recorded: Callable[[], Entry | None], root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    entry = recorded()
    if entry is None:
        return {}
    key, outs = run_cache_key(entry), joined(entry)
    run_id = mlflow_run_lookup.maker(root, key, outs) or mlflow_run_lookup.accepted_maker(root, key, outs)
    return of_run(root, execution_record.of_run(root, run_id), wanted) if run_id else {}


def of_run(root: Path, made: ExecutionRecord, wanted: Mapping[str, object]) -> dict[str, bytes]:
    """These files as the run read them, as far as git has them; of a folder those below it."""
    if made.commit is None or made.commit in NO_COMMIT:
        return {}
    return git_files.contents(root, Tree(made.commit, None if made.dirty in CLEAN else made.patch), wanted)


def _earlier(root: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path, md5 in wanted.items():
        trees = {Tree(commit): [path] for commit in _commits(root, path)}
        hashes = git_files.hashes_of(root, trees)
        for tree in trees:
            if hashes.get(tree, {}).get(path) == md5:
                contents |= git_files.contents(root, tree, [path])
                break
    return contents


def _commits(root: Path, path: str) -> Iterator[str]:
    with suppress(GitError):
        yield from (
            source_code.git(root, "rev-list", "-n", str(COMMITS), "HEAD", "--", f":(literal){path}").decode().split()
        )

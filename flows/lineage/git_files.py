"""Files of commits, with and without a patch, as git has them. Nothing in the repository or its index is touched."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.common import source_code

CLEAN = ("no", None)  # what a run records of files that differed from its commit, where none did or none is known


@dataclass(frozen=True)
class Tree:
    """The code of a run: a commit, and the patch that leads from it to the files that ran."""

    commit: str
    patch: Path | None = None


def compute_tree_file_hashes(root: Path, wanted: Mapping[Tree, Iterable[str]]) -> dict[Tree, dict[str, str]]:
    """Path -> MD5 of each wanted file of each tree; files that a tree lacks, and trees whose commit is gone, are left
    out.
    """
    prefix = _get_repository_prefix(root)
    commits = list(dict.fromkeys(tree.commit for tree in wanted))
    commit_exists = dict(zip(commits, _hash_blobs(root, [f"{commit}^{{commit}}" for commit in commits]), strict=True))
    plain = [
        (tree, path)
        for tree, paths in wanted.items()
        for path in sorted(paths)
        if not tree.patch and commit_exists[tree.commit]
    ]
    hashes: dict[Tree, dict[str, str]] = {tree: {} for tree in wanted if commit_exists[tree.commit]}
    blobs = _hash_blobs(root, [f"{tree.commit}:{prefix}{path}" for tree, path in plain])
    for (tree, path), md5 in zip(plain, blobs, strict=True):
        if md5:
            hashes[tree][path] = md5
    for tree, paths in wanted.items():
        if tree.patch and tree in hashes:
            patched = _hash_patched_files(root, prefix, tree, sorted(paths))
            if patched is None:
                del hashes[tree]
            else:
                hashes[tree] = patched
    return hashes


def read_tree_files(root: Path, tree: Tree, paths: Iterable[str]) -> dict[str, bytes]:
    """Path -> bytes of these files of a tree, of a folder all files below it; nothing where the commit is gone or the
    patch does not apply.
    """
    prefix = _get_repository_prefix(root)
    wanted = sorted(paths)
    if not wanted or not _hash_blobs(root, [f"{tree.commit}^{{commit}}"])[0]:  # without a path git lists all files
        return {}
    with _open_temporary_index(root, tree) as environ:
        if environ is None:
            return {}
        listed = _run_git(root, ["ls-files", "-z", "--", *(f":(literal){path}" for path in wanted)], environ)
        names = [name for name in os.fsdecode(listed).split("\0") if name]
        ids = _resolve_object_ids(root, [f":{prefix}{name}" for name in names], environ)
        blob_contents = source_code.read_git_objects(root, list(dict.fromkeys(filter(None, ids))), environ)
    return {name: blob_contents[blob_id] for name, blob_id in zip(names, ids, strict=True) if blob_id}


def read_file_at_head(root: Path, path: str) -> str:
    """The text of a file in the last commit; empty where there is no commit, or not that file in it."""
    return _run_git(root, ["show", f"HEAD:./{path}"]).decode(errors="replace")


def list_unrecorded_code_warnings(root: Path) -> list[str]:
    """A line on what of the code's state a run of this moment will not have on record, if there is a commit that it
    could have.
    """
    source = source_code.read_code_state(root)
    return [f"not on record: {source.note}"] if source.note and source.commit != "none" else []


def _get_repository_prefix(root: Path) -> str:
    """Where the repository's folder is within git's."""
    return _run_git(root, ["rev-parse", "--show-prefix"]).decode().strip()


def _hash_patched_files(root: Path, prefix: str, tree: Tree, paths: Sequence[str]) -> dict[str, str] | None:
    """Path -> MD5 of files of a commit with a patch."""
    with _open_temporary_index(root, tree) as environ:
        if environ is None:
            return None
        blobs = _hash_blobs(root, [f":{prefix}{path}" for path in paths], environ)
    return {path: md5 for path, md5 in zip(paths, blobs, strict=True) if md5}


@contextmanager
def _open_temporary_index(root: Path, tree: Tree) -> Iterator[dict[str, str] | None]:
    """The variables of an index of the tree and an object store beside the repository's own; None where the patch does
    not apply.
    """
    with tempfile.TemporaryDirectory() as folder:
        objects = Path(os.fsdecode(_run_git(root, ["rev-parse", "--git-path", "objects"]).rstrip(b"\n")))
        environ = {
            "GIT_INDEX_FILE": f"{folder}/index",
            "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(root / objects),
        }
        Path(folder, "objects").mkdir()
        _run_git(root, ["read-tree", tree.commit], environ)
        applies = True
        if tree.patch and tree.patch.stat().st_size:
            prefix = _get_repository_prefix(root)  # the patch is relative to the repository's folder
            options = ["--cached", "--binary", "--whitespace=nowarn", "--verbose"] + [f"--directory={prefix}"] * bool(
                prefix
            )
            applies = not _run_git_for_exit_status(root, ["apply", *options, str(tree.patch.absolute())], environ)
        yield environ if applies else None


def _hash_blobs(root: Path, names: Sequence[str], environ: Mapping[str, str] | None = None) -> list[str | None]:
    """The MD5 of the content of each of git's objects, None for one that is not there; each content is read once."""
    ids = _resolve_object_ids(root, names, environ)
    blob_contents = source_code.read_git_objects(root, list(dict.fromkeys(filter(None, ids))), environ)
    digests = {
        blob_id: hashlib.md5(content, usedforsecurity=False).hexdigest() for blob_id, content in blob_contents.items()
    }
    return [digests.get(blob_id) if blob_id else None for blob_id in ids]


def _resolve_object_ids(root: Path, names: Sequence[str], environ: Mapping[str, str] | None) -> list[str | None]:
    """The id of each of git's objects, None for one that is not there."""
    if not names:
        return []
    batch_input = "".join(f"{name}\n" if "\n" not in name else "-\n" for name in names)
    headers = os.fsdecode(_run_git(root, ["cat-file", "--batch-check"], environ, os.fsencode(batch_input))).split("\n")
    parts = [header.split(" ") for header in headers[: len(names)]]
    parts += [[]] * (len(names) - len(parts))  # there is no git
    return [part[0] if len(part) == 3 and part[2].isdigit() else None for part in parts]


def _run_git(
    root: Path, arguments: Sequence[str], environ: Mapping[str, str] | None = None, stdin: bytes = b""
) -> bytes:
    """What git prints; nothing where there is no git."""
    try:
        return source_code.call_git(root, arguments, environ, stdin).stdout
    except OSError:
        return b""


def _run_git_for_exit_status(root: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    return source_code.call_git(root, arguments, environ).returncode

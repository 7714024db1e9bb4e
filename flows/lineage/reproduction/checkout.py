"""A commit's files in an empty folder, read straight from git's objects.

`git worktree` and `git archive` run what the user's configuration and the commit's attributes name: hooks, filters,
changes of line ends, fetches. Here none of them runs, nothing of the repository changes, and every byte is the
committed one.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from tasks.common.source_code import NO_COMMIT

SKIPPED = {".git", ".dvc", ".venv", "venv", "mlruns", "node_modules", "__pycache__"}
LARGEST = 2**24  # bytes of a working file that counts as code where git does not tell what is code
CONFIG = "GIT_CONFIG_"  # begins variables that may say which folders git may trust
QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
# git's modes
SUBMODULE = "160000"
LINK = "120000"
PROGRAM = "100755"


class CheckoutError(Exception):
    """The files of a commit cannot be had; one line."""


def has_commit(root: Path, commit: str | None) -> bool:
    """Whether the repository has this commit; False without git."""
    if not commit or commit in NO_COMMIT or commit.startswith("-") or shutil.which("git") is None:
        return False
    return not _run_git(root, "cat-file", "-e", f"{commit}^{{commit}}").returncode


def check_out_commit(root: Path, commit: str, target: Path) -> list[str]:
    """Write the commit's files below `root` to `target`; returns the paths of its submodules, which are left out.

    Links are made last, so that no file of the commit is written through one.
    """
    listed = _run_git(root, "ls-tree", "-r", "-z", commit)
    if listed.returncode:
        raise CheckoutError(f"commit {commit}: {_get_git_error_line(listed)}")
    submodules = list[str]()
    links = list[tuple[Path, bytes]]()
    entries = [entry.split("\t", 1) for entry in os.fsdecode(listed.stdout).split("\0") if entry]
    parts = [(*facts.split(" "), path) for facts, path in entries]
    blobs = _iterate_object_contents(root, [sha for mode, _, sha, _ in parts if mode != SUBMODULE])
    for mode, _, _, path in parts:
        if mode == SUBMODULE:
            submodules.append(path)
            continue
        content = next(blobs)
        file = target / _check_relative_path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            links.append((file, content))
            continue
        with file.open("xb") as written:
            written.write(content)
        if mode == PROGRAM:
            file.chmod(0o755)
    for file, content in links:
        file.symlink_to(os.fsdecode(content))
    return submodules


def apply_patch(patch: Path, target: Path) -> None:
    """Apply what `git diff --binary` wrote to the files in `target`, which is in no repository; git refuses paths
    outside.
    """
    command = ["git", "apply", "--binary", "--whitespace=nowarn", "--", str(patch.absolute())]
    if not patch.stat().st_size:
        return
    done = subprocess.run(
        command, cwd=target, env=build_isolated_git_environment(target), capture_output=True, check=False
    )
    if done.returncode:
        raise CheckoutError(f"{patch}: it cannot be applied to the recorded commit: {_get_git_error_line(done)}")


def copy_working_files(root: Path, target: Path, leave_out: Iterable[str]) -> None:
    """Copy the code of the working tree: what git tracks or would add; without git every small file.

    `leave_out` is data.
    """
    left = {PurePosixPath(path) for path in leave_out}
    for path in _iterate_working_files(root):
        relative = PurePosixPath(path)
        file = root / path
        if left.intersection((relative, *relative.parents)) or file.is_symlink() or not file.is_file():
            continue
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target / path)


def build_isolated_git_environment(target: Path) -> dict[str, str]:
    """The environment for git without anybody's configuration, and blind to a repository above `target`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    nobody = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return {**kept, **nobody, **QUIET, "GIT_CEILING_DIRECTORIES": str(target.absolute().parent)}


def _iterate_working_files(root: Path) -> Iterator[str]:
    listed = None
    if shutil.which("git") is not None:
        listed = _run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if (
        listed is not None and not listed.returncode and listed.stdout
    ):  # nothing where a repository above ignores this folder
        yield from dict.fromkeys(path for path in os.fsdecode(listed.stdout).split("\0") if path)
        return
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in files:
            file = Path(folder, name)
            if not file.is_symlink() and file.stat().st_size <= LARGEST:
                yield file.relative_to(root).as_posix()


def _iterate_object_contents(root: Path, objects: Sequence[str]) -> Iterator[bytes]:
    """The content of each object, in their order, from one process of git."""
    command = [*_build_git_command(root), "cat-file", "--batch"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_build_git_environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for sha in objects:
            process.stdin.write(sha.encode() + b"\n")
            process.stdin.flush()
            *_, kind, size = process.stdout.readline().split() or (b"", b"")
            if kind != b"blob":
                raise CheckoutError(f"git object {sha}: it is not in the repository any more")
            content = process.stdout.read(int(size) + 1)
            yield content[:-1]
        process.stdin.close()


def _check_relative_path(path: str) -> PurePosixPath:
    """The path, if it stays below the folder; a tree that somebody wrote by hand can have any."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or {"..", ".git"} & {*relative.parts} or not relative.parts:
        raise CheckoutError(f"{path!r}: the commit has a path outside the repository")
    return relative


def _run_git(root: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*_build_git_command(root), *arguments], capture_output=True, check=False, env=_build_git_environment()
    )


def _build_git_command(root: Path) -> list[str]:
    return ["git", "-C", str(root), "-c", "core.fsmonitor=false", "-c", "protocol.allow=never"]


def _build_git_environment() -> dict[str, str]:
    """For git on the user's repository: it writes, fetches and asks nothing, and takes no object for another."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(CONFIG)}
    return {**kept, **dict.fromkeys(("GIT_NO_REPLACE_OBJECTS", "GIT_NO_LAZY_FETCH"), "1"), **QUIET}


def _get_git_error_line(done: "subprocess.CompletedProcess[bytes]") -> str:
    return next(iter(done.stderr.decode(errors="replace").splitlines()), "git failed").removeprefix("error: ")

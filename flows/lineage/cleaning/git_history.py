"""Every hash that a file of DVC's names anywhere in git's history: in a branch, a tag, an older commit, an experiment,
or the index.

The files are found by their names, dvc.lock and *.dvc, and searched for whatever looks like a hash. So what is found is
never less than what DVC itself finds by reading each commit, and a thousand commits that share a dvc.lock cost no more
than one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from tasks.common import source_code
from tasks.common.source_code import GitError

HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?:\.dir)?(?![0-9a-f])")
PATHS = ("*dvc.lock", "*.dvc")  # as git's patterns, whose star goes beyond slashes
EXPERIMENTS = "refs/exps/*"
STACKS = ("refs/exps", "refs/stash")  # what waits there is named by the refs' logs alone
STAGE = re.compile(r"  (\S.*):\s*")
KEY = re.compile(r"    (\w+):")


@dataclass(frozen=True)
class NamedHashes:
    """Hash -> by what kinds of things it is named ("tag", "branch", "commit", "experiment"), and by which stages as an
    out.
    """

    kinds: Mapping[str, set[str]] = field(default_factory=dict)
    stages: Mapping[str, set[str]] = field(default_factory=dict)


def collect_hashes_in_git_history(root: Path) -> NamedHashes:
    """All of it; PlanError where git cannot say, since nothing may be removed then."""
    blobs, paths = _collect_dvc_file_blobs(root)
    for blob, kind in _iterate_ref_blobs(root, paths):
        blobs.setdefault(blob, set()).add(kind)
    for line in _run_git_text(root, "ls-files", "--stage", "--", *(f":(top){path}" for path in PATHS)).splitlines():
        blobs.setdefault(line.split()[1], set()).add("index")
    kinds: dict[str, set[str]] = {}
    stages: dict[str, set[str]] = {}
    for blob, text in _iterate_blob_texts(root, blobs):
        for md5 in HASH.findall(text):
            kinds.setdefault(md5, set()).update(blobs[blob])
        for stage, md5 in parse_out_hashes(text):
            stages.setdefault(md5, set()).add(stage)
    return NamedHashes(kinds, stages)


def parse_out_hashes(text: str) -> Iterator[tuple[str, str]]:
    """Stage and hash of each out in the text of a dvc.lock, as DVC writes it."""
    stage = key = ""
    for line in text.splitlines():
        if match := STAGE.fullmatch(line):
            stage = match[1].strip("'\"")
            key = ""
        elif match := KEY.match(line):
            key = match[1]
        elif key == "outs" and (match := HASH.search(line)):
            yield stage, match[0]


def _collect_dvc_file_blobs(root: Path) -> tuple[dict[str, set[str]], set[str]]:
    """Every version of every such file, by what kind of commit has it, and the paths of these files."""
    ours = _run_git_text(root, "rev-list", f"--exclude={EXPERIMENTS}", "--all").split()
    stacked = [
        commit
        for ref in _run_git_text(root, "for-each-ref", "--format=%(refname)", *STACKS).split()
        for commit in _run_git_text(root, "log", "--walk-reflogs", "--format=%H", ref, "--").split()
    ]
    experiments = _run_git_text(root, "rev-list", f"--glob={EXPERIMENTS}", "--stdin", input_lines=stacked).split()
    blobs: dict[str, set[str]] = {}
    paths = set[str]()
    reachable = set(ours)
    for kind, commits in (("commit", ours), ("experiment", [sha for sha in experiments if sha not in reachable])):
        options = ("--stdin", "-r", "-m", "--root", "--raw", "--no-abbrev", "--no-renames")
        for line in _run_git_text(root, "diff-tree", *options, "--", *PATHS, input_lines=commits).splitlines():
            if line.startswith(":"):
                facts, _, path = line.partition("\t")
                _, mode, _, blob, _ = facts[1:].split()
                if mode.startswith(("100", "120")):
                    blobs.setdefault(blob, set()).add(kind)
                    paths.add(path)
    return blobs, paths


def _iterate_ref_blobs(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The versions at branches and tags."""
    refs = _run_git_text(root, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes", "refs/tags").split()
    blob_specs = [
        (f"{ref}:{path}", "tag" if ref.startswith("refs/tags") else "branch") for ref in refs for path in paths
    ]
    answers = _run_git_text(
        root, "cat-file", "--batch-check", input_lines=[name for name, _ in blob_specs]
    ).splitlines()
    for (_, kind), answer in zip(blob_specs, answers, strict=True):
        if answer.split()[1:2] == ["blob"]:
            yield answer.split()[0], kind


def _iterate_blob_texts(root: Path, blobs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The text of each version."""
    rest = _run_git(root, ["cat-file", "--batch"], "".join(f"{blob}\n" for blob in blobs).encode())
    while rest:
        head, _, rest = rest.partition(b"\n")
        blob, kind, *size = head.decode().split()
        if kind != "blob":  # a clone that has only a part of the objects
            raise PlanError(f"git: the object {blob} is {kind}, so it cannot be known which results it names")
        end = int(size[0])
        yield blob, rest[:end].decode(errors="replace")
        rest = rest[end + 1 :]


def _run_git_text(root: Path, *arguments: str, input_lines: Iterable[str] = ()) -> str:
    return _run_git(root, arguments, "".join(f"{line}\n" for line in input_lines).encode()).decode(errors="replace")


def _run_git(root: Path, arguments: Iterable[str], stdin: bytes) -> bytes:
    try:
        return source_code.read_git_output(root, *arguments, stdin=stdin)
    except GitError as error:
        raise PlanError(f"git: {error}; without it, it cannot be known which results a commit names") from None

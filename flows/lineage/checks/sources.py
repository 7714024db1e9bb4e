"""The code that stages ran, against git: each module's hash of the record, and the file of the recorded commit with the kept patch."""

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.engine import dvc_lock
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.memory import Memory
from flows.lineage.checks.recorded import kept
from flows.lineage.checks.subjects import Subject, Unfinished, ended

CHECK = "code"
NAMED = 4  # stages that a line names
CLEAN = ("no", None)
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Tree:
    """The code of a run: a commit, and the patch that leads from it to the files that ran."""

    commit: str
    patch: Path | None = None


class Code:
    """One check of the code of many executions; git is asked once for every commit's files, and once for each patch."""

    def __init__(self, audit: Audit, root: Path, memory: Memory, unfinished: Unfinished) -> None:
        self.audit, self.root, self.memory, self.unfinished = audit, root, memory, unfinished

    def check(self, subjects: Sequence[Subject]) -> None:
        """Compare the modules of the records with git's, and those of the current results with the working files."""
        of = [(one, dvc_lock.code(one.entry)) for one in subjects]
        self.audit.counts["code files"] += len({item for _, code in of for item in code.items()})
        self._working([(one, code) for one, code in of if one.current])
        self._committed(of)

    def _working(self, current: Sequence[tuple[Subject, Mapping[str, str]]]) -> None:
        """Name each file that was changed after stages ran with it, with the stages that are out of date now."""
        files = {path: self.root / path for _, code in current for path in code}
        digests = self.memory.digests(files.values())
        for path, file in files.items():
            readers = [one for one, code in current if code.get(path, digests[file]) != digests[file]]
            late = [one for one in readers if not self.unfinished.explains(one.made, file)]
            state = "is missing" if digests[file] is None else "was changed"
            for some, note in (
                (late, self.audit.fault),
                ([one for one in readers if one not in late], self.audit.remark),
            ):
                if some:
                    run = "" if some is late else f", and {ended(self.unfinished.pipelines[0])}"
                    note(
                        CHECK, path, f"{state} after {_named(some)} ran with it: {_out_of_date(some)}{run}", None, None
                    )

    def _committed(self, of: Sequence[tuple[Subject, Mapping[str, str]]]) -> None:
        """Compare with the commit of each run, or say why that cannot be done."""
        wanted: dict[Tree, set[str]] = {}
        by_tree: dict[Tree, list[tuple[Subject, Mapping[str, str]]]] = {}
        unknown: dict[str, list[Subject]] = {}
        for one, code in of:
            if not code or one.run_id is None:
                continue
            if (why := self._unknown(one)) is not None:
                unknown.setdefault(why, []).append(one)
                continue
            tree = Tree(str(one.made.commit), one.made.patch if one.made.dirty not in CLEAN else None)
            wanted.setdefault(tree, set()).update(code)
            by_tree.setdefault(tree, []).append((one, code))
        found = files_of(self.root, wanted)
        for tree, members in by_tree.items():
            if tree not in found:
                gone = f"the commit {tree.commit[:12]} is not here (any more): rebased, or a shallow clone"
                gone = gone if tree.patch is None else f"{gone}; or the kept patch does not apply to it"
                unknown.setdefault(gone, []).extend(one for one, _ in members)
                continue
            for one, code in members:
                self._against(one, code, tree, found[tree])
        for why, some in unknown.items():
            self.audit.remark(CHECK, "git", f"the code of {_named(some)} cannot be compared: {why}")

    def _unknown(self, one: Subject) -> str | None:
        """Why git cannot tell what this run ran, or None; a patch that is not the recorded one is a fault."""
        made = one.made
        if not COMMIT.fullmatch(made.commit or ""):
            return "no commit is on record"
        if made.dirty in CLEAN:
            return None
        content = kept(self.root, str(one.run_id)) or {}
        if made.patch is None:
            if not content.get("patch"):
                return "it was not committed, and no patch was kept"
            self.audit.fault(CHECK, "uncommitted.patch", "is missing from the run's files", one.stage, one.run_id)
            return "its patch is gone"
        digest = hashlib.sha256(made.patch.read_bytes()).hexdigest()
        if content.get("patch") not in (None, digest):
            shown = made.patch.relative_to(self.root) if made.patch.is_relative_to(self.root) else made.patch
            what = f"its SHA-256 is {digest[:12]}, the run recorded {content['patch'][:12]}"
            self.audit.fault(CHECK, str(shown), what, one.stage, one.run_id)
            return "its patch was changed"
        return None

    def _against(self, one: Subject, code: Mapping[str, str], tree: Tree, found: Mapping[str, str]) -> None:
        where = f"commit {tree.commit[:12]}{' with the kept patch' if tree.patch else ''}"
        absent = [path for path in code if path not in found]
        for path, md5 in code.items():
            if path in found and found[path] != md5:
                what = f"{where} has {found[path][:12]}, the run read {md5[:12]}"
                self.audit.fault(CHECK, path, what, one.stage, one.run_id)
        if absent:
            more = f" and {len(absent) - NAMED} more" if len(absent) > NAMED else ""
            what = f"not in {where}, and so not to be compared: git ignores it, or it was too large for the patch"
            self.audit.remark(CHECK, ", ".join(absent[:NAMED]) + more, what, one.stage, one.run_id)


def files_of(root: Path, wanted: Mapping[Tree, Iterable[str]]) -> dict[Tree, dict[str, str]]:
    """Path -> MD5 of each wanted file of each tree; files that a tree lacks, and trees whose commit is gone, are left out."""
    prefix = _git(root, ["rev-parse", "--show-prefix"]).decode().strip()
    commits = list(dict.fromkeys(tree.commit for tree in wanted))
    there = dict(zip(commits, _blobs(root, [f"{commit}^{{commit}}" for commit in commits]), strict=True))
    plain = [
        (tree, path)
        for tree, paths in wanted.items()
        for path in sorted(paths)
        if not tree.patch and there[tree.commit]
    ]
    found: dict[Tree, dict[str, str]] = {tree: {} for tree in wanted if there[tree.commit]}
    blobs = _blobs(root, [f"{tree.commit}:{prefix}{path}" for tree, path in plain])
    for (tree, path), md5 in zip(plain, blobs, strict=True):
        if md5:
            found[tree][path] = md5
    for tree, paths in wanted.items():
        if tree.patch and tree in found:
            patched = _patched(root, prefix, tree, sorted(paths))
            if patched is None:
                del found[tree]
            else:
                found[tree] = patched
    return found


def _patched(root: Path, prefix: str, tree: Tree, paths: Sequence[str]) -> dict[str, str] | None:
    """The same of a commit with a patch, through an index and an object store beside the repository's own."""
    assert tree.patch is not None
    with tempfile.TemporaryDirectory() as folder:
        objects = Path(os.fsdecode(_git(root, ["rev-parse", "--git-path", "objects"]).rstrip(b"\n")))
        environ = {
            "GIT_INDEX_FILE": f"{folder}/index",
            "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(root / objects),
        }
        Path(folder, "objects").mkdir()
        _git(root, ["read-tree", tree.commit], environ)
        apply = ["apply", "--cached", "--binary", "--whitespace=nowarn", "--verbose", str(tree.patch.absolute())]
        if tree.patch.stat().st_size and _status(root, apply, environ):
            return None
        blobs = _blobs(root, [f":{prefix}{path}" for path in paths], environ)
        return {path: md5 for path, md5 in zip(paths, blobs, strict=True) if md5}


def _blobs(root: Path, names: Sequence[str], environ: Mapping[str, str] | None = None) -> list[str | None]:
    """The MD5 of the content of each of git's objects, None for one that is not there; each content is read once."""
    if not names:
        return []
    asked = "".join(f"{name}\n" if "\n" not in name else "-\n" for name in names)
    headers = _git(root, ["cat-file", "--batch-check"], environ, asked.encode()).split(b"\n")
    parts = [header.split(b" ") for header in headers[: len(names)]]
    parts += [[]] * (len(names) - len(parts))  # there is no git
    ids = [part[0] if len(part) == 3 and part[2].isdigit() else None for part in parts]
    content = _contents(root, list(dict.fromkeys(filter(None, ids))), environ)
    return [content.get(one) if one else None for one in ids]


def _contents(root: Path, ids: Sequence[bytes], environ: Mapping[str, str] | None) -> dict[bytes, str]:
    """Object -> the MD5 of its content."""
    text, found, at = (
        _git(root, ["cat-file", "--batch"], environ, b"".join(one + b"\n" for one in ids)),
        dict[bytes, str](),
        0,
    )
    for one in ids:
        end = text.find(b"\n", at)
        size = int(text[at:end].split(b" ")[2])
        found[one] = hashlib.md5(text[end + 1 : end + 1 + size], usedforsecurity=False).hexdigest()
        at = end + size + 2
    return found


def _git(root: Path, arguments: Sequence[str], environ: Mapping[str, str] | None = None, given: bytes = b"") -> bytes:
    """What git prints; nothing where there is no git."""
    try:
        return _call(root, arguments, environ, given).stdout
    except OSError:
        return b""


def _status(root: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    return _call(root, arguments, environ, b"").returncode


def _call(
    root: Path, arguments: Sequence[str], environ: Mapping[str, str] | None, given: bytes
) -> subprocess.CompletedProcess[bytes]:
    variables = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1", **(environ or {})}
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, input=given, check=False, env=variables)


def _named(subjects: Sequence[Subject]) -> str:
    names = list(dict.fromkeys(one.stage for one in subjects))
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _out_of_date(subjects: Sequence[Subject]) -> str:
    names = {one.stage for one in subjects}
    return f"{next(iter(names))} is out of date" if len(names) == 1 else "they are out of date"

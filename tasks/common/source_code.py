"""The code of a run as git has it: the commit, the files that differ from it, and the difference itself as a patch.

What holds a secret is in none of these. Where git cannot say, its own reason is on record instead: nothing is guessed.
The flows import this module too, so that `posttrain run` and plain `dvc repro` keep the same.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

PATCH = "uncommitted.patch"  # the file's name among a run's artifacts
NO_COMMIT = (None, "none", "unknown")  # what a run has for a commit where none is known
LARGEST = 2**20  # bytes of an untracked file that a patch may hold; larger ones are data, and only named
ALTOGETHER = 16 * LARGEST  # of all untracked files in a patch
YOUNG = 10**8  # nanoseconds: a file may change twice within a tick of its file system's clock
NAMED = 4000  # letters of the list of files that differ
EVERYTHING = ("--", ".", ":!dvc.lock", ":!mlruns")  # dvc.lock is recorded with the runs, and mlruns/ is the record

STATUS = ("--porcelain=v2", "--branch", "--no-ahead-behind", "-z", "--no-renames", "--untracked-files=all")
# Kind of a line of that -> the fields between it and the path, and those of them that name the content before: changed,
# unmerged, untracked.
FIELDS = {"1": (7, slice(5, 6)), "u": (9, slice(6, 9)), "?": (0, slice(0))}
# What git's hooks and aliases set for one repository, which may be another than the one that a folder is in.
OF_ONE_REPOSITORY = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)
PLAIN = (  # a patch does not depend on anybody's settings
    "--binary",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--submodule=short",
    "--relative",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)

# Files whose very purpose is a secret, by their names in lower case, and folders that hold such files.
SECRET_FILES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd"),
    *(
        ".git-credentials",
        ".dockercfg",
        ".databrickscfg",
        ".s3cfg",
        ".boto",
        "rclone.conf",
        "kubeconfig*",
        "*.kubeconfig",
    ),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.kdbx", "*.gpg", "id_rsa*", "id_dsa*"),
    *("id_ecdsa*", "id_ed25519*", "config.local", "kaggle.json", "*.tfstate*", "*.tfvars", "service[-_]account*.json"),
)
SECRET_FOLDERS = {".aws", ".ssh", ".gnupg", ".kube", ".azure", ".docker", "gcloud", ".huggingface"}
SECRET_WORD = re.compile(
    r"(?<![a-z])(secrets?|credentials?|passwords?|passwd|(api|access|private)[-_ ]?keys?|"
    r"(hf|huggingface|wandb|openai|github|vault|api|auth|access|refresh|bot)[-_ ]?token)(?![a-z])|^\.?token(\.|$)"
)
CODE = {".py", ".md", ".rst", ".html", ".css", ".js", ".j2"}  # a module may be named after a secret without holding one
TEMPLATES = (".example", ".sample", ".template", ".dist")  # what people commit in place of such a file
# Secrets by their own form: private keys, tokens with the prefixes by which their issuers have them found, assignments,
# addresses.
SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|PuTTY-User-Key-File-\d|"
    rb"(?<![A-Za-z0-9_-])(?:"
    rb"hf_(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*\d)[A-Za-z0-9]{8}|gh[pousr]_[A-Za-z0-9]{20}|github_pat_\w{22}|glpat-[\w-]{20}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{50}|"
    rb"A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|xox[abeoprs]-[\w-]{10}|"
    rb"sk-(?:[A-Za-z0-9]{20}|(?:proj|svcacct|admin|or-v1|ant-[a-z0-9]+)-[\w-]{20}))|"
    rb"^[ \t]*(?:export[ \t]+)?[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|_KEY)=[\"']?[^\s\"'$<{(.]{8}|"
    rb"(?i:(?:password|passwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token)[\"']?[ \t]*[:=][ \t]*[\"']?"
    rb"(?=[^\s\"']*\d)[a-z0-9+/_=-]{16})|"
    rb"://[^\s/:@\"'{}<>$]+:[^\s/:@\"'{}<>$]{8,}@",
    re.MULTILINE,
)

# By root the last state and what decides it: a run asks at each of its stages.
_last: dict[Path, tuple[object, "CodeState"]] = {}


class GitError(Exception):
    """Git cannot say what it was asked; its own reason, as one line."""


@dataclass(frozen=True)
class CodeState:
    """The state of the code.

    Without git, or without a commit, only the hashes of the files tell what a run was made with.
    """

    commit: str  # "none" where there is none, "unknown" where git cannot say
    dirty: str  # the files that differ from the commit; "no" if none that may be named does, "unknown" without git
    patch: bytes | None = (
        None  # what makes these files out of the commit's; None where nothing that may be kept differs
    )
    note: str = ""  # what of it is not on record, and why

    @property
    def digest(self) -> str | None:
        """SHA-256 of the patch."""
        return None if self.patch is None else hashlib.sha256(self.patch).hexdigest()

    def tags(self) -> dict[str, str]:
        """All of it but the patch itself as a run's tags in MLflow."""
        facts = {"git_commit": self.commit, "git_dirty": self.dirty, "git_note": self.note, "patch": self.digest}
        return {f"posttrain.{name}": value for name, value in facts.items() if value}


@dataclass(frozen=True)
class _Change:
    """A file that differs: its kind in FIELDS, its path from the root, and git's objects with its content before."""

    kind: str
    path: str
    before: tuple[str, ...]


def read_code_state(root: Path) -> CodeState:
    """The commit, the files that differ from it, untracked ones that are not ignored included, and their difference to
    it.
    """
    root = root.absolute()
    try:
        return _read_git_state(root)
    except GitError as error:
        return CodeState("unknown" if _is_within_git(root) else "none", "unknown", note=f"git: {error}")


def read_git_output(root: Path, *arguments: str, environ: Mapping[str, str] | None = None, stdin: bytes = b"") -> bytes:
    """What git prints for the repository that `root` is in; GitError where it fails, or is not installed."""
    try:
        done = call_git(root, arguments, environ, stdin)
    except OSError as error:
        raise GitError(f"it cannot be started ({error.strerror})") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        reason = next((" ".join(line.split()) for line in lines if line.strip()), f"exit status {done.returncode}")
        raise GitError(reason)
    return done.stdout


def call_git(
    root: Path, arguments: Iterable[str], environ: Mapping[str, str] | None = None, stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """The end of a git command that changes nothing; OSError where git is not installed."""
    left_out = OF_ONE_REPOSITORY if _is_within_git(root) else ()
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    variables = {
        **inherited,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
        **(environ or {}),
    }
    return subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, input=stdin, check=False, env=variables
    )


def find_git_fault(root: Path) -> str:
    """Why git cannot be asked about this folder, in its own words; empty where it can."""
    try:
        read_git_output(root, "rev-parse", "--git-dir")
    except GitError as error:
        return str(error)
    return ""


def read_git_objects(root: Path, objects: Sequence[str], environ: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The content of each of git's objects; those that are not there are left out."""
    by_object: dict[str, bytes] = {}
    if not objects:
        return by_object
    text = read_git_output(
        root, "cat-file", "--batch", environ=environ, stdin="".join(f"{object_id}\n" for object_id in objects).encode()
    )
    at = 0
    for object_id in objects:
        end = text.index(b"\n", at)
        *_, size = text[at:end].split(b" ")
        at = end + 1
        if size.isdigit():  # else it is missing
            by_object[object_id] = text[at : at + int(size)]
            at += int(size) + 1
    return by_object


def is_secret_path(path: str) -> bool:
    """Whether a file is there to hold a secret, by its name or that of a folder above it."""
    *folders, name = PurePosixPath(path.lower()).parts
    word = SECRET_WORD.search(name) and PurePosixPath(name).suffix not in CODE
    named = word or any(fnmatch(name, pattern) for pattern in SECRET_FILES)
    return bool(SECRET_FOLDERS.intersection(folders) or (named and not name.endswith(TEMPLATES)))


def _is_within_git(root: Path) -> bool:
    """Whether the folder or one above it has a .git, readable or not."""
    folder = root.resolve()
    return any(os.path.lexists(ancestor / ".git") for ancestor in (folder, *folder.parents))


def _read_git_state(root: Path) -> CodeState:
    prefix = (
        ""
        if (root / ".git").exists()
        else os.fsdecode(read_git_output(root, "rev-parse", "--show-prefix")).rstrip("\n")
    )
    commit = "none"
    changed = list[_Change]()
    for line in read_git_output(root, "status", *STATUS, *EVERYTHING).split(b"\0"):
        kind, _, rest = line.decode(errors="surrogateescape").partition(" ")
        if rest == "branch.oid (initial)":
            commit = "none"
        elif rest == "branch.head (unknown)":  # for git the branch has no commit: it cannot be read
            read_git_output(root, "log", "-1")
        elif rest.startswith("branch.oid "):
            commit = rest.removeprefix("branch.oid ")
        elif kind in FIELDS:
            count, before = FIELDS[kind]
            *fields, path = rest.split(" ", count)
            changed.append(_Change(kind, path.removeprefix(prefix), tuple(fields[before])))
    if commit != "none" and not (root / ".git").exists() and not _has_tracked_files(root):
        raise GitError("the repository that it would take tracks nothing of this folder")
    if not changed:
        return CodeState(commit, "no")
    looked_at = time.time_ns()
    facts = tuple(_read_file_stat(root / change.path) for change in changed)
    key = commit, tuple(changed), facts
    cached = _last.get(root)
    if cached is not None and cached[0] == key:
        return cached[1]
    source = _build_dirty_state(root, commit, changed)
    if looked_at - max((file_facts[1] for file_facts in facts if file_facts), default=0) > YOUNG:
        _last[root] = key, source
    return source


def _has_tracked_files(root: Path) -> bool:
    """Whether a file of the folder belongs to the repository, which is one above, or the one that GIT_DIR names."""
    tracked = read_git_output(root, "ls-files", "-z").split(b"\0")
    return any((root / os.fsdecode(name)).exists() for name in tracked if name)


def _build_dirty_state(root: Path, commit: str, changed: Sequence[_Change]) -> CodeState:
    """The state where these files differ from the commit."""
    secret = _find_secret_paths(root, changed)
    open_ = [change for change in changed if change.path not in secret]
    dirty = " ".join(change.path for change in open_)[:NAMED] or "no"
    notes = [_format_left_out_note(len(secret))] if secret else []
    patch = b""
    if open_ and commit != "none":
        try:
            patch = _make_patch(
                root, _select_small_files(root, [change.path for change in open_ if change.kind == "?"]), secret
            )
        except GitError as error:
            notes.append(f"no patch was kept; git: {error}")
    return CodeState(commit, dirty, patch or None, "; ".join(notes))


def _format_left_out_note(count: int) -> str:
    files = "1 file that differs is" if count == 1 else f"{count} files that differ are"
    return f"{files} neither named nor kept, for a name or a content as secrets have them (.gitignore can list them)"


def _find_secret_paths(root: Path, changed: Sequence[_Change]) -> set[str]:
    """The paths of files that hold a secret by their names, or in their content now or before."""
    secret_paths = {change.path for change in changed if is_secret_path(change.path)}
    rest = [change for change in changed if change.path not in secret_paths]
    objects = list(dict.fromkeys(object_id for change in rest for object_id in change.before if object_id.strip("0")))
    before = read_git_objects(root, objects)
    for change in rest:
        texts = [
            _read_file_content(root / change.path, change.kind == "?"),
            *(before.get(object_id, b"") for object_id in change.before),
        ]
        if any(SECRET.search(text) for text in texts):
            secret_paths.add(change.path)
    return secret_paths


def _read_file_content(path: Path, untracked: bool) -> bytes:
    """What a regular file has; nothing of an untracked one that is too large for a patch."""
    with suppress(OSError):  # it is gone, or cannot be read
        facts = path.lstat()
        if stat.S_ISREG(facts.st_mode) and not (untracked and facts.st_size > LARGEST):
            return path.read_bytes()
    return b""


def _read_file_stat(path: Path) -> tuple[int, int, int, int] | None:
    """Size, times of inode and content, and inode; None where there is nothing."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size, status.st_ctime_ns, status.st_mtime_ns, status.st_ino


def _select_small_files(root: Path, untracked: list[str]) -> list[str]:
    """Those of the files that are small enough for a patch, each and together."""
    kept = list[str]()
    size = 0
    for path in untracked:
        with suppress(OSError):  # it is gone already
            facts = (root / path).lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST:
                size += facts.st_size
                kept.append(path)
    return kept if size <= ALTOGETHER else []


def _make_patch(root: Path, untracked: list[str], left_out: Iterable[str]) -> bytes:
    """The difference of the working files to the commit, through a copy of git's index: nothing of the repository
    changes.
    """
    index = root / os.fsdecode(read_git_output(root, "rev-parse", "--git-path", "index").rstrip(b"\n"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "index")
        environ = {"GIT_INDEX_FILE": str(copy)}
        if index.is_file():
            shutil.copy2(index, copy)  # with its time, by which git tells which files it has to read again
        names = "\0".join(untracked).encode(errors="surrogateescape")
        if untracked:
            options = ("--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            read_git_output(root, "--literal-pathspecs", "add", *options, environ=environ, stdin=names)
        others = (f":(exclude,literal){path}" for path in sorted(left_out))
        return read_git_output(root, "diff", *PLAIN, "HEAD", *EVERYTHING, *others, environ=environ)

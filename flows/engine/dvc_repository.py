"""DVC's view of the repository. A broken file or a missing folder is reported in one line.

The engine calls DVC's internal interface in the modules named dvc_*, and changes it in one place, `cache_parsed_params`
below. Both were written for DVC 3.67; tests/flows/engine/test_dvc_interface.py fails where another version does not
fit.
"""

import fcntl
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml.error import YAMLError

from flows.params.files import MOST, PARAMS, ParameterError, check_yaml_size

if TYPE_CHECKING:
    from flows.engine.dvc_closure import Repo

LOCK = Path(".dvc/tmp/lock")
LOOK_SECONDS = 0.2  # between two tries to have DVC's lock
GIVE_UP_SECONDS = 30.0  # with core.hardlink_lock
MOST_RECORDED = 5_000_000  # values in dvc.lock, which has some hundred for each stage
SHOWN = 100  # letters of another process's command


class PlanError(Exception):
    """Wrong use or a broken file. The text is one line: the file, key or stage, and what was expected."""


def open_repo(root: Path) -> "Repo":
    """The DVC repository at `root`, with a damaged rwlock mended and DVC's own output turned off."""
    from flows.engine.dvc_walk import Repository

    for name in ("dvc", "dvc_data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # turns off the progress bars as well
    if {*"{}"} & {*str(root.absolute())}:
        raise PlanError(f"{root}: DVC takes braces in a path for the fields of its progress bars; move the repository")
    _check_yaml_sizes(root)
    with convert_dvc_errors_to_plan_error():
        repo = Repository(str(root), _wait_for_lock=True)
        delete_stale_lock_files(repo)
        delete_corrupt_rwlock(repo)
    return repo


def _check_yaml_sizes(root: Path) -> None:
    """PlanError where DVC's reader would crash over one of its files, or never end."""
    for name, most in ((PARAMS, MOST), ("dvc.yaml", MOST), ("dvc.lock", MOST_RECORDED)):
        with suppress(OSError, YAMLError):  # which DVC names
            try:
                check_yaml_size((root / name).read_bytes().decode(errors="replace"), most)
            except ParameterError as error:
                raise PlanError(_format_file_problem(name, str(error))) from None


@contextmanager
def hold_dvc_lock(repo: "Repo", waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold DVC's repository lock. What was read of its settings stays, as it does all through a `dvc repro`; DVC's own
    `lock_repo` reads it anew.

    While another process has it, `waiting` is called again and again with a line that says so, and may raise; without
    it the line is printed once.
    """
    _wait_for_dvc_lock(repo, waiting or _make_once_printer())
    try:
        with repo.scm_context(quiet=True):
            repo._lock_depth += 1  # so that DVC's own functions do not take it again
            try:
                yield
            finally:
                repo._lock_depth -= 1
    finally:
        repo.lock.unlock()


def _wait_for_dvc_lock(repo: "Repo", waiting: Callable[[str], None]) -> None:
    """Try again and again: a thread in DVC's own wait for its lock would say nothing, and could not be stopped.

    PlanError after a while with `core.hardlink_lock`, where nothing tells a lock that is held from one that a kill has
    left.
    """
    from dvc.lock import HardlinkLock, LockError

    lock: Any = repo.lock
    hard = isinstance(lock, HardlinkLock)
    try_once = partial(lock.lock, timedelta(0)) if hard else getattr(lock, "_do_lock", lock.lock)
    patience = time.monotonic() + GIVE_UP_SECONDS
    while True:
        delete_stale_lock_files(repo)
        try:
            try_once()
            return
        except LockError:
            if hard and time.monotonic() > patience:
                left = (
                    "with core.hardlink_lock DVC cannot tell whether a process holds it or was killed; if no "
                    "dvc runs, delete it"
                )
                raise PlanError(
                    f"{LOCK}: another process has held DVC's lock for {GIVE_UP_SECONDS:.0f} s; {left}"
                ) from None
            waiting(f"waits for DVC's lock, which {_format_lock_holder(repo)} holds")
            time.sleep(LOOK_SECONDS)


def _make_once_printer() -> Callable[[str], None]:
    """What prints each line once."""
    printed = set[str]()

    def write(line: str) -> None:
        if line not in printed:
            printed.add(line)
            print(line, file=sys.stderr, flush=True)

    return write


def _format_lock_holder(repo: "Repo") -> str:
    """The process whose number DVC's lock has, with its command."""
    import psutil

    with suppress(OSError, ValueError, psutil.Error, AttributeError):
        process = psutil.Process(int(Path(repo.lock.lockfile).read_text()))
        command = " ".join(word for word in " ".join(process.cmdline()).split() if word.isprintable())
        return f"process {process.pid} ({command if len(command) <= SHOWN else f'{command[:SHOWN]} ..'})"
    return "another process"


def delete_stale_lock_files(repo: "Repo") -> None:
    """With `core.hardlink_lock` a lock's file is the lock: remove those that the other kind of lock left, which hold
    nothing.
    """
    if not repo.config["core"].get("hardlink_lock", False):
        return
    for path in (Path(repo.tmp_dir or "", name) for name in (LOCK.name, "rwlock.lock")):
        with suppress(FileNotFoundError), path.open() as file:
            if file.read().strip().endswith(".lock"):  # a hard link names the file that it links to
                continue
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


class Repositories:
    """Repositories of one root for threads that take turns: to open one takes longer than most of what a stage asks of
    it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._free = list["Repo"]()

    @contextmanager
    def borrow_repository(self) -> "Iterator[Repo]":
        """One that no other thread has."""
        try:
            repo = self._free.pop()
        except IndexError:
            repo = open_repo(self.root)
        else:
            with convert_dvc_errors_to_plan_error():
                repo.__dict__.pop("dvcignore", None)  # it may have changed
                delete_corrupt_rwlock(repo)
        try:
            yield repo
        except BaseException:
            repo.close()
            raise
        self._free.append(repo)

    def close(self) -> None:
        """Close those that nobody has."""
        while self._free:
            self._free.pop().close()


def delete_corrupt_rwlock(repo: "Repo") -> None:
    """Remove a .dvc/tmp/rwlock that is empty or torn: DVC would refuse every run because of it (treeverse/dvc#7615)."""
    from dvc.lock import make_lock

    path = Path(repo.tmp_dir or "", "rwlock")
    if not path.exists() or _is_json_object(path):
        return
    with make_lock(f"{path}.lock", tmp_dir=repo.tmp_dir, hardlink_lock=repo.config["core"].get("hardlink_lock", False)):
        if path.exists() and not _is_json_object(path):
            path.unlink()


def delete_killed_reservations(root: Path, command: str) -> None:
    """Take out of .dvc/tmp/rwlock the reservations of a command that begins with `command` and was killed.

    DVC itself keeps them while any process has the same pid, which may be another process by then.
    """
    path = root / ".dvc/tmp/rwlock"
    if not path.exists() or command not in path.read_text():  # as every finished run leaves it
        return
    from dvc.rwlock import _edit_rwlock

    with (
        closing(open_repo(root)) as repo,
        _edit_rwlock(repo.tmp_dir, repo.fs, repo.config["core"].get("hardlink_lock", False)) as held,
    ):
        readers = {
            path: [reservation for reservation in reservations if not reservation["cmd"].startswith(command)]
            for path, reservations in held["read"].items()
        }
        held["read"] = {path: reservations for path, reservations in readers.items() if reservations}
        held["write"] = {
            path: reservation
            for path, reservation in held["write"].items()
            if not reservation["cmd"].startswith(command)
        }


def _is_json_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text()), dict)
    except (OSError, ValueError):
        return False


@contextmanager
def convert_dvc_errors_to_plan_error(file: str = "") -> Iterator[None]:
    """Turn what DVC raises over a broken file into a PlanError of one line, which names `file` if it names none."""
    from dvc.exceptions import DvcException
    from dvc.scm import SCMError

    try:
        yield
    except (DvcException, SCMError) as error:
        line = _format_dvc_error(error)
        raise PlanError(line if not file or ".yaml" in line or ".lock" in line else f"{file}: {line}") from error


def _format_dvc_error(error: Exception) -> str:
    from dvc.exceptions import NotDvcRepoError, OutputDuplicationError
    from dvc.scm import SCMError
    from dvc.utils.serialize import YAMLFileCorruptedError
    from dvc.utils.strictyaml import YAMLSyntaxError, YAMLValidationError

    if isinstance(error, NotDvcRepoError):
        return ".dvc: not found here or above; run `dvc init` first, or start from the repository's folder"
    if isinstance(error, SCMError):
        return ".git: DVC expects a git repository here; run `git init`, or `dvc init --no-scm -f` to do without"
    if isinstance(error, OutputDuplicationError):
        return f"out {error.output}: made by more than one stage: {', '.join(sorted(s.name for s in error.stages))}"
    if isinstance(error, YAMLSyntaxError):
        return _format_file_problem(error.path, _format_yaml_error(error.exc.__cause__))
    if isinstance(error, YAMLFileCorruptedError):
        return _format_file_problem(error.path, _format_yaml_error(error.__cause__))
    if isinstance(error, YAMLValidationError):
        invalid = error.exc
        where = ".".join(str(part) for part in getattr(invalid, "path", []))
        return _format_file_problem(error.path, f"{where or 'content'}: {getattr(invalid, 'msg', invalid)}")
    cause = error.__cause__
    while cause is not None and not hasattr(cause, "problem_mark"):
        cause = cause.__cause__
    return " ".join(f"{error}{f': {_format_yaml_error(cause)}' if cause else ''}".split())


def _format_file_problem(path: str, problem: str) -> str:
    name = Path(path).name
    hint = ""
    marker = _find_conflict_line(Path(path))
    if marker is not None:
        problem = f"git's conflict markers from line {marker}"
    if name == "dvc.lock":
        whole = "`git checkout --ours dvc.lock` or `--theirs`" if marker is not None else "`git checkout dvc.lock`"
        hint = f" (restore it with {whole}, or delete it: results come back from the cache)"
    return f"{name}: {problem}{hint}"


def _find_conflict_line(path: Path) -> int | None:
    """The line of a file at which git's first conflict begins."""
    with suppress(OSError, UnicodeDecodeError):
        lines = path.read_text().splitlines()
        return next((number for number, line in enumerate(lines, 1) if line.startswith("<<<<<<< ")), None)
    return None


def _format_yaml_error(cause: BaseException | None) -> str:
    """The line of the YAML fault, and what the parser says of it."""
    mark = getattr(cause, "problem_mark", None)
    return f"broken YAML in line {mark.line + 1}: {getattr(cause, 'problem', None)}" if mark else "broken YAML"


@contextmanager
def cache_parsed_params() -> Iterator[None]:
    """Let DVC parse params.yaml once for all stages, and find a key without a search; nothing may write the file
    meanwhile.

    DVC has no supported way to keep parsed params between stages, so two of its functions are replaced, and put back at
    the end.
    """
    from dvc.dependency import param

    load = param.load_path
    read = param.read_param_file
    parsed = dict[str, Any]()

    def load_once(path: str, *arguments: Any, **options: Any) -> Any:
        if path not in parsed:
            parsed[path] = load(path, *arguments, **options)
        return parsed[path]

    def find(fs: Any, path: str, keys: Sequence[str] | None = None, flatten: bool = False, **options: Any) -> Any:
        values = {key: _get_nested_value(load_once(path, fs, **options), key) for key in keys or () if flatten}
        straight = {key: value for key, value in values.items() if value is not None}
        rest = [key for key in keys or () if key not in straight]
        return {**straight, **read(fs, path, rest, flatten, **options)} if rest or not keys else straight

    param.load_path = load_once
    param.read_param_file = find
    try:
        yield
    finally:
        param.load_path = load
        param.read_param_file = read


def _get_nested_value(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values

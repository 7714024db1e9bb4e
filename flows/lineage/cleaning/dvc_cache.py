"""DVC's cache as `posttrain clean` finds it: where it is, what is in it, and that nobody else is at work on it."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flows.engine.dvc_repository import PlanError, convert_dvc_errors_to_plan_error, open_repo
from flows.engine.dvc_repository import hold_dvc_lock as hold_lock
from flows.lineage.cache_objects import MD5


@dataclass(frozen=True)
class Cache:
    """The folders of the cache.

    `shared` where they are not in the repository; without `git` no commit can name anything.
    """

    objects: Path
    run_cache: Path
    shared: bool
    git: bool
    remotes: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """One object: its file, its bytes, how many names the file has, and when it was made."""

    md5: str
    file: Path
    size: int
    links: int
    made: float

    @property
    def frees(self) -> int:
        """The bytes that are free when it is gone: none where another file is the same one."""
        return self.size if self.links < 2 else 0


def locate_dvc_cache(root: Path) -> Cache:
    """Where the cache is; PlanError where DVC cannot say."""
    with convert_dvc_errors_to_plan_error(), closing(open_repo(root)) as repo:
        objects = Path(repo.cache.local.path)
        return Cache(
            objects,
            Path(repo.stage_cache.cache_dir),
            not objects.resolve().is_relative_to(root.resolve()),
            not repo.config["core"].get("no_scm", False),
            tuple(repo.config["remote"]),
        )


@contextmanager
def hold_dvc_lock_if_idle(root: Path) -> Iterator[None]:
    """Hold DVC's lock, so that no command of DVC records anything meanwhile; PlanError while one runs a stage."""
    with convert_dvc_errors_to_plan_error(), closing(open_repo(root)) as repo, hold_lock(repo):
        for file in (root / ".dvc/tmp/rwlock", *(root / ".dvc/tmp/exps").glob("*/.dvc/tmp/rwlock")):
            if (command := _find_live_command(file)) is not None:
                raise PlanError(f"`{command}` is at work in this repository; wait for it, or stop it")
        yield


def list_cache_objects(cache: Cache) -> dict[str, Stored]:
    """Every object by its hash; files with other names, as DVC's half-written ones, are none."""
    objects: dict[str, Stored] = {}
    for folder in cache.objects.glob("[0-9a-f][0-9a-f]"):
        with os.scandir(folder) as entries:
            for entry in entries:
                md5 = folder.name + entry.name
                if MD5.fullmatch(md5) and entry.is_file():
                    facts = entry.stat()
                    objects[md5] = Stored(md5, Path(entry.path), facts.st_size, facts.st_nlink, facts.st_mtime)
    return objects


def _find_live_command(file: Path) -> str | None:
    """The command of a live process that has reserved paths in a repository's rwlock."""
    try:
        held = json.loads(file.read_text())
        ones = [*held["write"].values(), *(reservation for readers in held["read"].values() for reservation in readers)]
        return next((str(reservation["cmd"]) for reservation in ones if _is_process_alive(reservation["pid"])), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True

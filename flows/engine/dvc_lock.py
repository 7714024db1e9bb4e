"""dvc.lock, read and written so that a kill at any moment leaves it whole.

DVC writes the file in place, and a torn file makes every later command fail. The text is what DVC would have written,
but only the entry of one stage is written anew: DVC takes some seconds to parse and dump the entries of a hundred
stages.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage

LOCKFILE = "dvc.lock"
CODE = "data/code/"  # where the stage `code` writes of what code each stage is made
NEW = "schema: '2.0'\n"
Entry = Mapping[str, Any]  # of one stage: cmd, deps, params, outs


def read_lock_entries(root: Path) -> dict[str, Any]:
    """What dvc.lock records of each stage: `cmd`, `deps`, `params`, `outs`. Not to be changed."""
    path = root / LOCKFILE
    if not path.exists():
        return {}
    facts = path.stat()
    return dict(_load_lock_file(str(path), facts.st_ino, facts.st_mtime_ns, facts.st_size).get("stages") or {})


@lru_cache(maxsize=1)
def _load_lock_file(path: str, *_: int) -> dict[str, Any]:
    """The file's content, parsed again only when its size or times have changed."""
    from dvc.utils.serialize import load_yaml

    content: dict[str, Any] = load_yaml(path)
    return content


def parse_lock_entries(text: str, name: str) -> dict[str, Any]:
    """What the text of a dvc.lock records of each stage; `name` stands in the message where it is broken."""
    from dvc.utils.serialize import parse_yaml

    return dict(parse_yaml(text, name).get("stages") or {})


def read_lock_entry(root: Path, stage: str) -> dict[str, Any] | None:
    """What dvc.lock records of one stage."""
    from dvc.utils.serialize import parse_yaml

    path = root / LOCKFILE
    if not path.exists():
        return None
    return (parse_yaml(filter_lock_text(path.read_text(), [stage]), str(path)).get("stages") or {}).get(stage)


def filter_lock_text(text: str, names: Collection[str]) -> str:
    """The text of these stages' entries in dvc.lock, and of the last entry, which shows whether the file was torn."""
    head, *entries = re.split(r"^(?=  \S)", text, flags=re.MULTILINE)
    return head + "".join(e for e in entries if e is entries[-1] or e.split(":", 1)[0].strip(" '\"") in names)


def write_lock_entry(root: Path, stage: "PipelineStage") -> None:
    """Record a stage as DVC would."""
    write_lock_entries(root, [stage])


def write_lock_entries(root: Path, stages: "Sequence[PipelineStage]") -> None:
    """Record stages as DVC would, all or none; a temporary file replaces dvc.lock only when it is safely on disk."""
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import dumps_yaml

    # Not beside it: git would show a stage that starts meanwhile a file that nobody has committed.
    path = root / LOCKFILE
    temporary = root / f".dvc/tmp/{LOCKFILE}.new"
    text = path.read_text() if path.exists() else NEW
    for stage in stages:
        text = replace_entry_in_lock_text(text, dumps_yaml({"stages": to_lockfile(stage)}).removeprefix("stages:\n"))
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    for stage in stages:
        stage.repo.scm_context.track_file(LOCKFILE)


def replace_entry_in_lock_text(text: str, entry: str) -> str:
    """The text of dvc.lock with a stage's new entry in place of its old one, or after the other stages' entries.

    An entry is a line with its name, indented by two, and the lines below it that are empty or indented further.
    """
    lines = StringIO(text.replace("\nstages: {}\n", "\nstages:\n")).readlines()
    if "stages:\n" not in lines:
        lines.append("stages:\n")
    name = entry[: entry.index("\n") + 1]
    begin, depth = (lines.index(name), 2) if name in lines else (lines.index("stages:\n"), 0)
    below = (at for at in range(begin + 1, len(lines)) if lines[at][: depth + 1].strip())
    end = next(below, len(lines))
    lines[begin if depth else end : end] = [entry]
    return "".join(lines)


def get_entry_hashes(entry: Entry, kind: str) -> dict[str, str]:
    """Path and hash of each of an entry's `deps` or `outs`."""
    return {item["path"]: item.get("md5") or "" for item in entry.get(kind, [])}


def get_code_hashes(entry: Entry) -> dict[str, str]:
    """Path and hash of each dep that is code."""
    return {path: md5 for path, md5 in get_entry_hashes(entry, "deps").items() if is_code_path(path)}


def get_data_hashes(entry: Entry) -> dict[str, str]:
    """Path and hash of each dep that is no code."""
    return {path: md5 for path, md5 in get_entry_hashes(entry, "deps").items() if not is_code_path(path)}


def is_code_path(path: str) -> bool:
    """Whether a dep is code: a file of the stage `code`, or a module."""
    return path.startswith(CODE) or path.endswith(".py")


def compute_code_hash(code: Mapping[str, str]) -> str:
    """One hash for all modules: SHA-256 of the lines `hash path`, in the order of the paths."""
    return hashlib.sha256("".join(f"{md5} {path}\n" for path, md5 in sorted(code.items())).encode()).hexdigest()


def join_out_hashes(entry: Entry) -> str:
    """The hashes of all outs as one text."""
    return " ".join(value for _, value in sorted(get_entry_hashes(entry, "outs").items()))

"""A scratch copy in which a recorded command can run again: its code, its inputs and its parameters, each checked
before it starts.

What matters is the hash of a file, not where its bytes come from. So a file that the recorded commit and patch do not
give is taken from DVC's cache or from the workspace, if one of them has exactly the recorded bytes.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from flows.engine import stage_code
from flows.engine.dvc_lock import get_entry_hashes, is_code_path
from flows.engine.dvc_repository import PlanError
from flows.engine.previous_outputs import delete_path
from flows.lineage import cache_objects
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.reproduction import checkout, digests
from flows.lineage.reproduction.checkout import CheckoutError
from flows.lineage.reproduction.digests import Files
from tasks.common import source_code
from tasks.common.source_code import NO_COMMIT

SHORT = 8  # letters of a commit or hash in a message


class CannotReproduceError(Exception):
    """Something that the recorded run read cannot be had any more, or its command cannot be run in a copy; one line."""


@dataclass
class ScratchCopy:
    """The copy at `root`, what was taken from elsewhere than the record says (`notes`), and the digests of all inputs
    by dep.
    """

    root: Path
    notes: list[str] = field(default_factory=list)
    inputs: dict[str, Files] = field(default_factory=dict)


def make_scratch_copy(repository: Path, record: ExecutionRecord, target: Path) -> ScratchCopy:
    """Lay out the copy in the empty folder `target`; CannotReproduceError before anything runs if an input is not what
    it was.
    """
    _check_paths_and_command(repository, record)
    copy = ScratchCopy(target)
    wanted = get_entry_hashes(record.entry, "deps")
    outs = get_entry_hashes(record.entry, "outs")
    try:
        source = _write_recorded_code(repository, record, copy, {*wanted, *outs})
    except CheckoutError as error:
        raise CannotReproduceError(str(error)) from None
    _restore_recorded_params(record, copy)  # before the copy's own stage `code` reads what they choose
    for path, md5 in wanted.items():
        copy.inputs[path] = _restore_dependency(repository, copy, path, md5, source)
    for path in outs:
        destination = _resolve_path_in_copy(target, path)
        delete_path(destination)
        destination.parent.mkdir(parents=True, exist_ok=True)
    return copy


def _write_recorded_code(repository: Path, record: ExecutionRecord, copy: ScratchCopy, data: set[str]) -> str:
    """Write the recorded commit with its patch, else the working files; returns in words what the code was taken
    from.
    """
    commit = (record.commit or "none")[:SHORT]
    if not checkout.has_commit(repository, record.commit):
        is_recorded = record.commit not in NO_COMMIT
        why = f"commit {commit} is not in this repository" if is_recorded else "no commit is on record"
        reason = source_code.find_git_fault(repository) if is_recorded else record.note.removeprefix("git: ")
        why += f" (git: {reason})" if reason else ""
        copy.notes.append(f"{why}: the working files were used, where they have the recorded bytes")
        code = {path for path in data if is_code_path(path)}
        checkout.copy_working_files(repository, copy.root, data - code)
        return f"{why}, and the working files differ"
    assert record.commit is not None
    submodules = checkout.check_out_commit(repository, record.commit, copy.root)
    copy.notes += [f"{path}: a submodule, which is left out" for path in submodules]
    if record.patch is not None:
        checkout.apply_patch(record.patch, copy.root)
        return f"commit {commit} with its kept patch has other bytes"
    if record.dirty not in (None, "no", "unknown"):
        copy.notes.append(f"the tree differed from commit {commit} ({record.dirty}), and no patch was kept")
        return f"the tree differed from commit {commit}, and its patch is missing"
    return f"commit {commit} has other bytes"


def _restore_dependency(repository: Path, copy: ScratchCopy, path: str, md5: str, source: str) -> Files:
    """See to it that the copy has a dep with the recorded hash; the digests of its files, as they lie in the copy."""
    from flows.engine import dvc_walk

    destination = _resolve_path_in_copy(copy.root, path)
    if (files := _find_matching_digests(copy.root, destination, md5)) is not None:
        return files
    if path.startswith(stage_code.FOLDER):
        return _regenerate_code_file(copy, destination, md5, source)
    try:
        lacking = [
            name
            for name, file_md5 in cache_objects.read_cached_file_hashes(repository, md5).items()
            if cache_objects.find_cache_object(repository, file_md5) is None
        ]
        if lacking:
            raise PlanError(f"{lacking[0] or md5} is not in the cache")
        delete_path(destination)
        cache_objects.copy_from_cache(repository, md5, destination)
        if (files := _find_matching_digests(copy.root, destination, md5)) is not None:
            return files
        missing = "it has other bytes under this hash; `posttrain audit` names them"
    except PlanError as error:
        missing = str(error)
    working_path = repository / path
    if working_path.exists():
        delete_path(destination)
        try:
            dvc_walk.copy_hashed_files(repository, working_path, destination)
        except PlanError as error:
            raise CannotReproduceError(str(error)) from None
        if (files := _find_matching_digests(copy.root, destination, md5)) is not None:
            if is_code_path(path):
                copy.notes.append(f"{path}: taken from the working tree, which has the recorded bytes; {source}")
            return files
    raise CannotReproduceError(_format_missing_input_error(path, md5, source, missing, working_path.exists()))


def _regenerate_code_file(copy: ScratchCopy, destination: Path, md5: str, source: str) -> Files:
    """Have the copy's own stage `code` write a file of it: one from elsewhere would prove nothing of the code that the
    copy has.
    """
    path = destination.relative_to(copy.root).as_posix()
    if not destination.exists():
        words = [sys.executable, "-m", "tasks.code"]
        ended = subprocess.run(words, cwd=copy.root, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise CannotReproduceError(f"{path}: it cannot be made again: {_get_last_line(ended.stderr)}")
    if (files := _find_matching_digests(copy.root, destination, md5)) is not None:
        return files
    raise CannotReproduceError(f"{path}: expected {md5[:SHORT]}, but {source}: the stage's code is another there")


def _get_last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def _find_matching_digests(root: Path, path: Path, md5: str) -> Files | None:
    """The digests of what is there, if it has this hash."""
    with suppress(PlanError):  # a link of the commit that leads nowhere from here, say
        if path.exists():
            files = digests.compute_path_digests(root, path)
            return files if digests.compute_dvc_hash(files) == md5 else None
    return None


def _format_missing_input_error(path: str, md5: str, source: str, missing: str, in_workspace: bool) -> str:
    workspace = "the workspace has other bytes" if in_workspace else "the workspace does not have it"
    if is_code_path(path):
        return f"{path}: expected {md5[:SHORT]}, but {source}, and {workspace}"
    return (
        f"{path}: the version that the run read ({md5}) is gone: {workspace}, and the cache does not have it "
        f"({missing})"
    )


def _restore_recorded_params(record: ExecutionRecord, copy: ScratchCopy) -> None:
    """Give params.yaml the recorded values, and note each that was another."""
    if "params" not in record.entry:
        copy.notes.append("no parameters are on record: those of params.yaml were used")
    for name, recorded in record.entry.get("params", {}).items():
        file = _resolve_path_in_copy(copy.root, name)
        values = _read_params(file)
        changed = {
            key: value for key, value in recorded.items() if not _is_same_json(_get_nested_value(values, key), value)
        }
        for key, value in changed.items():
            pairs = _iterate_param_differences(_get_nested_value(values, key), value, key)
            summary = "; ".join(f"{leaf} is {actual} there and {other} on record" for leaf, actual, other in pairs)
            copy.notes.append(
                f"{name}: {describe_code_source(record)} has other values, so the recorded ones were set: {summary}"
            )
            _set_nested_value(values, key, value)
        if changed:
            _write_params(file, values)


def _read_params(file: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        values = YAML(typ="safe", pure=True).load(file) if file.is_file() else {}
    except (YAMLError, UnicodeDecodeError):
        values = None
    if not isinstance(values, dict):
        raise CannotReproduceError(f"{file.name}: expected YAML or JSON with the parameters that are on record")
    return values


def _write_params(file: Path, values: Mapping[str, Any]) -> None:
    """Write the parameters in the form that they had."""
    from ruamel.yaml import YAML

    try:
        json.loads(file.read_text())
    except (OSError, ValueError):
        YAML(typ="safe", pure=True).dump(dict(values), file)
    else:
        file.write_text(json.dumps(values))


def describe_code_source(record: ExecutionRecord) -> str:
    """What the code is taken from, in a few words."""
    if record.commit in NO_COMMIT:
        return "the working tree"
    return f"commit {str(record.commit)[:SHORT]}{' with its patch' if record.patch else ''}"


def _get_nested_value(values: Any, key: str) -> Any:
    for part in (key,) if isinstance(values, Mapping) and key in values else key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _set_nested_value(values: dict[str, Any], key: str, value: Any) -> None:
    *above, last = key.split(".")
    for part in above:
        inner = values.get(part)
        if not isinstance(inner, dict):
            inner = values[part] = {}
        values = inner
    values[last] = value


def _iterate_param_differences(actual: Any, recorded: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """Dotted key, value and recorded value of each parameter that differs."""
    if isinstance(actual, Mapping) and isinstance(recorded, Mapping):
        for name in {**actual, **recorded}:
            yield from _iterate_param_differences(actual.get(name), recorded.get(name), f"{key}.{name}")
    elif not _is_same_json(actual, recorded):
        yield key, actual, recorded


def _is_same_json(first: Any, second: Any) -> bool:
    """Whether two values of a parameter are written alike: 1 is not true."""
    return json.dumps(first, sort_keys=True, default=str) == json.dumps(second, sort_keys=True, default=str)


def _check_paths_and_command(repository: Path, record: ExecutionRecord) -> None:
    """A command that names the repository itself, or paths outside it, would write there and not in the copy."""
    for kind in ("deps", "outs"):
        for path in get_entry_hashes(record.entry, kind):
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or ":" in path:
                raise CannotReproduceError(
                    f"{path}: outside the repository, so it cannot be laid out in a scratch copy"
                )
    if not record.entry.get("cmd"):
        raise CannotReproduceError(f"{record.stage}: no command is on record")
    if str(repository.absolute()) in str(record.entry["cmd"]):
        raise CannotReproduceError(
            f"{record.stage}: its command names {repository} and would write there, not in a copy"
        )


def _resolve_path_in_copy(root: Path, path: str) -> Path:
    """Where a path lies in the copy; a link that the commit has on the way may not lead out of it."""
    destination = root / path
    if not destination.parent.resolve().is_relative_to(root.resolve()):
        raise CannotReproduceError(f"{path}: a link in the commit leads out of the copy")
    return destination

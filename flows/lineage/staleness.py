"""What made a stage out of date, as differences: `posttrain status --why STAGE`.

Parameters are compared with dvc.lock's; files with those of the run that made the outs, which git and the run's patch
have. Where git does not have the recorded bytes, the change is named without its lines.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, closing
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flows.engine import stage_code
from flows.engine.dvc_changes import Seen, find_stale_reason, iterate_changed_params
from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_lock import get_entry_hashes, read_lock_entries
from flows.engine.dvc_repository import cache_parsed_params, convert_dvc_errors_to_plan_error, open_repo
from flows.lineage import execution_record
from flows.lineage.acceptance import file_hashes
from flows.lineage.checks.content_hashes import compute_folder_hash
from flows.lineage.checks.dvc_pipeline import Ignored
from flows.lineage.execution_record import ExecutionRecord

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage

LARGEST = 1_000_000  # bytes of a file that is shown line by line
STATES = {
    "new": "is new",
    "modified": "changed",
    "deleted": "is missing",
    "not in cache": "is not in the cache",
}


@dataclass(frozen=True)
class Cause:
    """One thing that changed; `lines` show how, each begins with `-`, `+`, `@` or a space."""

    what: str
    lines: Sequence[str] = ()


def find_staleness_causes(root: Path, name: str) -> list[Cause]:
    """What changed since this stage ran, parameters first; nothing where it is as it was. Reads only."""
    root = root.absolute()
    with chdir(root), closing(open_repo(root)) as repo, cache_parsed_params(), convert_dvc_errors_to_plan_error():
        [stage] = StageGraph(repo).load([name])
        seen: Seen = {}
        if any(str(dep.def_path).startswith(stage_code.FOLDER) for dep in stage.deps):
            stage_code.record_code_dep_states(root, [stage], seen)
        reason = find_stale_reason(stage, seen)
        if reason is None:
            return []
        changes = (
            [
                *_iterate_command_and_param_changes(stage),
                *_iterate_dependency_changes(root, stage, seen),
                *_iterate_output_changes(stage),
            ]
            if name in read_lock_entries(root)
            else []
        )
        return changes or [Cause(reason)]


def _iterate_command_and_param_changes(stage: "PipelineStage") -> Iterator[Cause]:
    if stage.cmd_changed:
        yield Cause("its command changed")
    for dep in stage.params:
        for key, old, new in iterate_changed_params(dep):
            values = (("-", old), ("+", new))
            yield Cause(f"param {key}", [f"{sign} {value}" for sign, value in values if value is not None])


def _iterate_output_changes(stage: "PipelineStage") -> Iterator[Cause]:
    for out in stage.outs:
        for path, state in out.status().items():
            yield Cause(f"out {path} {STATES[state]}")


def _iterate_dependency_changes(root: Path, stage: "PipelineStage", seen: Seen) -> Iterator[Cause]:
    changed: dict[str, str] = {}
    for dep in stage.deps:
        if dep not in stage.params:
            changed |= seen.get((dep.fs_path, dep.hash_info.value if dep.hash_info else None), {})
    if not changed:
        return
    made = execution_record.load_current_records(root)[str(stage.name)]
    recorded = get_entry_hashes(made.recorded, "deps")
    files = {path: state for path, state in changed.items() if not path.startswith(stage_code.FOLDER)}
    modules = {path: recorded[path] for path in files if path.endswith(".py") and recorded.get(path)}
    kept = {
        **file_hashes.read_run_files(root, made, files),
        **file_hashes.collect_recorded_contents(root, lambda: made.recorded, modules),
    }
    ignored = Ignored(root).select_ignored_files([root / name for name in kept])
    kept = {name: content for name, content in kept.items() if root / name not in ignored}
    for path, state in changed.items():
        before = {name: content for name, content in kept.items() if _is_within_path(name, path)}
        if path.startswith(stage_code.FOLDER):
            yield from _list_code_changes(root, path, recorded.get(path, ""), made) or [
                Cause(f"dep {path} {STATES[state]}")
            ]
        elif state == "modified" and before and _compute_path_hash(path, before) == recorded[path]:
            yield from _iterate_file_changes(root, path, before, made)
        else:
            yield Cause(f"dep {path} {STATES[state]}")


def _list_code_changes(root: Path, path: str, md5: str, made: ExecutionRecord) -> list[Cause]:
    """The files of which a stage reaches something else than it did, each with all lines that differ; nothing where
    that cannot be told.
    """
    kept = file_hashes.collect_recorded_contents(root, lambda: made.recorded, {path: md5})
    if path not in kept:
        return []
    before = json.loads(kept[path])
    after = stage_code.compute_code_dep_source_hashes(root, path)
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    old = file_hashes.read_run_files(root, made, dict.fromkeys(name.partition(",")[0] for name in changed))
    since = f", since run {str(made.run_id)[:8]}" if made.run_id else ""
    changes = []
    for name in changed:
        file = root / name.partition(",")[0]
        old_content = old.get(name.partition(",")[0], b"" if name not in before else None)
        lines = (
            _compute_line_diff(old_content, file.read_bytes() if file.is_file() else b"")
            if old_content is not None
            else []
        )
        changes.append(Cause(f"{name}{since}", lines))
    return changes


def _is_within_path(name: str, path: str) -> bool:
    return PurePosixPath(name).is_relative_to(PurePosixPath(path))


def _compute_path_hash(path: str, files: Mapping[str, bytes]) -> str:
    """DVC's hash of a file, or of a folder with these files."""
    digests = {
        PurePosixPath(name).relative_to(path).as_posix(): hashlib.md5(content, usedforsecurity=False).hexdigest()
        for name, content in files.items()
    }
    return digests.get(".") or compute_folder_hash(digests)


def _iterate_file_changes(root: Path, path: str, before: Mapping[str, bytes], made: ExecutionRecord) -> Iterator[Cause]:
    """The files of a dep that are not what they were."""
    from flows.engine.dvc_walk import list_hashed_files

    dep_path = root / path
    now = {file.relative_to(root).as_posix(): file.read_bytes() for file in list_hashed_files(root, dep_path)}
    since = f", since run {str(made.run_id)[:8]}" if made.run_id else ""
    for name in sorted({*before, *now}):
        old = before.get(name, b"")
        new = now.get(name, b"")
        if old != new:
            yield Cause(f"{name}{since}", _compute_line_diff(old, new))


def _compute_line_diff(old: bytes, new: bytes) -> list[str]:
    """The lines that differ with two around them; nothing for bytes that are no text, or too many."""
    if max(len(old), len(new)) > LARGEST:
        return []
    try:
        before, after = (text.decode().splitlines() for text in (old, new))
    except UnicodeDecodeError:
        return []
    return [*unified_diff(before, after, n=2, lineterm="")][2:]

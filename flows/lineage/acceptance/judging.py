"""Whether a stage is out of date by nothing but edits of its code that have no effect, and which those are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from flows.engine.dvc_changes import Seen
from flows.engine.dvc_lock import read_entry
from flows.engine.dvc_stage import origin
from flows.engine.edits.command import DATA, is_code, runs_module
from flows.engine.edits.comparing import Code
from flows.lineage.acceptance.kept import in_words
from flows.lineage.acceptance.versions import recorded

if TYPE_CHECKING:
    from dvc.stage import PipelineStage


@dataclass(frozen=True)
class Edit:
    """One module that changed, and in what alone."""

    path: str
    what: str
    before: bytes
    after: bytes


class Judge:
    """Judges stages of one repository as they are now. What several stages share is looked up once."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._files: dict[str, bytes] = {}
        self._before: dict[tuple[str, str], bytes | None] = {}

    def words(self, stage: "PipelineStage", seen: Seen) -> Sequence[str]:
        """The edits in words; nothing where the stage has to run."""
        found = self.edits(stage, seen)
        return in_words({edit.path: edit.what for edit in found}).split("; ") if found else []

    def edits(self, stage: "PipelineStage", seen: Seen | None = None) -> list[Edit]:
        """The edits by which alone the stage is out of date; nothing where anything else differs, or may have an effect."""
        if Path(stage.wdir).absolute() != self.root or not any(dep.hash_info for dep in stage.deps):
            return []
        changed = _changed_code(stage, {} if seen is None else seen)
        if not changed:
            return []
        before = self._versions(str(stage.name), changed)
        if before is None:
            return []
        try:
            code = Code(self._modules(stage))
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
            return []
        found = [(path, code.effectless(path, content), content) for path, content in before.items()]
        return (
            [Edit(path, what, content, code.modules[path]) for path, what, content in found if what]
            if all(what for _, what, _ in found)
            else []
        )

    def _versions(self, name: str, changed: Mapping[str, str]) -> dict[str, bytes] | None:
        """The recorded versions of these files, None where one cannot be had."""
        unknown = {path: md5 for path, md5 in changed.items() if (path, md5) not in self._before}
        given = recorded(self.root, lambda: read_entry(self.root, name), unknown) if unknown else {}
        self._before |= {(path, md5): given.get(path) for path, md5 in unknown.items()}
        found = {path: self._before[path, md5] for path, md5 in changed.items()}
        whole = {path: content for path, content in found.items() if content is not None}
        return whole if len(whole) == len(found) else None

    def _modules(self, stage: "PipelineStage") -> dict[str, bytes]:
        """All code that the stage may run, by path: its modules, and those in folders that it reads beside its data."""
        found = list[Path]()
        for dep in stage.deps:
            place = Path(dep.fs_path)
            if dep not in stage.params and not _name(dep).startswith(DATA):
                found += sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.suffix == ".py" else []
        return {file.relative_to(self.root).as_posix(): self._read(file) for file in found}

    def read(self, path: str) -> bytes | None:
        """A module as it was judged."""
        return self._files.get(str(self.root / path))

    def _read(self, file: Path) -> bytes:
        if str(file) not in self._files:
            self._files[str(file)] = file.read_bytes()
        return self._files[str(file)]


def _changed_code(stage: "PipelineStage", seen: Seen) -> dict[str, str]:
    """Path -> recorded hash of each module that changed; nothing where the stage differs in anything else."""
    if stage.cmd_changed or stage.always_changed or stage.is_callback or stage.frozen:
        return {}
    changed: dict[str, str] = {}
    for dep in stage.deps:
        if dep in stage.params:
            if dep.status():
                return {}
            continue
        known = dep.fs_path, dep.hash_info.value if dep.hash_info else None
        if known not in seen:
            seen[known] = dep.status()
        if seen[known]:
            modified = [*seen[known].values()] == ["modified"] and dep.hash_info.name == "md5"
            if not modified or not is_code(_name(dep), stage.cmd) or Path(dep.fs_path).is_symlink():
                return {}
            changed[_name(dep)] = str(known[1])
    if not runs_module(stage.cmd, [_name(dep) for dep in stage.deps if dep not in stage.params]):
        return {}
    if any(out.status() for out in stage.outs) or origin(stage) == "other inputs":
        return {}
    return changed


def _name(dep: Any) -> str:
    return PurePosixPath(str(dep.def_path)).as_posix()

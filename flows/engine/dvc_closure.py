"""The stages that some targets need, and no others, as a plan reads them from dvc.yaml and params.yaml.

DVC itself loads every stage, and parses params.yaml several times for each: with a hundred branches of `foreach` that
takes longer than the rest of a plan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from flows.engine.dvc_lock import LOCKFILE, filter_lock_text
from flows.engine.dvc_repository import convert_dvc_errors_to_plan_error

if TYPE_CHECKING:
    # The types of DVC's that every reader of its stages names, so that it need not import DVC for them.
    from dvc.dependency import ParamsDependency as ParamsDependency
    from dvc.repo import Repo as Repo
    from dvc.stage import PipelineStage as PipelineStage
    from dvc.stage import Stage


OUTS = ("outs", "metrics", "plots")
Facts = tuple[int, int, int]  # inode, time and size, by which DVC too knows that a file is the same

# The content of each dvc.yaml, parsed and checked: to check hundreds of stages anew for each stage of a run takes most
# of its time.
_checked: dict[Path, tuple[Facts, Any]] = {}


@dataclass(frozen=True)
class Closure:
    """Some stages and all that they need, in topological order, each with the names of its direct upstream."""

    stages: "Mapping[str, tuple[PipelineStage, tuple[str, ...]]]"
    outs: Sequence[Path]  # the outs of these stages and of .dvc files


class StageGraph:
    """What dvc.yaml defines, with every branch."""

    def __init__(self, repo: "Repo") -> None:
        from dvc.dvcfile import load_file

        self.repo = repo
        self._path = Path(repo.root_dir, "dvc.yaml")
        self._file = load_file(repo, str(self._path))
        self._facts = _get_file_identity(self._path)
        checked = _checked.get(self._path)
        if checked is not None and checked[0] == self._facts:
            self._file.contents = deepcopy(checked[1])

    @cached_property
    def _definitions(self) -> dict[str, Any]:
        with convert_dvc_errors_to_plan_error("dvc.yaml"):
            stages: dict[str, Any] = self._file.resolver.resolve().get("stages", {})
            return stages

    @property
    def names(self) -> list[str]:
        """Every stage's name, `stage@branch` for branches, in the order of dvc.yaml."""
        return list(self._definitions)

    @property
    def empty(self) -> dict[str, str]:
        """The stages without any branch, each with the key of params.yaml that would name branches."""
        branched = {
            name: stage["foreach"] for name, stage in self._file.contents["stages"].items() if "foreach" in stage
        }
        having = {name.split("@")[0] for name in self.names}
        return {name: str(key).strip("${}") for name, key in branched.items() if name not in having}

    def load_upstream_closure(self, wanted: Iterable[str]) -> Closure:
        """These stages and all that they need, loaded and checked as DVC does."""
        from dvc.repo.index import Index

        needed = self._find_needed_stages(wanted)
        with convert_dvc_errors_to_plan_error("dvc.yaml"):
            loaded: list[Stage] = [*self.load(needed)]
            index = Index(self.repo, [*loaded, *self._load_data_stages(loaded)])
            graph = index.graph
        stages = {stage.name: stage for stage in loaded if stage.cmd}
        upstream = {
            name: () if stage.frozen else tuple(sorted(up.name for up in graph.successors(stage) if up.cmd))
            for name, stage in stages.items()
        }
        order = TopologicalSorter(upstream).static_order()
        return Closure({name: (stages[name], upstream[name]) for name in order}, [Path(o.fs_path) for o in index.outs])

    def load(self, names: Sequence[str]) -> "list[PipelineStage]":
        """These stages alone, each with its entry of dvc.lock."""
        contents = self._file.contents
        if self._facts is not None:
            _checked[self._path] = self._facts, deepcopy(contents)
        loader = self._file.LOADER(self._file, contents, self._load_lock_entries(names))
        return [loader[name] for name in names]

    def _find_needed_stages(self, wanted: Iterable[str]) -> list[str]:
        """The names of these stages and of all their upstream, in the order of dvc.yaml; as in DVC, a frozen stage
        needs none.

        With them come stages that make the same outs, which DVC then refuses.
        """
        outs: dict[PurePosixPath, set[str]] = {}
        within: dict[PurePosixPath, set[str]] = {}  # folder -> the stages that make something in it
        for name, definition in self._definitions.items():
            for out in _iterate_dep_or_out_paths(definition, *OUTS):
                outs.setdefault(out, set()).add(name)
                for folder in out.parents:
                    within.setdefault(folder, set()).add(name)
        needed = set[str]()
        todo = list(wanted)
        while todo:
            name = todo.pop()
            if name not in needed:
                needed.add(name)
                kinds = OUTS if self._definitions[name].get("frozen") else ("deps", *OUTS)
                for path in _iterate_dep_or_out_paths(self._definitions[name], *kinds):
                    todo += within.get(path, ())
                    todo += [maker for out_path in (path, *path.parents) for maker in outs.get(out_path, ())]
        return [name for name in self._definitions if name in needed]

    def _load_lock_entries(self, names: Sequence[str]) -> Any:
        """The entries of these stages in dvc.lock; all of dvc.lock, read by DVC, where they cannot be parsed apart."""
        from dvc.dvcfile import Lockfile
        from dvc.utils.serialize import parse_yaml

        path = Path(self.repo.root_dir, LOCKFILE)
        try:
            return Lockfile.SCHEMA(parse_yaml(filter_lock_text(path.read_text(), names), str(path)))
        except Exception:
            return self._file.lockfile_contents  # or DVC's own error

    def _load_data_stages(self, stages: "Sequence[Stage]") -> "list[Stage]":
        """The stages of .dvc files beside deps of these stages: data that `dvc add` or `dvc import` keeps."""
        from dvc.dvcfile import load_file

        root = Path(self.repo.root_dir)
        deps = {Path(dep.fs_path) for stage in stages for dep in stage.deps}
        paths = {path for dep in deps for path in (dep, *dep.parents) if root in path.parents}
        files = [file for path in sorted(paths) if (file := path.with_name(f"{path.name}.dvc")).is_file()]
        return [stage for file in files for stage in load_file(self.repo, str(file)).stages.values()]


def _get_file_identity(path: Path) -> Facts | None:
    try:
        status = path.stat()
    except OSError:  # DVC says so
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _iterate_dep_or_out_paths(definition: Mapping[str, Any], *kinds: str) -> Iterator[PurePosixPath]:
    """The paths of a stage's outs or deps; in dvc.yaml each is a string, or a key with options."""
    for kind in kinds:
        for entry in definition.get(kind, []):
            path = entry if isinstance(entry, str) else next(iter(entry))
            yield PurePosixPath(normpath(PurePosixPath(definition.get("wdir", "."), path)))

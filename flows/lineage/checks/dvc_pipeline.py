"""What dvc.yaml says now of the stages that dvc.lock records: which exist, what of them is kept in the cache, what was
edited since.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import chdir, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.engine.dvc_changes import iterate_command_and_param_changes
from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_lock import Entry, read_lock_entries
from flows.engine.dvc_repository import cache_parsed_params, convert_dvc_errors_to_plan_error, open_repo
from flows.engine.dvc_stage import compute_entry_hash, compute_run_cache_key, iterate_run_cache_file_entries

SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Pipeline:
    """The stages of dvc.yaml that have an entry in dvc.lock."""

    stages: frozenset[str] = frozenset()
    uncached: frozenset[str] = frozenset()  # outs that DVC does not keep in its cache
    edited: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # stage -> what of command and params differs


def load_dvc_pipeline(root: Path, wanted: Collection[str] | None = None) -> Pipeline:
    """The pipeline, or these stages of it, as defined now; PlanError if dvc.yaml or params.yaml is broken."""
    recorded = read_lock_entries(root)
    with chdir(root), closing(open_repo(root)) as repo, cache_parsed_params(), convert_dvc_errors_to_plan_error():
        graph = StageGraph(repo)
        names = [name for name in graph.names if name in recorded and (wanted is None or name in wanted)]
        stages = graph.load(names)
        uncached = {out.def_path for stage in stages for out in stage.outs if not out.use_cache}
        edited = {stage.name: tuple(iterate_command_and_param_changes(stage)) for stage in stages}
        return Pipeline(frozenset(names), frozenset(uncached), {name: edits for name, edits in edited.items() if edits})


class Ignored:
    """What .dvcignore leaves out of every folder's hash; DVC is asked only where something is to be told."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def select_ignored_files(self, files: list[Path]) -> set[Path]:
        """Those of the files that are left out."""
        return {file for file in files if self._filter.is_ignored_file(str(file.absolute()))} if files else set()

    @cached_property
    def _filter(self) -> Any:
        with closing(open_repo(self._root)) as repo:
            return repo.dvcignore


class RunCache:
    """DVC's run cache: what it would restore, by the key of what went in."""

    def __init__(self, root: Path) -> None:
        with closing(open_repo(root)) as repo:
            self._folder = Path(repo.stage_cache.cache_dir)

    def entries(self, key: str) -> Iterator[tuple[Path, Entry, bool]]:
        """File, entry, and whether the entry has the key and the name under which it lies; files torn by a kill are
        left out.
        """
        for file in sorted((self._folder / key[:2] / key).glob("*")):
            if SHA256.fullmatch(file.name):
                for entry in iterate_run_cache_file_entries(file):
                    yield file, entry, compute_run_cache_key(entry) == key and compute_entry_hash(entry) == file.name

"""Whether what pipeline runs made is still in the cache, by what is on the disk: `posttrain runs` says it of each
run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects
from flows.lineage.checks import dvc_pipeline
from flows.lineage.cleaning import removal_log
from flows.lineage.cleaning.named_runs import OUT
from flows.lineage.history import PipelineRun


@dataclass(frozen=True)
class Kept:
    """What is left of the outs of a run: all, or of some stages not all; `when` `posttrain clean` removed them, if it
    did.
    """

    state: Literal["kept", "cleaned", "incomplete"]
    stages: tuple[str, ...] = ()  # of which something is gone
    when: datetime | None = None


def compute_cache_presence(root: Path, pipelines: Sequence[PipelineRun]) -> dict[str, Kept]:
    """What is left of each of these pipeline runs by its id; runs that name no stage's run are left out."""
    outs: dict[str, Mapping[str, str]] = {}
    with mlflow_run_lookup.open_records_reader(root) as records:
        for run_id in {run_id for run in pipelines for run_id in run.runs.values()} if records else ():
            tags = records.tags(run_id) if records else {}
            outs[run_id] = {key.removeprefix(OUT): value for key, value in tags.items() if key.startswith(OUT)}
    removed = removal_log.load_removal_times(root)
    disk = _Disk(root)
    kept_by_run: dict[str, Kept] = {}
    for run in pipelines:
        gone = {stage: disk.find_missing_hashes(outs.get(run_id, {})) for stage, run_id in run.runs.items()}
        hashes = {md5 for ones in gone.values() for md5 in ones}
        stages = tuple(stage for stage, ones in gone.items() if ones)
        dates = [removed[md5] for md5 in hashes & removed.keys()]
        if not run.runs:
            continue
        kept_by_run[run.id] = (
            Kept("cleaned" if dates else "incomplete", stages, max(dates, default=None)) if stages else Kept("kept")
        )
    return kept_by_run


class _Disk:
    """What is in the cache; each hash is looked for once, and dvc.yaml is asked only where something is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._missing: dict[str, frozenset[str]] = {}
        self._uncached: frozenset[str] | None = None

    def find_missing_hashes(self, outs: Mapping[str, str]) -> set[str]:
        """The hashes that are missing of these outs, by their paths."""
        lost = {path: self._find_missing_file_hashes(md5) for path, md5 in outs.items()}
        if any(lost.values()) and self._uncached is None:
            try:
                self._uncached = dvc_pipeline.load_dvc_pipeline(self.root).uncached
            except PlanError:  # dvc.yaml is being edited
                self._uncached = frozenset()
        return {md5 for path, ones in lost.items() if path not in (self._uncached or ()) for md5 in ones}

    def _find_missing_file_hashes(self, md5: str) -> frozenset[str]:
        if md5 not in self._missing:
            try:
                files = cache_objects.read_cached_file_hashes(self.root, md5).values()
                self._missing[md5] = frozenset(
                    file_md5 for file_md5 in files if cache_objects.find_cache_object(self.root, file_md5) is None
                )
            except PlanError:
                self._missing[md5] = frozenset([md5])
        return self._missing[md5]

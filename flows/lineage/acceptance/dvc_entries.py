"""Stages of DVC whose records are written without an execution, as `dvc commit` does, under DVC's own locks."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_lock import Entry, read_lock_entries, write_lock_entries
from flows.engine.dvc_repository import PlanError, cache_parsed_params, convert_dvc_errors_to_plan_error, open_repo
from flows.engine.dvc_repository import hold_dvc_lock as hold_lock
from flows.engine.dvc_stage import COMMAND, build_lock_entry, hold_path_reservation

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage, Repo


@dataclass(frozen=True)
class Locked:
    """Some stages while nothing else can write their records, deps or outs."""

    root: Path
    repo: "Repo"
    stages: "Sequence[PipelineStage]"

    def before(self, stage: "PipelineStage") -> Entry:
        """The stage's entry in dvc.lock; PlanError where it has none."""
        entries = read_lock_entries(self.root)
        if stage.name not in entries:
            raise PlanError(f"{stage.name} has never run, so there is nothing to accept")
        entry: Entry = entries[str(stage.name)]
        return entry

    def after(self, stage: "PipelineStage") -> Entry:
        """The entry with the outs that are recorded, and the rest as it is now."""
        for dep in stage.deps:
            dep.save()
        return build_lock_entry(stage)

    def write(self, names: Collection[str]) -> None:
        """Record what `after` returned of these stages, in the run cache and then in dvc.lock, all at once."""
        written = [stage for stage in self.stages if stage.name in names]
        for stage in written:
            if all(out.use_cache or out.is_metric or out.is_plot for out in stage.outs):  # DVC's own rule
                self.repo.stage_cache.save(stage)
        self.write_dvc_lock_file(written)

    def write_dvc_lock_file(self, stages: "Sequence[PipelineStage]") -> None:
        """Write dvc.lock."""
        if stages:
            write_lock_entries(self.root, stages)


@contextmanager
def hold_stage_locks(root: Path, names: Sequence[str]) -> Iterator[Locked]:
    """Hold DVC's lock of the repository, and its locks of what these stages read and write; PlanError where another has
    those.
    """
    with convert_dvc_errors_to_plan_error(), closing(open_repo(root)) as repo, ExitStack() as held:
        held.enter_context(hold_lock(repo))
        held.enter_context(cache_parsed_params())
        stages = StageGraph(repo).load(names)
        held.enter_context(hold_path_reservation(repo, stages, f"{COMMAND}, accepting"))
        yield Locked(root, repo, stages)

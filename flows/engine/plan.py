"""Which stages are out of date, and why: what `posttrain status` prints, and the first half of `posttrain run`.

Reads DVC's records and takes no lock. Imports neither Prefect nor MLflow, so that a run with nothing to do ends at once.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import chdir, closing
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine.dvc_changes import Seen, why
from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_repository import PlanError, open_repo, params_read_once, plain_errors
from flows.engine.resources import cores, gpus
from flows.engine.state import PlannedStage

if TYPE_CHECKING:
    from dvc.stage import PipelineStage

__all__ = ["FORCED", "PlanError", "plan"]

FORCED = "forced"  # the reason of a stage that --force names


def plan(root: Path, targets: Sequence[str], force: Collection[str] = ()) -> list[PlannedStage]:
    """The targets and all that they need, in topological order, each with the reason why it may run.

    A matrix stage `evaluate` stands for all of `evaluate@...`. Raises PlanError before anything has run.
    """
    root = root.absolute()
    with (
        chdir(root),
        closing(open_repo(root)) as repo,
        params_read_once(),
    ):  # DVC names files relative to the current folder
        pipeline = StageGraph(repo)
        wanted = {name for target in targets for name in _matching(target, pipeline)}
        forced = {name for target in force for name in _matching(target, pipeline)}
        planned: list[PlannedStage] = []
        seen: Seen = {}
        closure = pipeline.closure(wanted)
        _check_links(closure.outs, root)
        for name, (stage, upstream) in closure.stages.items():
            _check_deps(stage, closure.outs, root)
            cpu, gpu = _resources(stage)
            with plain_errors():
                reason = FORCED if name in forced else why(stage, seen) or _upstream_reason(upstream, planned)
            planned.append(PlannedStage(name, reason, upstream, cpu, gpu, str(stage.cmd)))
        return planned


def _matching(target: str, pipeline: StageGraph) -> list[str]:
    stages = pipeline.names
    found = [name for name in stages if name == target or name.startswith(target + "@")]
    if not found and target in pipeline.empty:
        raise PlanError(f"dvc.yaml: stage '{target}' has no branches: {pipeline.empty[target]} is empty")
    if not found:
        bases = [name.split("@")[0] for name in stages]
        close = get_close_matches(target, [*stages, *bases], n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"it has {', '.join(dict.fromkeys(bases)) or 'none'}"
        raise PlanError(f"dvc.yaml: no stage '{target}'; {hint}")
    return found


def _upstream_reason(upstream: Collection[str], planned: Sequence[PlannedStage]) -> str | None:
    running = [stage.name for stage in planned if stage.name in upstream and stage.reason]
    return f"upstream {', '.join(running)} will run" if running else None


def _check_deps(stage: "PipelineStage", outs: Sequence[Path], root: Path) -> None:
    """Raise PlanError unless every dep exists or is made by a stage, and every listed param is in its file."""
    for dep in stage.deps:
        path = Path(dep.fs_path)
        if dep in stage.params:
            with plain_errors():
                missing = set(dep.params) - set(dep.read_params())
            if missing:
                raise PlanError(f"{dep.def_path}: {sorted(missing)[0]}: missing, and stage '{stage.name}' needs it")
        elif not dep.exists and not any(out == path or out in path.parents or path in out.parents for out in outs):
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            raise PlanError(f"dvc.yaml: stage '{stage.name}': dep {shown} does not exist and no stage makes it")


def _check_links(outs: Sequence[Path], root: Path) -> None:
    """Raise PlanError if a folder above outs is a link: git and DVC follow none, and no file can be renamed to another disk."""
    for folder in sorted({parent for out in outs for parent in out.parents if root in parent.parents}):
        if folder.is_symlink():
            elsewhere = "to have the data on another disk, set `dvc cache dir` and make this a folder"
            raise PlanError(
                f"{folder.relative_to(root)}: a link to {folder.readlink()}, behind which DVC keeps nothing; {elsewhere}"
            )


def _resources(stage: "PipelineStage") -> tuple[int, int]:
    """The cores (at most those of the machine) and GPUs that a stage asks for.

    On a machine without a GPU the stage runs on the CPU. With too few GPUs it could never start: that is a PlanError.
    """
    resources = (stage.meta or {}).get("resources") or {}
    for key, least in (("cpu", 1), ("gpu", 0)):
        value = resources.get(key, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise PlanError(
                f"dvc.yaml: stage '{stage.name}': meta.resources.{key}: expected a number of at least {least}, got {value!r}"
            )
    wanted, available = resources.get("gpu", 0), len(gpus(os.environ)) if resources.get("gpu") else 0
    if available and wanted > available:
        raise PlanError(
            f"dvc.yaml: stage '{stage.name}': meta.resources.gpu: asks for {wanted}, this machine has {available}"
        )
    return min(resources.get("cpu", 1), cores()), min(wanted, available)

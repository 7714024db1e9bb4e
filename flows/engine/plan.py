"""Which stages are out of date, and why: what `posttrain status` prints, and the first half of `posttrain run`.

Reads DVC's records and takes no lock. Imports neither Prefect nor MLflow, so that a run with nothing to do ends at
once.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import chdir, closing
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

from flows.engine import stage_code
from flows.engine.dvc_changes import NEVER, Seen, find_stale_reason, find_stale_reason_if_unfrozen, has_outs_to_pull
from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_repository import PlanError, cache_parsed_params, convert_dvc_errors_to_plan_error, open_repo
from flows.engine.dvc_stage import classify_out_origin
from flows.engine.stage_types import PlannedStage
from flows.machine.resources import count_cores, list_gpus
from flows.params.files import PARAMS

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage

__all__ = ["FORCED", "PlanError", "plan_stages"]

FORCED = "forced"  # the reason of a stage that --force names


def plan_stages(
    root: Path,
    targets: Sequence[str],
    force: Collection[str] = (),
    pools: bool = False,
    pool: str = "",
    on_work: Callable[[], object] = lambda: None,
) -> list[PlannedStage]:
    """The targets and all that they need, in topological order, each with the reason why it may run.

    A matrix stage `evaluate` stands for all of `evaluate@...`. With `pools` stages go to the pool that dvc.yaml names,
    and those with a GPU to `pool` if it names none; without, all run here. `on_work` is called as soon as some stage is
    out of date, while others are still looked at. Raises PlanError before anything has run.
    """
    root = root.absolute()
    with (
        chdir(root),
        closing(open_repo(root)) as repo,
        cache_parsed_params(),
    ):  # DVC names files relative to the current folder
        pipeline = StageGraph(repo)
        wanted = {name for target in targets for name in resolve_stage_target(target, pipeline)}
        forced = {name for target in force for name in resolve_stage_target(target, pipeline)}
        planned: list[PlannedStage] = []
        seen: Seen = {}
        closure = pipeline.load_upstream_closure(wanted)
        _check_no_linked_folders(closure.outs, root)
        if stage_code.STAGE in closure.stages:
            with convert_dvc_errors_to_plan_error():
                late = find_stale_reason(closure.stages[stage_code.STAGE][0], seen) is not None
            if late:
                on_work()
                stage_code.record_code_dep_states(root, (stage for stage, _ in closure.stages.values()), seen)
        for name, (stage, upstream) in closure.stages.items():
            check_stage_deps(stage, closure.outs, root)
            requested = parse_stage_resources(stage, pools, pool)
            with convert_dvc_errors_to_plan_error():
                direct_reason = FORCED if name in forced else find_stale_reason(stage, seen)
                if stage.frozen and direct_reason in (FORCED, NEVER):
                    raise PlanError(
                        f"dvc.yaml: stage '{name}' is frozen, so that it does not run; `dvc unfreeze {name}`"
                    )
                frozen = find_stale_reason_if_unfrozen(stage, seen) if stage.frozen else None
                elsewhere = direct_reason is None and classify_out_origin(stage) == "elsewhere"
                missing = direct_reason not in (None, FORCED) and has_outs_to_pull(stage)
            reason = direct_reason or _format_upstream_reason(upstream, planned)
            if reason:
                on_work()
            planned.append(
                PlannedStage(
                    name,
                    reason,
                    upstream,
                    cmd=str(stage.cmd),
                    frozen=frozen,
                    elsewhere=elsewhere,
                    missing=missing,
                    **asdict(requested),
                )
            )
        return planned


def list_needed_stages(root: Path, targets: Sequence[str], params: str) -> list[str]:
    """The names of the targets and of all that they need if params.yaml had the text `params`, in topological order;
    PlanError as `plan` raises it.

    DVC reads that text in a folder of links to what the repository holds, so that nothing in the repository is touched.
    """
    root = root.absolute()
    with TemporaryDirectory() as folder:
        tree = Path(folder).resolve()
        for entry in root.iterdir():
            if entry.name not in (PARAMS, ".dvc", ".git"):
                (tree / entry.name).symlink_to(entry)
        (tree / PARAMS).write_text(params)
        (tree / ".dvc").mkdir()
        (tree / ".dvc/config").write_text(f"[core]\n    no_scm = true\n    site_cache_dir = {tree / '.dvc/site'}\n")
        with chdir(tree), closing(open_repo(tree)) as repo, cache_parsed_params():
            pipeline = StageGraph(repo)
            closure = pipeline.load_upstream_closure(
                {name for target in targets for name in resolve_stage_target(target, pipeline)}
            )
            for stage, _ in closure.stages.values():
                check_stage_deps(stage, closure.outs, tree)
            return [*closure.stages]


def resolve_stage_target(target: str, pipeline: StageGraph) -> list[str]:
    stages = pipeline.names
    names = [name for name in stages if name == target or name.startswith(target + "@")]
    if not names and target in pipeline.empty:
        raise PlanError(f"dvc.yaml: stage '{target}' has no branches: {pipeline.empty[target]} is empty")
    if not names:
        bases = [name.split("@")[0] for name in stages]
        close = get_close_matches(target, [*stages, *bases], n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"it has {', '.join(dict.fromkeys(bases)) or 'none'}"
        raise PlanError(f"dvc.yaml: no stage '{target}'; {hint}")
    return names


def _format_upstream_reason(upstream: Collection[str], planned: Sequence[PlannedStage]) -> str | None:
    running = [
        stage.name for stage in planned if stage.name in upstream and stage.reason and stage.name != stage_code.STAGE
    ]
    return f"upstream {', '.join(running)} will run" if running else None


def check_stage_deps(stage: "PipelineStage", outs: Sequence[Path], root: Path) -> None:
    """Raise PlanError unless every dep exists or is made by a stage, can be hashed, and every listed param is in its
    file.

    A frozen stage needs none.
    """
    for dep in () if stage.frozen else stage.deps:
        path = Path(dep.fs_path)
        if dep in stage.params:
            with convert_dvc_errors_to_plan_error():
                missing = set(dep.params) - set(dep.read_params())
            if missing:
                raise PlanError(f"{dep.def_path}: {sorted(missing)[0]}: missing, and stage '{stage.name}' needs it")
        elif not dep.exists and not any(out == path or out in path.parents or path in out.parents for out in outs):
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            raise PlanError(f"dvc.yaml: stage '{stage.name}': dep {shown} does not exist and no stage makes it")
        else:
            stage.repo.dvcignore.check_all_hashable(dep.fs_path)


def _check_no_linked_folders(outs: Sequence[Path], root: Path) -> None:
    """Raise PlanError if a folder above outs is a link: git and DVC follow none, and no file can be renamed to another
    disk.
    """
    for folder in sorted({parent for out in outs for parent in out.parents if root in parent.parents}):
        if folder.is_symlink():
            elsewhere = "to have the data on another disk, set `dvc cache dir` and make this a folder"
            raise PlanError(
                f"{folder.relative_to(root)}: a link to {folder.readlink()}, behind which DVC keeps nothing; "
                f"{elsewhere}"
            )


@dataclass(frozen=True)
class Resources:
    """What a stage asks for, and where it runs."""

    cpu: int = 1
    gpu: int = 0
    launcher: str = ""
    pool: str = ""


def parse_stage_resources(stage: "PipelineStage", pools: bool, pool: str) -> Resources:
    """What a stage asks for. Unless a worker or a launcher runs it elsewhere, these are at most the cores of the
    machine.

    `cpu` in dvc.yaml is of each of the stage's processes: one for each GPU, or on a CPU as many as `processes` says.

    On a machine without a GPU the stage runs on the CPU. With too few GPUs it could never start: that is a PlanError.
    """
    resources = (stage.meta or {}).get("resources") or {}
    for key, least in (("cpu", 1), ("gpu", 0), ("processes", 1)):
        value = resources.get(key, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            _raise_resource_error(stage, key, f"expected a number of at least {least}, got {value!r}")
    if resources.get("shard", "") not in ("", "optimizer", "model"):
        _raise_resource_error(stage, "shard", f"expected optimizer or model, got {resources['shard']!r}")
    gpu = resources.get("gpu", 0)
    named = resources.get("pool", pool if gpu else "")
    if not isinstance(named, str):
        _raise_resource_error(stage, "pool", f"expected the name of a work pool, got {named!r}")
    named = named if pools else ""
    requested = Resources(resources.get("cpu", 1), gpu, _parse_launcher(stage, resources, local=not named), named)
    if requested.pool or requested.launcher:
        return _multiply_cores_by_processes(requested, resources)
    available = len(list_gpus(os.environ)) if requested.gpu else 0
    if available and requested.gpu > available:
        _raise_resource_error(stage, "gpu", f"asks for {requested.gpu}, this machine has {available}")
    local = _multiply_cores_by_processes(replace(requested, gpu=min(requested.gpu, available)), resources)
    return replace(local, cpu=min(local.cpu, count_cores()))


def _multiply_cores_by_processes(requested: Resources, resources: Mapping[str, int]) -> Resources:
    """The same with the cores of all processes together."""
    return replace(requested, cpu=requested.cpu * (requested.gpu or resources.get("processes", 1)))


def _parse_launcher(stage: "PipelineStage", resources: Mapping[str, object], local: bool) -> str:
    """The prefix of the stage's command, or an empty string; PlanError unless it has a program, which a stage run
    `local` finds.
    """
    value = resources.get("launcher", "")
    try:
        words = shlex.split(value) if isinstance(value, str) else []
    except ValueError as error:  # a quotation mark without its partner
        _raise_resource_error(stage, "launcher", f"{value!r} is no command: {error}")
    if not words:
        if "launcher" in resources:
            _raise_resource_error(stage, "launcher", f'expected a command such as "srun --gres=gpu:1", got {value!r}')
        return ""
    program = str(Path(stage.wdir, words[0])) if "/" in words[0] else words[0]
    if local and shutil.which(program) is None:
        _raise_resource_error(stage, "launcher", f"no program {words[0]} on the PATH of this machine")
    return str(value)


def _raise_resource_error(stage: "PipelineStage", key: str, what: str) -> NoReturn:
    raise PlanError(f"dvc.yaml: stage '{stage.name}': meta.resources.{key}: {what}")

"""Why a stage is out of date, in words: the same questions as `dvc status`, answered for a person.

DVC compares the command, each dep's hash, each listed param and each out with what dvc.lock recorded.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flows.engine.dvc_stage import classify_out_origin

if TYPE_CHECKING:
    from flows.engine.dvc_closure import ParamsDependency, PipelineStage

SHOWN = 3  # reasons that are shown at most
NEVER = "never run"
MIXED = "dvc.lock has the outs of a run with other data or parameters"


Seen = dict[tuple[str, str | None], dict[str, str]]  # a dep and its recorded hash -> its status


def find_stale_reason(stage: "PipelineStage", seen: Seen | None = None) -> str | None:
    """The reasons for which DVC would run this stage now, or None when it is up to date.

    `seen` keeps the status of deps for later stages, which share most of their code. It is valid only while nothing
    runs.
    """
    if not any(entry.hash_info for entry in [*stage.outs, *stage.deps]):
        return NEVER
    reasons = list(_iterate_stale_reasons(stage, {} if seen is None else seen))
    more = f" and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    return "; ".join(reasons[:SHOWN]) + more if reasons else None


def find_stale_reason_if_unfrozen(stage: "PipelineStage", seen: Seen) -> str:
    """The reasons for which DVC would run this frozen stage otherwise."""
    stage.frozen = False
    try:
        return find_stale_reason(stage, seen) or ""
    finally:
        stage.frozen = True


def has_outs_to_pull(stage: "PipelineStage") -> bool:
    """Whether the stage is as dvc.lock records it but for outs that are neither in the workspace nor in the cache, so
    that a pull can bring them.
    """
    files = [dep.status() for dep in stage.deps if dep not in stage.params]
    changed = {state for states in files for state in states.values()} - {"deleted"}
    as_recorded = stage.frozen or not (changed or stage.cmd_changed or any(dep.status() for dep in stage.params))
    return as_recorded and all(out.hash_info for out in stage.outs) and not stage.outs_cached()


def iterate_command_and_param_changes(stage: "PipelineStage") -> Iterator[str]:
    """In which parameters and in what command the stage differs from its record."""
    if stage.cmd_changed:
        yield "command changed"
    for dep in stage.params:
        yield from _iterate_param_reasons(dep)


def _iterate_stale_reasons(stage: "PipelineStage", seen: Seen) -> Iterator[str]:
    if not stage.frozen:
        if classify_out_origin(stage) == "other inputs":
            yield MIXED
        if stage.cmd_changed:
            yield "command changed"
        if stage.always_changed or stage.is_callback:
            yield "runs always"
        for dep in stage.deps:
            if dep in stage.params:
                yield from _iterate_param_reasons(dep)
            else:
                dep_key = dep.fs_path, dep.hash_info.value if dep.hash_info else None
                if dep_key not in seen:
                    stage.repo.dvcignore.check(dep.fs_path)
                    seen[dep_key] = dep.status()
                yield from (f"dep {path} {_DEP[state]}" for path, state in seen[dep_key].items())
    for out in stage.outs:
        stage.repo.dvcignore.check(out.fs_path)
        yield from (f"out {path} {_OUT[state]}" for path, state in out.status().items())


_DEP = {"new": "is new", "modified": "changed", "deleted": "missing"}
_OUT = {"new": "is new", "modified": "changed since", "deleted": "missing", "not in cache": "is not in the cache"}


def iterate_changed_params(dep: "ParamsDependency") -> Iterator[tuple[str, object, object]]:
    """Key, recorded and current value of each leaf of the listed params at which they differ; None where there is
    none.
    """
    return _iterate_changed_values(dep, _get_param_states(dep))


def _get_param_states(dep: "ParamsDependency") -> Any:
    """What DVC says of the file as a whole, a text, or of each key that changed."""
    return next(iter(dep.status().values()), {})


def _iterate_changed_values(dep: "ParamsDependency", states: Any) -> Iterator[tuple[str, object, object]]:
    if not states or isinstance(states, str):
        return
    recorded: Any = dep.hash_info.value if dep.hash_info else {}
    current = dep.read_params()
    for key in states:
        yield from _iterate_differing_leaves(key, recorded.get(key), current.get(key))


def _iterate_param_reasons(dep: "ParamsDependency") -> Iterator[str]:
    states = _get_param_states(dep)
    if isinstance(states, str):
        yield f"params file {dep.def_path} {_DEP[states]}"
    for key, old, new in _iterate_changed_values(dep, states):
        if old is None:
            yield f"param {key} is new"
        elif new is None:
            yield f"param {key} is gone"
        else:
            yield f"param {key} changed {_truncate_value(old)} -> {_truncate_value(new)}"


def _iterate_differing_leaves(key: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name):
                yield from _iterate_differing_leaves(f"{key}.{name}", old.get(name), new.get(name))
    else:
        yield key, old, new


def _truncate_value(value: object) -> str:
    text = str(value)
    return text if len(text) <= 30 else text[:27] + "..."

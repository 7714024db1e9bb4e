"""What differs between two snapshots of a pipeline, stage by stage, and which stages that touched."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flows.engine import dvc_lock
from flows.lineage.execution_record import ExecutionRecord

Snapshot = Mapping[str, ExecutionRecord]
Pair = tuple[Any, Any]  # old and new; None where there is none
Cause = Literal["changed", "upstream", "result", "added", "removed"]


@dataclass(frozen=True)
class StageChange:
    """How one stage differs.

    `cause` is "upstream" where only what other stages made does, "result" where nothing but its outs does.
    """

    stage: str
    cause: Cause
    params: Mapping[str, Pair]
    code: Mapping[str, Pair]  # path -> hashes
    data: Mapping[str, Pair]  # deps that are no code
    command: Pair | None
    outs: Mapping[str, Pair]
    environment: Mapping[str, Pair]  # versions and machine; only of a stage that differs in something else too
    through: tuple[str, ...]  # the stages whose differing outs it read
    raw: tuple[str, ...] = ()  # of `data` the paths that no stage makes

    @property
    def same_result(self) -> bool:
        """Whether the stage made the same all the same, so that nothing below it is touched."""
        return self.cause not in ("added", "removed") and not self.outs


def compare_snapshots(old: Snapshot, new: Snapshot) -> list[StageChange]:
    """The stages that differ, in the order of the new snapshot, those that it lacks last."""
    makers = _map_outputs_to_stages(old) | _map_outputs_to_stages(new)
    stages = dict.fromkeys([*new, *old])
    remade = {stage for stage in stages if _get_output_hashes(old.get(stage)) != _get_output_hashes(new.get(stage))}
    stage_changes = (_compare_stage_records(stage, old.get(stage), new.get(stage), makers, remade) for stage in stages)
    return [change for change in stage_changes if change is not None]


def flatten_record_params(record: ExecutionRecord) -> dict[str, Any]:
    """The parameters that a stage was made with, by their dotted keys."""
    sections = record.entry.get("params") or {}
    return {key: value for file in sections.values() for key, value in _iterate_flattened_items(file)}


def find_changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Pair]:
    """The keys whose values differ, with both."""
    return {key: (old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)}


def _compare_stage_records(
    stage: str, old: ExecutionRecord | None, new: ExecutionRecord | None, makers: Mapping[str, str], remade: set[str]
) -> StageChange | None:
    if old is None or new is None:
        return StageChange(stage, "removed" if new is None else "added", {}, {}, {}, None, {}, {}, ())
    a = old.entry
    b = new.entry
    params = find_changed_values(flatten_record_params(old), flatten_record_params(new))
    code, data = (
        find_changed_values(kind(a), kind(b)) for kind in (dvc_lock.get_code_hashes, dvc_lock.get_data_hashes)
    )
    outs = find_changed_values(dvc_lock.get_entry_hashes(a, "outs"), dvc_lock.get_entry_hashes(b, "outs"))
    command = (a.get("cmd"), b.get("cmd")) if a.get("cmd") != b.get("cmd") else None
    related = {path: _find_stages_making_path(path, makers, stage) for path in data}
    if params or code or command or not all(related.values()):
        cause: Cause = "changed"
    elif data:
        cause = "upstream"
    elif outs:
        cause = "result"
    else:
        return None
    environment = find_changed_values(old.environment, new.environment) if old.environment and new.environment else {}
    through = dict.fromkeys(maker for related_stages in related.values() for maker in related_stages if maker in remade)
    raw = tuple(path for path, related_stages in related.items() if not related_stages)
    return StageChange(stage, cause, params, code, data, command, outs, environment, tuple(through), raw)


def _map_outputs_to_stages(snapshot: Snapshot) -> dict[str, str]:
    """Path -> the stage that makes it."""
    return {path: name for name, record in snapshot.items() for path in dvc_lock.get_entry_hashes(record.entry, "outs")}


def _find_stages_making_path(path: str, makers: Mapping[str, str], reader: str) -> list[str]:
    """The other stages that make a path, what contains it, or something in it."""
    return [
        stage
        for out, stage in makers.items()
        if stage != reader and (out == path or path.startswith(f"{out}/") or out.startswith(f"{path}/"))
    ]


def _get_output_hashes(record: ExecutionRecord | None) -> dict[str, str]:
    return dvc_lock.get_entry_hashes(record.entry, "outs") if record else {}


def _iterate_flattened_items(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _iterate_flattened_items(inner, f"{above}{name}.")
        else:
            yield f"{above}{name}", inner


@dataclass(frozen=True)
class Ways:
    """Two stages of one snapshot: what each came from until the ways meet.

    `common` has the nearest stages that both came from, `own` those on each one's way since, itself last; `params` has
    both values of each key that their sections share and that differ, `alone` the keys that only one section has.
    """

    common: tuple[str, ...]
    own: tuple[tuple[str, ...], tuple[str, ...]]
    params: Mapping[str, Pair]
    alone: tuple[Mapping[str, Any], Mapping[str, Any]]


def compare_stage_ancestry(snapshot: Snapshot, a: str, b: str) -> Ways:
    """How the outs of two stages came about differently."""
    makers = _map_outputs_to_stages(snapshot)
    upstream = {name: _find_upstream_stages(record, snapshot, makers) - {name} for name, record in snapshot.items()}
    above = {stage: _collect_ancestors(stage, upstream) for stage in upstream}
    shared = above[a] & above[b]
    nearest = [
        stage for stage in snapshot if stage in shared and not any(stage in above[other] - {other} for other in shared)
    ]
    exclusive = tuple(_sort_topologically(above[stage] - shared, above) for stage in (a, b))
    sections = [
        {_strip_section_name(key): value for key, value in flatten_record_params(snapshot[stage]).items()}
        for stage in (a, b)
    ]
    both = sections[0].keys() & sections[1].keys()
    return Ways(
        tuple(nearest),
        (exclusive[0], exclusive[1]),
        {key: pair for key, pair in find_changed_values(*sections).items() if key in both},
        (
            {key: value for key, value in sections[0].items() if key not in both},
            {key: value for key, value in sections[1].items() if key not in both},
        ),
    )


def find_training_stage(snapshot: Snapshot, evaluation: str) -> str:
    """The stage that made the policy of an evaluation: of the branch's name, or else the last that the evaluation read
    from.
    """
    policy = evaluation.partition("@")[2]
    if policy in snapshot:
        return policy
    makers = _map_outputs_to_stages(snapshot)
    upstream = {name: _find_upstream_stages(record, snapshot, makers) for name, record in snapshot.items()}
    return max(upstream[evaluation], key=lambda stage: len(_collect_ancestors(stage, upstream)), default=evaluation)


def _strip_section_name(name: str) -> str:
    """A parameter's key without its section."""
    return name.partition(".")[2] or name


def _find_upstream_stages(record: ExecutionRecord, snapshot: Snapshot, makers: Mapping[str, str]) -> set[str]:
    """The stages whose outs a stage reads."""
    return {
        stage
        for path in dvc_lock.get_data_hashes(record.entry)
        for stage in _find_stages_making_path(path, makers, record.stage)
        if stage in snapshot
    }


def _collect_ancestors(stage: str, upstream: Mapping[str, set[str]]) -> set[str]:
    reached = set[str]()
    todo = [stage]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += upstream[name]
    return reached


def _sort_topologically(stages: set[str], above: Mapping[str, set[str]]) -> tuple[str, ...]:
    """The stages, each after those that it came from."""
    return tuple(sorted(stages, key=lambda stage: (len(above[stage]), stage)))

"""The stages of all points as one graph. Stages of several points that would do the same are one node.

Two stages do the same if their command, parameters, code, raw data and upstream are the same; then so are their outs.
The stage `code` is another one at each choice of code, of which a stage shares but what its own section chooses.
"""

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import chdir, closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from flows.engine import stage_code
from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_repository import PlanError, cache_parsed_params, convert_dvc_errors_to_plan_error, open_repo
from flows.engine.dvc_stage import build_lock_entry
from flows.engine.plan import Resources, check_stage_deps, parse_stage_resources, resolve_stage_target
from flows.params.files import PARAMS
from flows.sweeps.axes import Point

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage

SMALL = 2**26  # bytes of raw data that a snapshot copies; larger data is linked to, and hashed again after each stage
Item = dict[str, Any]  # a dep as dvc.lock has it: path, hash, md5, size


@dataclass(frozen=True)
class Draft:
    """A stage at a point, as far as it is known before anything has run."""

    stage: str
    cmd: Any  # a text or a list of texts
    deps: tuple[str, ...]  # every path, one that is named twice twice
    outside: Mapping[str, Item]  # the deps that no stage makes
    makers: Mapping[str, tuple[str, ...]]  # the other deps -> the stages that make what is there
    params: Mapping[str, Mapping[str, Any]]  # file -> key -> value
    outs: tuple[str, ...]
    upstream: tuple[str, ...]
    asked: Resources


@dataclass
class Node:
    """A stage of one or several points. `reason` is None where its outs are in the cache already."""

    id: str
    draft: Draft
    points: list[Point]
    upstream: dict[str, str]  # upstream stage -> its node
    reason: str | None = ""


def draft_stages_and_fill_snapshot(
    repository: Path,
    snapshot: Path,
    targets: Sequence[str],
    outside_items: dict[str, Item],
    pools: bool = False,
    pool: str = "",
) -> dict[str, Draft]:
    """The targets and all that they need with the params.yaml of `snapshot`, in topological order; `pools` and `pool`
    as a plan has them.

    `outside_items` keeps the hashes of what no stage makes from one point to the next. PlanError as a plan raises it,
    and for stages that DVC's run cache cannot keep.
    """
    with chdir(snapshot), closing(open_repo(snapshot)) as repo, cache_parsed_params():
        pipeline = StageGraph(repo)
        wanted = {name for target in targets for name in resolve_stage_target(target, pipeline)}
        closure = pipeline.load_upstream_closure(wanted)
        outs = {
            PurePosixPath(str(out.def_path)): name for name, (stage, _) in closure.stages.items() for out in stage.outs
        }
        makers: dict[
            PurePosixPath, list[str]
        ] = {}  # an out, or a folder above outs -> the stages that make what is there
        for out, name in outs.items():
            for prefix in (out, *out.parents):
                makers.setdefault(prefix, []).append(name)
        by_stage: dict[str, Draft] = {}
        for name, (stage, upstream) in closure.stages.items():
            _check_stage_sharable(stage)
            made = {
                dep.def_path: _find_path_makers(PurePosixPath(dep.def_path), makers, outs)
                for dep in _list_file_deps(stage)
            }
            outside = [path for path, by in made.items() if not by]
            for path in outside:
                _copy_or_link_dep(repository, snapshot, path)
            check_stage_deps(stage, closure.outs, snapshot)
            items = _hash_outside_deps(stage, outside, outside_items)
            by_stage[name] = Draft(
                name,
                stage.cmd,
                tuple(dep.def_path for dep in _list_file_deps(stage)),
                {path: items[path] for path in outside},
                {path: by for path, by in made.items() if by},
                {dep.def_path: dict(dep.read_params()) for dep in stage.params},
                tuple(sorted(str(out.def_path) for out in stage.outs)),
                upstream,
                parse_stage_resources(stage, pools, pool),
            )
        return by_stage


def merge_drafts_into_nodes(by_point: Sequence[tuple[Point, Mapping[str, Draft]]]) -> dict[str, Node]:
    """The nodes by their names, in topological order: those of the first point, then what each further point adds."""
    nodes: dict[str, Node] = {}  # identity -> node
    of_point: list[dict[str, str]] = []
    for point, stages in by_point:
        identities: dict[str, str] = {}
        for name, draft in stages.items():
            code = stages[stage_code.STAGE] if stage_code.STAGE in draft.upstream else None
            upstream = [identities[up] for up in draft.upstream if up != stage_code.STAGE]
            identity = identities[name] = _compute_node_identity(draft, upstream, code)
            node = nodes.setdefault(identity, Node(identity, draft, [], {up: identities[up] for up in draft.upstream}))
            node.points.append(point)
        of_point.append(identities)
    names = _name_nodes(nodes, [point for point, _ in by_point])
    for identity, node in nodes.items():
        node.id = names[identity]
        node.upstream = {up: names[up_identity] for up, up_identity in node.upstream.items()}
    return {node.id: node for node in nodes.values()}


def select_differing_evaluations(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """The evaluations that differ between settings, or where seeds alone vary between seeds, and all that they need.

    Every node where none differs.
    """

    def settings(node: Node) -> set[str]:
        return {str(point.without_seed) for point in node.points}

    every = set[str]().union(*map(settings, nodes.values()))
    kinds = ("evaluate@", "returns@")
    todo = [
        name
        for name, node in nodes.items()
        if node.draft.stage.startswith(kinds) and (len(every) == 1 or settings(node) < every)
    ]
    needed = set[str]()
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += nodes[name].upstream.values()
    return {name: node for name, node in nodes.items() if not needed or name in needed}


def _check_stage_sharable(stage: "PipelineStage") -> None:
    what = ""
    if Path(stage.wdir).resolve() != Path.cwd().resolve():
        what = f"its folder is {Path(stage.wdir).name}, and a sweep runs stages in the repository's own"
    elif stage.always_changed or not stage.outs:
        what = "DVC keeps no outs of it that points could share"
    elif any(out.persist or not out.use_cache for out in stage.outs):
        out = next(out for out in stage.outs if out.persist or not out.use_cache)
        what = f"out {out.def_path} is not kept in DVC's cache, so that points cannot share it"
    elif stage.frozen:
        what = f"it is frozen, so that points cannot differ in it; `dvc unfreeze {stage.name}` ends that"
    if what:
        raise PlanError(f"dvc.yaml: stage '{stage.name}': {what}")


def _list_file_deps(stage: "PipelineStage") -> list[Any]:
    return [dep for dep in stage.deps if dep not in stage.params]


def _find_path_makers(
    path: PurePosixPath, makers: Mapping[PurePosixPath, Sequence[str]], outs: Collection[PurePosixPath]
) -> tuple[str, ...]:
    """The stages that make this path, a folder that it lies in, or something within it."""
    above = [name for prefix in (path, *path.parents) if prefix in outs for name in makers[prefix]]
    return tuple(dict.fromkeys(above or makers.get(path, ())))


def _copy_or_link_dep(repository: Path, snapshot: Path, path: str) -> None:
    """See to it that the snapshot has a dep as it is now, whatever git leaves out of it."""
    from flows.engine import dvc_walk

    target = snapshot / path
    source = repository / path
    if Path(path).is_absolute() or target.is_symlink() or not source.exists():
        return
    if source.is_dir() or not target.exists():
        size = sum(file.stat().st_size for file in dvc_walk.list_hashed_files(repository, source))
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            shutil.rmtree(target)
        if size > SMALL:
            target.symlink_to(source)
        else:
            dvc_walk.copy_hashed_files(repository, source, target)


def _hash_outside_deps(
    stage: "PipelineStage", outside: Sequence[str], outside_items: dict[str, Item]
) -> dict[str, Item]:
    outside_items.pop(PARAMS, None)  # each point has its own
    for dep in _list_file_deps(stage):
        if dep.def_path in outside and dep.def_path not in outside_items:
            with convert_dvc_errors_to_plan_error():
                dep.save()
    listed = {item["path"]: item for item in build_lock_entry(stage).get("deps", [])}
    for path in outside:
        outside_items.setdefault(path, dict(listed[path]))
    return {path: outside_items[path] for path in outside}


def _compute_node_identity(draft: Draft, upstream: Sequence[str], code: Draft | None) -> str:
    """Of a draft with these identities of its other upstream, whose code the stage `code` writes."""
    facts = [draft.stage, draft.cmd, draft.deps, draft.outside, draft.params, draft.outs, sorted(upstream)]
    if code is not None:
        chosen = stage_code.list_chosen_modules(draft.stage, code.params.get(PARAMS, {}))
        facts += [code.cmd, code.outside, chosen]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _name_nodes(nodes: Mapping[str, Node], points: Sequence[Point]) -> dict[str, str]:
    """The stage, and `@` with the settings that set a node apart from others of its stage: `dpo@beta=0.1,seed=1`."""
    count: dict[str, int] = {}
    for node in nodes.values():
        count[node.draft.stage] = count.get(node.draft.stage, 0) + 1
    values: dict[str, set[str]] = {}
    for point in points:
        for key, value in point.settings_as_text.items():
            values.setdefault(key, set()).add(value)
    varied = {key for key, each in values.items() if len(each) > 1}
    last = [key.rpartition(".")[2] for key in varied]
    names: dict[str, str] = {}
    for identity, node in nodes.items():
        settings = [set(point.settings_as_text.items()) for point in node.points]
        common = set.intersection(*settings)
        order = [key for key, _ in node.points[0].settings]
        shown = [
            f"{key if last.count(key.rpartition('.')[2]) > 1 else key.rpartition('.')[2]}={value}"
            for key, value in sorted(common, key=lambda pair: order.index(pair[0]))
            if key in varied
        ]
        alone = count[node.draft.stage] == 1
        names[identity] = node.draft.stage if alone else f"{node.draft.stage}@{','.join(shown)}"
    for identity, node in nodes.items():
        if list(names.values()).count(names[identity]) > 1:
            numbers = ",".join(str(point.number) for point in node.points)
            names[identity] = f"{node.draft.stage}@points {numbers}"
    return names

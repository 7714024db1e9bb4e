"""A sweep from what it varies to its outcome: points, one graph, one run of it, and a record of each point in
MLflow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine.dvc_lock import Entry
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import PlannedStage, StageResult, Watcher
from flows.params import checking, data_files, editing
from flows.params.files import PARAMS, ParameterError, read_text
from flows.sweeps import dvc_graph, snapshot
from flows.sweeps.axes import Point, format_param_value
from flows.sweeps.dvc_graph import Item, Node
from flows.sweeps.halved_nodes import HalvedNodes
from flows.sweeps.halving import Halving
from flows.sweeps.nodes import Nodes
from flows.workers.in_copy import open_scratch_folder
from tasks.common.source_code import CodeState

if TYPE_CHECKING:
    from flows.engine.execute import Execution

HOME = Path(".dvc/tmp/posttrain/sweeps")
Watching = Callable[[Sequence[PlannedStage]], AbstractContextManager[Watcher]]


@dataclass(frozen=True)
class Ended:
    """A point after the sweep: of each of its stages the state, the entry as dvc.lock would have it, and the run that
    made it.
    """

    point: Point
    params: str  # the text of its params.yaml
    states: Mapping[str, str]
    entries: Mapping[str, Entry]  # of the stages whose outs are in the cache
    runs: Mapping[str, str | None]
    behind: str = ""  # why a training of it was not ended
    reached: Mapping[str, float] = field(default_factory=dict)  # where its trainings were compared with those of others

    @property
    def done(self) -> bool:
        """Whether every stage's outs are in the cache."""
        return len(self.entries) == len(self.states)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do: it is done, or behind others, and nothing of it failed."""
        return self.done or (bool(self.behind) and not {"failed", "skipped", "paused"} & {*self.states.values()})


@dataclass(frozen=True)
class Sweep:
    """The points of a sweep, their texts of params.yaml, and the graph that they share; in a snapshot of the
    repository.
    """

    root: Path
    tree: Path
    source: CodeState
    points: Sequence[Point]
    texts: Mapping[int, str]  # by the number of a point
    nodes: Mapping[str, Node]
    of_points: Mapping[int, Mapping[str, str]]  # number of a point -> stage -> node
    owner: Nodes
    planned: Sequence[PlannedStage]
    said: Sequence[str]  # of parameters without effect, and of files of the user's

    @property
    def title(self) -> str:
        """`sweep dpo.beta=0.05,0.1 seed=0,1: 4 points`."""
        values: dict[str, dict[str, None]] = {}
        for point in self.points:
            for key, value in point.settings:
                values.setdefault(key, {})[format_param_value(value)] = None
        axes = " ".join(f"{key}={','.join(each)}" for key, each in values.items())
        return f"sweep {axes}: {len(self.points)} points"

    @property
    def stages(self) -> int:
        """The stages of all points together, as many as would run without sharing."""
        return sum(map(len, self.of_points.values()))

    def ended(self, results: Mapping[str, StageResult]) -> list[Ended]:
        """The points with the results of their nodes."""
        ended_points = []
        for point in self.points:
            nodes = self.of_points[point.number]
            ended_points.append(
                Ended(
                    point,
                    self.texts[point.number],
                    {stage: results[node].state for stage, node in nodes.items()},
                    {
                        stage: self.owner.entries[node]
                        for stage, node in nodes.items()
                        if results[node].state in ("ran", "restored", "up-to-date")
                    },
                    {stage: results[node].mlflow_run_id for stage, node in nodes.items()},
                    next((why for node in nodes.values() if (why := self.owner.find_behind_reason(node, results))), ""),
                    {key: number for node in nodes.values() for key, number in self.owner.numbers(node).items()},
                )
            )
        return ended_points


@contextmanager
def prepare_sweep(
    root: Path,
    points: Sequence[Point],
    targets: Sequence[str],
    evaluations: bool = False,
    pools: bool = False,
    pool: str = "",
    early: str = "",
) -> Iterator[Sweep]:
    """The sweep over `points` of all that `targets` need, checked; it can run while the context lasts.

    With `evaluations` only of those evaluations among it that differ between points, and what they need. `pools` and
    `pool` as a plan has them. With `early`, a number of the trainings' curves, those that are behind by it are not
    trained to their end. ParameterError or PlanError of one line if a point's parameters do not fit, or a stage cannot
    be shared.
    """
    root = root.absolute()
    types = checking.load_config_classes(root)
    with open_scratch_folder(root / HOME, "") as (folder, _):
        tree = folder / "tree"
        source = snapshot.take_snapshot(root, tree)
        base = read_text(tree / PARAMS)
        outside_items = dict[str, Item]()
        remarks = list[str]()
        texts: dict[int, str] = {}
        drafted = []
        for point in points:
            texts[point.number], notes = _build_point_params(tree, types, point)
            remarks += [note for note in notes if note not in remarks]
            with snapshot.swap_snapshot_params(tree, texts[point.number]):
                drafted.append(
                    (point, dvc_graph.draft_stages_and_fill_snapshot(root, tree, targets, outside_items, pools, pool))
                )
        assert read_text(tree / PARAMS) == base
        nodes = dvc_graph.merge_drafts_into_nodes(drafted)
        if evaluations:
            nodes = dvc_graph.select_differing_evaluations(nodes)
        of_points = {
            point.number: {node.draft.stage: name for name, node in nodes.items() if point in node.points}
            for point in points
        }
        owner = (
            HalvedNodes(root, tree, nodes, texts, Halving(nodes, early, tree))
            if early
            else Nodes(root, tree, nodes, texts)
        )
        planned = owner.plan()
        late = {stage.name for stage in planned if stage.reason}
        for point in points:
            with snapshot.swap_snapshot_params(tree, texts[point.number]), _prefix_errors_with_point(point):
                names = {stage for stage, node in of_points[point.number].items() if node in late}
                editing.check_params_consistency(tree, types, {*of_points[point.number]}, names)
                remarks += [
                    line for line in data_files.check_data_files(tree, names, later=False) if line not in remarks
                ]
        yield Sweep(root, tree, source, points, texts, nodes, of_points, owner, planned, remarks)


def run_sweep(
    sweep: Sweep, flow: str, jobs: int | None, watching: Watching, cold: bool, call: "Callable[[Execution], None]"
) -> list[StageResult]:
    """Run what is not in the cache yet, by `call`, which has Prefect start the stages; the result of each node."""
    from flows.engine.run_session import open_recorded_execution

    with (
        watching(sweep.planned) as watch,
        open_recorded_execution(
            sweep.root,
            sweep.planned,
            flow=flow,
            jobs=jobs,
            watch=watch,
            cold=cold,
            owner=sweep.owner.use_warm_starts,
            source=sweep.source,
        ) as execution,
    ):
        call(execution)
    return execution.ended


def _build_point_params(tree: Path, types: checking.Sections, point: Point) -> tuple[str, list[str]]:
    """The point's params.yaml, and lines on parameters that do nothing there."""
    before = editing.read_params_bytes(tree)
    try:
        changes = editing.edit_params(tree, types, point.edits("sweep")) if point.settings else []
        return read_text(tree / PARAMS), [line for line in changes if " -> " not in line]
    finally:
        (tree / PARAMS).write_bytes(before)


@contextmanager
def _prefix_errors_with_point(point: Point) -> Iterator[None]:
    """Name the point in what is wrong with it."""
    try:
        yield
    except (ParameterError, PlanError) as error:
        raise type(error)(f"point {point.name}: {error}") from None

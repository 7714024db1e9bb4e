"""Successive halving over steps: trainings of a sweep pause together, and those in the half that is behind are not
trained on.

The trainings of one stage at different settings are a group. They train to the group's first rung, a share of their
steps, and pause. Those that differ in their seed alone count as one, with the mean of their numbers. The better half
goes on to the next rung or to the end, and so does what is as good as the last of that half. A training that goes on
ends with the bits that it would have without pauses. What is behind keeps its checkpoint. (K. Jamieson and A.
Talwalkar, arXiv:1502.07943, algorithm 1, with steps as the resource.)
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import fmean

from flows.engine.dvc_repository import PlanError
from flows.params.files import PARAMS
from flows.sweeps.axes import format_param_value
from flows.sweeps.dvc_graph import Node
from flows.sweeps.measure import Measure, query_curve_columns

VARIABLE = "POSTTRAIN_PAUSE"  # as tasks/common/pausing.py reads it
CURVES = "data/curves/"  # where trainings leave their numbers by step
MOST = 4  # rungs: the first is at a sixteenth of the steps, at least
DONE = ("ran", "restored", "up-to-date")  # states of trainings that have got to their end


@dataclass(frozen=True)
class Rung:
    """Where a training pauses: after a share of its steps. `number` counts the rungs of its group from 0."""

    node: str
    number: int
    share: Fraction

    @property
    def name(self) -> str:
        """`grpo@learning_rate=1e-4 to 25 %`."""
        return f"{self.node} to {self.percent}"

    @property
    def percent(self) -> str:
        """`25 %`."""
        return f"{float(100 * self.share):.3g} %"


@dataclass(frozen=True)
class RungMetric:
    """The number by which a training is compared, at a step."""

    step: int
    total: int
    value: float


@dataclass
class Group:
    """The trainings of a stage: a key for each setting, which has a training for each seed."""

    stage: str
    measure: Measure
    candidates: Mapping[str, Sequence[str]]  # settings as text -> nodes
    shares: Sequence[Fraction]
    # Node and number of a rung -> the number there; None of a training that has ended without one.
    reached: dict[tuple[str, int], RungMetric | None] = field(default_factory=dict)

    def list_rungs(self, node: str) -> list[Rung]:
        """The rungs of a training, in their order."""
        return [Rung(node, number, share) for number, share in enumerate(self.shares)]

    def behind(self, node: str, number: int) -> str | None:
        """Why a training does not go on to rung `number`, or to the end where that is the number of rungs; None if it
        does.

        PlanError where trainings have different numbers of steps, so that they cannot be compared.
        """
        node_settings = next(settings for settings, nodes in self.candidates.items() if node in nodes)
        alive = list(self.candidates)
        for rung in range(number):
            at = self._find_rung_metric(rung)
            values = {
                settings: value for settings in alive if (value := self._compute_seed_mean(settings, rung)) is not None
            }
            ranks = sorted(map(self.measure.rank, values.values()))
            cut = ranks[min(math.ceil(len(alive) / 2), len(ranks)) - 1] if ranks else 0.0
            alive, entered = (
                [
                    candidate
                    for candidate in alive
                    if candidate in values and self.measure.rank(values[candidate]) <= cut
                ],
                alive,
            )
            if node_settings in entered and node_settings not in alive:
                if node_settings not in values:
                    return f"did not get to step {at.step} of {at.total} with each seed" if at else "did not get there"
                assert at is not None
                last = max((values[candidate] for candidate in alive), key=self.measure.rank)
                return (
                    f"at step {at.step} of {at.total} {self.measure.name} was {values[node_settings]:.4g}; "
                    f"{last:.4g} goes on"
                )
        return None

    def is_decided(self, number: int) -> bool:
        """Whether all is known that `behind` needs for rung `number`."""
        for rung in range(number):
            for nodes in self.candidates.values():
                if self.behind(nodes[0], rung) is None and any((node, rung) not in self.reached for node in nodes):
                    return False
        return True

    def sentence(self, states: Mapping[str, str]) -> str:
        """What halving saved; `states` has how each training ended."""
        trained = 0
        every = 0
        for node in (node for nodes in self.candidates.values() for node in nodes):
            reached = [at for number in range(len(self.shares)) if (at := self.reached.get((node, number)))]
            if reached:
                every += reached[0].total
                trained += reached[0].total if states[node] in DONE else reached[-1].step
        behind = sum(states[node] == "behind" for nodes in self.candidates.values() for node in nodes)
        if not behind:
            return f"{self.stage}: no training was behind by {self.measure.name}"
        count = sum(map(len, self.candidates.values()))
        return (
            f"{self.stage}: {behind} of {count} trainings were behind by {self.measure.name} and are paused; "
            f"all together trained {trained:,} of {every:,} steps"
        )

    def _compute_seed_mean(self, settings: str, rung: int) -> float | None:
        """The mean over seeds; None unless each seed has got there."""
        nodes = self.candidates[settings]
        values = [at.value for node in nodes if (at := self.reached.get((node, rung)))]
        return fmean(values) if len(values) == len(nodes) else None

    def _find_rung_metric(self, rung: int) -> RungMetric | None:
        measured = [reached for (_, number), reached in self.reached.copy().items() if reached and number == rung]
        if len({(reached.step, reached.total) for reached in measured}) > 1:
            steps = ", ".join(map(str, sorted({reached.total for reached in measured})))
            raise PlanError(f"--early: points train {self.stage} for {steps} steps, so they cannot be compared at one")
        return measured[0] if measured else None


class Halving:
    """The groups of a sweep's graph, and what their trainings have reached; `metric` is a number of their curves, as
    Measure takes it.

    `tree` is the project. PlanError of one line where nothing can be compared by it.
    """

    def __init__(self, nodes: Mapping[str, Node], metric: str, tree: Path) -> None:
        self.measure = measure = Measure.asked(metric)
        varied = _list_varied_params(nodes.values())
        groups = dict(_group_trainings_by_stage(nodes, varied))
        if not groups:
            raise PlanError(
                f"--early: no training depends on {', '.join(varied) or 'what is varied'}; it compares those that "
                f"leave a curve in {CURVES}"
            )
        checked = {
            stage: _build_group_or_error(stage, measure, candidates, nodes, varied)
            for stage, candidates in groups.items()
        }
        faults = [group for group in checked.values() if isinstance(group, PlanError)]
        if len(faults) == len(checked):  # whatever numbers the curves have, which takes seconds to ask
            raise faults[0]
        curves = query_curve_columns(
            tree,
            {stage: nodes[_get_first_node(by_settings)].draft.cmd for stage, by_settings in groups.items()},
            measure.name,
        )
        without = {stage: curve["names"] for stage, curve in curves.items() if not curve["has"]}
        self.groups: list[Group] = []
        for stage, group in checked.items():
            if stage not in without:
                if isinstance(group, PlanError):
                    raise group
                self.groups.append(group)
        if not self.groups:
            available = "; ".join(f"that of {stage} has {', '.join(names)}" for stage, names in without.items())
            raise PlanError(f"--early {measure.name}: no curve has such a number; {available}")
        self._of = {node: group for group in self.groups for nodes in group.candidates.values() for node in nodes}
        self._rungs = {rung.name: rung for node, group in self._of.items() for rung in group.list_rungs(node)}

    def find_rung(self, name: str) -> Rung | None:
        """The rung of this name; None for a node."""
        return self._rungs.get(name)

    def known(self, rung: Rung) -> bool:
        """Whether a training's number at a rung is known."""
        return (rung.node, rung.number) in self._of[rung.node].reached

    def list_rungs(self, node: str) -> list[Rung]:
        """The rungs of a node, none unless it is in a group."""
        group = self._of.get(node)
        return group.list_rungs(node) if group else []

    def before(self, node: str, number: int | None = None) -> tuple[str, ...]:
        """The names of what has to end before anything can be said of rung `number` of a node, or of its end: all
        earlier rungs.
        """
        group = self._of.get(node)
        if group is None:
            return ()
        others = [other for nodes in group.candidates.values() for other in nodes]
        return tuple(rung.name for other in others for rung in group.list_rungs(other)[:number])

    def behind(self, node: str, number: int | None = None) -> str | None:
        """Why a node does not go on to a rung, or to its end."""
        group = self._of.get(node)
        return group.behind(node, len(group.shares) if number is None else number) if group else None

    def left(self, node: str, number: int | None = None) -> str | None:
        """The same, if that is known already."""
        group = self._of.get(node)
        if group is None:
            return None
        at = len(group.shares) if number is None else number
        return group.behind(node, at) if group.is_decided(at) else None

    def numbers(self, node: str) -> dict[str, float]:
        """What a node had reached at each rung: `grpo/eval_accuracy/at_step_40`."""
        group = self._of.get(node)
        reached = [group.reached.get((node, rung.number)) for rung in group.list_rungs(node)] if group else []
        return {f"{group.stage}/{self.measure.name}/at_step_{at.step}": at.value for at in reached if group and at}

    def note(self, rung: Rung, reached: RungMetric | None) -> None:
        """Note what a training had reached, or that it ended without such a number."""
        self._of[rung.node].reached[rung.node, rung.number] = reached

    def sentences(self, states: Mapping[str, str]) -> list[str]:
        """What halving saved, a line for each group; `states` has how each node ended."""
        lines = []
        for group in self.groups:
            with suppress(PlanError):  # which the stages said
                lines.append(group.sentence(states))
        return lines


def get_rung_file(checkpoints: Path, stage: str, rung: Rung, metric: str) -> Path:
    """Where a training leaves what it had reached at a rung, beside its checkpoint."""
    name = "".join(letter if letter.isalnum() else "_" for letter in metric)
    return checkpoints / f"{stage}-{rung.share.numerator}-{rung.share.denominator}-{name}.json"


def build_pause_variable(rung: Rung, metric: str, file: Path) -> dict[str, str]:
    """What has a training pause at a rung."""
    return {VARIABLE: json.dumps({"share": str(rung.share), "metric": metric, "file": str(file)})}


def read_rung_metric(path: Path, metric: str) -> RungMetric | None:
    """What a training left at a rung; None if it did not get there."""
    try:
        record = json.loads(path.read_text())
        return RungMetric(record["step"], record["total"], record["value"]) if record["metric"] == metric else None
    except (OSError, ValueError, TypeError, LookupError):
        return None


def parse_rung_metric_from_curve(content: str, rung: Rung, metric: str) -> RungMetric | None:
    """What a training that has ended had reached at a rung, by its curve; None of a training of no steps.

    ValueError where the curve has no such number.
    """
    head, *rows = (line.split(",") for line in content.splitlines())
    step = max(1, int(rung.share * len(rows)))
    return RungMetric(step, len(rows), float(rows[step - 1][head.index(metric)])) if rows else None


def _list_varied_params(nodes: Iterable[Node]) -> list[str]:
    """The parameters that have several values, without the seed."""
    values: dict[str, dict[str, None]] = {}
    for node in nodes:
        for point in node.points:
            for key, value in point.without_seed:
                values.setdefault(key, {})[format_param_value(value)] = None
    return [key for key, each in values.items() if len(each) > 1]


def _group_trainings_by_stage(
    nodes: Mapping[str, Node], varied: Collection[str]
) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """The trainings that read what varies: stage -> settings as text -> nodes."""
    by_stage: dict[str, dict[str, list[str]]] = {}
    for name, node in nodes.items():
        if any(out.startswith(CURVES) for out in node.draft.outs) and any(
            _depends_on_param(node, key) for key in varied
        ):
            settings = ",".join(f"{key}={value}" for key, value in _get_common_settings(node).items())
            by_stage.setdefault(node.draft.stage, {}).setdefault(settings, []).append(name)
    return ((stage, candidates) for stage, candidates in by_stage.items() if len(candidates) > 1)


def _get_first_node(candidates: Mapping[str, Sequence[str]]) -> str:
    return next(iter(candidates.values()))[0]


def _build_group_or_error(
    stage: str,
    measure: Measure,
    candidates: Mapping[str, Sequence[str]],
    nodes: Mapping[str, Node],
    varied: Sequence[str],
) -> Group | PlanError:
    """The group of a training, or why its points cannot be compared."""
    for name in (name for names in candidates.values() for name in names):
        resources = nodes[name].draft.asked
        if resources.pool or resources.launcher or resources.gpu > 1:
            where = "in several processes" if resources.gpu > 1 else "on workers"
            return PlanError(f"--early: {stage} runs {where}, where a training does not pause")
    node = nodes[_get_first_node(candidates)]
    params = node.draft.params.get(PARAMS, {})
    count = min(MOST, int(math.log2(len(candidates))))
    try:
        measure.check(params, [key for key in varied if _depends_on_param(node, key)], varied)
        return Group(stage, measure, candidates, measure.shares(stage, params, count))
    except PlanError as error:
        return error


def _get_common_settings(node: Node) -> dict[str, str]:
    """The settings that all points of a node have, without the seed."""
    each = [{key: format_param_value(value) for key, value in point.without_seed} for point in node.points]
    return {key: value for key, value in each[0].items() if all(other.get(key) == value for other in each)}


def _depends_on_param(node: Node, key: str) -> bool:
    """Whether the stage itself depends on this parameter."""
    return any(
        key == stage_key or key.startswith(f"{stage_key}.") or stage_key.startswith(f"{key}.")
        for stage_key in node.draft.params.get(PARAMS, {})
    )

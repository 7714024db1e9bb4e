"""Successive halving over steps: trainings of a sweep pause together, and those in the half that is behind are not trained on.

The trainings of one stage at different settings are a group. They train to the group's first rung, a share of their steps, and pause.
Those that differ in their seed alone count as one, with the mean of their numbers. The better half goes on to the next rung or to the
end, and so does what is as good as the last of that half. A training that goes on ends with the bits that it would have without pauses.
What is behind keeps its checkpoint.
(K. Jamieson and A. Talwalkar, arXiv:1502.07943, algorithm 1, with steps as the resource.)
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import fmean

from flows.engine.dvc_repository import PlanError
from flows.params.files import PARAMS, SEED
from flows.sweeps.axes import told
from flows.sweeps.dvc_graph import Node

VARIABLE = "POSTTRAIN_PAUSE"  # as tasks/common/pausing.py reads it
CURVES = "data/curves/"  # where trainings leave their numbers by step
MOST = 4  # rungs: the first is at a sixteenth of the steps, at least
LOWER = "loss"  # how the names of metrics end of which less is better
LENGTHS = ("steps", "epochs")
SAMPLING = ("temperature", "top_p", "max_new_tokens")  # what numbers of validation depend on besides the policy


@dataclass(frozen=True)
class Rung:
    """Where a training pauses: after a share of its steps. `number` counts the rungs of its group from 0."""

    node: str
    number: int
    share: Fraction

    @property
    def name(self) -> str:
        """`grpo@learning_rate=1e-4 to 25 %`."""
        return f"{self.node} to {float(100 * self.share):g} %"


@dataclass(frozen=True)
class Reached:
    """The number by which a training is compared, at a step."""

    step: int
    total: int
    value: float


@dataclass
class Group:
    """The trainings of a stage: a key for each setting, which has a training for each seed."""

    stage: str
    metric: str
    candidates: Mapping[str, Sequence[str]]  # settings as text -> nodes
    shares: Sequence[Fraction]
    reached: dict[tuple[str, int], Reached] = field(default_factory=dict)  # node and number of a rung

    def rungs(self, node: str) -> list[Rung]:
        """The rungs of a training, in their order."""
        return [Rung(node, number, share) for number, share in enumerate(self.shares)]

    def behind(self, node: str, number: int) -> str | None:
        """Why a training does not go on to rung `number`, or to the end where that is the number of rungs; None if it does.

        PlanError where trainings have different numbers of steps, so that they cannot be compared.
        """
        own = next(settings for settings, nodes in self.candidates.items() if node in nodes)
        alive = list(self.candidates)
        for rung in range(number):
            at = self._at(rung)
            values = {settings: value for settings in alive if (value := self._value(settings, rung)) is not None}
            ranks = sorted(map(self._rank, values.values()))
            cut = ranks[min(math.ceil(len(alive) / 2), len(ranks)) - 1] if ranks else 0.0
            alive, entered = [one for one in alive if one in values and self._rank(values[one]) <= cut], alive
            if own in entered and own not in alive:
                if own not in values:
                    return f"did not get to step {at.step} of {at.total} with each seed" if at else "did not get there"
                assert at is not None
                last = max((values[one] for one in alive), key=self._rank)
                return f"at step {at.step} of {at.total} {self.metric} was {values[own]:.4g}; {last:.4g} goes on"
        return None

    def decided(self, number: int) -> bool:
        """Whether all is known that `behind` needs for rung `number`."""
        for rung in range(number):
            for settings, nodes in self.candidates.items():
                if self.behind(nodes[0], rung) is None and self._value(settings, rung) is None:
                    return False
        return True

    def trained(self) -> tuple[int, int]:
        """The steps that all trainings together were trained, and those that they have."""
        done, every = 0, 0
        for node in (node for nodes in self.candidates.values() for node in nodes):
            own = [self.reached[node, number] for number in range(len(self.shares)) if (node, number) in self.reached]
            if own:
                every += own[0].total
                done += own[-1].step if self.behind(node, len(self.shares)) else own[0].total
        return done, every

    def _value(self, settings: str, rung: int) -> float | None:
        """The mean over seeds; None unless each seed has got there."""
        nodes = self.candidates[settings]
        found = [self.reached[node, rung] for node in nodes if (node, rung) in self.reached]
        return fmean(one.value for one in found) if len(found) == len(nodes) else None

    def _at(self, rung: int) -> Reached | None:
        found = [one for (_, number), one in self.reached.copy().items() if number == rung]
        if len({(one.step, one.total) for one in found}) > 1:
            steps = ", ".join(map(str, sorted({one.total for one in found})))
            raise PlanError(f"--early: points train {self.stage} for {steps} steps, so they cannot be compared at one")
        return found[0] if found else None

    def _rank(self, value: float) -> float:
        return value if self.metric.endswith(LOWER) else -value


class Halving:
    """The groups of a sweep's graph, and what their trainings have reached; `metric` is a number of their curves.

    PlanError of one line where nothing can be compared by it.
    """

    def __init__(self, nodes: Mapping[str, Node], metric: str) -> None:
        self.metric = metric
        self.groups = list(_groups(nodes, metric))
        varied = {key for node in nodes.values() for point in node.points for key, _ in point.without_seed}
        if not self.groups:
            raise PlanError(
                f"--early: no training depends on {', '.join(sorted(varied)) or 'what is varied'}; it compares those that leave a "
                f"curve in {CURVES}"
            )
        last = {key.rpartition(".")[2] for key in varied}
        if lengths := last & {*LENGTHS}:
            raise PlanError(f"--early: compares points at the same step, but {lengths.pop()} varies")
        if metric.startswith("eval_") and (sampled := last & {*SAMPLING}):
            raise PlanError(f"--early {metric}: is measured on answers that depend on {sampled.pop()}, which varies")
        if metric in ("reward", "eval_reward") and (of := next((key for key in varied if ".reward" in key), None)):
            raise PlanError(f"--early {metric}: {of} varies, so that points have different rewards; use eval_accuracy")
        for group in self.groups:
            for name in (name for of in group.candidates.values() for name in of):
                asked = nodes[name].draft.asked
                if asked.pool or asked.launcher:
                    raise PlanError(f"--early: {group.stage} runs on workers, and pauses only on this machine")
        self._of = {node: group for group in self.groups for nodes in group.candidates.values() for node in nodes}
        self._rungs = {rung.name: rung for node, group in self._of.items() for rung in group.rungs(node)}

    def rung(self, name: str) -> Rung | None:
        """The rung of this name; None for a node."""
        return self._rungs.get(name)

    def known(self, rung: Rung) -> bool:
        """Whether a training's number at a rung is known."""
        return (rung.node, rung.number) in self._of[rung.node].reached

    def rungs(self, node: str) -> list[Rung]:
        """The rungs of a node, none unless it is in a group."""
        group = self._of.get(node)
        return group.rungs(node) if group else []

    def before(self, node: str, number: int | None = None) -> tuple[str, ...]:
        """The names of what has to end before anything can be said of rung `number` of a node, or of its end."""
        group = self._of.get(node)
        if group is None or number == 0:
            return ()
        number = len(group.shares) if number is None else number
        return tuple(
            group.rungs(other)[number - 1].name
            for nodes in group.candidates.values()
            for other in nodes
            if other != node
        )

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
        return group.behind(node, at) if group.decided(at) else None

    def numbers(self, node: str) -> dict[str, float]:
        """What a node had reached at each rung: `grpo/eval_accuracy/at_25_percent`."""
        group = self._of.get(node)
        found = {rung: group.reached.get((node, rung.number)) for rung in group.rungs(node)} if group else {}
        return {
            f"{group.stage}/{self.metric}/at_{float(100 * rung.share):g}_percent": at.value
            for rung, at in found.items()
            if group and at
        }

    def note(self, rung: Rung, reached: Reached) -> None:
        """Note what a training has reached."""
        self._of[rung.node].reached[rung.node, rung.number] = reached

    def sentences(self) -> list[str]:
        """What halving saved, a line for each group."""
        found = []
        for group in self.groups:
            nodes = [node for of in group.candidates.values() for node in of]
            try:
                done, every = group.trained()
                behind = sum(group.behind(node, len(group.shares)) is not None for node in nodes)
            except PlanError:  # which the stages said
                continue
            if behind:
                found.append(
                    f"{group.stage}: {behind} of {len(nodes)} trainings were behind by {group.metric} and are paused; "
                    f"all together trained {done:,} of {every:,} steps"
                )
            else:
                found.append(f"{group.stage}: no training was behind by {group.metric}")
        return found


def file(checkpoints: Path, rung: Rung, metric: str) -> Path:
    """Where a training leaves what it had reached at a rung, beside its checkpoint."""
    name = "".join(letter if letter.isalnum() else "_" for letter in metric)
    return checkpoints / f"{rung.share.numerator}-{rung.share.denominator}-{name}.json"


def variable(rung: Rung, metric: str, checkpoints: Path) -> dict[str, str]:
    """What has a training pause at a rung."""
    asked = {"share": str(rung.share), "metric": metric, "file": str(file(checkpoints, rung, metric))}
    return {VARIABLE: json.dumps(asked)}


def read(path: Path) -> Reached | None:
    """What a training left at a rung; None if it did not get there."""
    try:
        return Reached(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def from_curve(content: str, rung: Rung, metric: str) -> Reached | None:
    """What a training that has ended had reached at a rung, by its curve; None where that has no such number."""
    head, *rows = (line.split(",") for line in content.splitlines())
    step = max(1, int(rung.share * len(rows)))
    try:
        return Reached(step, len(rows), float(rows[step - 1][head.index(metric)]))
    except (ValueError, IndexError):
        return None


def _groups(nodes: Mapping[str, Node], metric: str) -> Iterator[Group]:
    by_stage: dict[str, dict[str, list[str]]] = {}
    for name, node in nodes.items():
        if not any(out.startswith(CURVES) for out in node.draft.outs):
            continue
        settings = _common(node)
        if any(_reads(node, key) for key in settings):
            key = ",".join(f"{key}={value}" for key, value in settings.items())
            by_stage.setdefault(node.draft.stage, {}).setdefault(key, []).append(name)
    for stage, candidates in by_stage.items():
        if len(candidates) > 1:
            count = min(MOST, int(math.log2(len(candidates))))
            yield Group(stage, metric, candidates, [Fraction(1, 2**power) for power in range(count, 0, -1)])


def _common(node: Node) -> dict[str, str]:
    """The settings that all points of a node have, without the seed."""
    each = [{key: told(value) for key, value in point.settings if key != SEED} for point in node.points]
    return {key: value for key, value in each[0].items() if all(other.get(key) == value for other in each)}


def _reads(node: Node, key: str) -> bool:
    """Whether the stage itself depends on this parameter."""
    return any(
        key == own or key.startswith(f"{own}.") or own.startswith(f"{key}.")
        for own in node.draft.params.get(PARAMS, {})
    )

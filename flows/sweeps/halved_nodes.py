"""The nodes of a sweep whose trainings pause at rungs, where the half that is behind is left (flows/sweeps/halving.py).

A rung is a stage of the plan, of the name that `Rung.name` gives it: it trains its node up to there. A node's end needs
its last rung, and waits for all rungs of the others to have ended, whether well or not.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

from flows.engine.coordinator import StageTurn
from flows.engine.dvc_command import StageFailed, StageWaiting
from flows.engine.dvc_lock import get_entry_hashes
from flows.engine.dvc_repository import PlanError, convert_dvc_errors_to_plan_error
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.stage_types import Grant, PlannedStage, StageResult, Watcher
from flows.lineage import cache_objects
from flows.sweeps import halving
from flows.sweeps.dvc_graph import Node
from flows.sweeps.halving import CURVES, Halving, Rung
from flows.sweeps.nodes import CHECKPOINTS, Nodes


class HalvedNodes(Nodes):
    """As Nodes. `early` has the groups that are compared."""

    def __init__(
        self, root: Path, tree: Path, nodes: Mapping[str, Node], texts: Mapping[int, str], early: Halving
    ) -> None:
        super().__init__(root, tree, nodes, texts)
        self.early = early

    def plan(self) -> list[PlannedStage]:
        """As of Nodes, with the rungs before their nodes. What is known to be behind has no reason to run.

        PlanError where a training in the cache has not the number to compare.
        """
        ends = {stage.name: stage for stage in super().plan()}
        for node in self.nodes.values():
            if all(name in self.entries for name in node.upstream.values()):
                for rung in self.early.list_rungs(node.id):
                    self._record_reached_metric(node, rung)
        planned = []
        for name, end in ends.items():
            node = self.nodes[name]
            last = end.upstream
            for rung in self.early.list_rungs(name):
                settled = self.early.known(rung) or self._find_stop_reason(node, rung.number)
                reason = None if settled else "to compare the points"
                planned.append(
                    replace(
                        end, name=rung.name, reason=reason, upstream=last, after=self.early.before(name, rung.number)
                    )
                )
                last = (rung.name,)
            if end.reason and self._find_stop_reason(node):
                node.reason = None
            needs = tuple(dict.fromkeys((*end.upstream, *last)))
            planned.append(replace(end, reason=node.reason, upstream=needs, after=self.early.before(name)))
        by_name = {stage.name: stage for stage in planned}
        order = TopologicalSorter({stage.name: (*stage.upstream, *stage.after) for stage in planned}).static_order()
        return [by_name[name] for name in order]

    def execute(
        self,
        name: str,
        watch: Watcher,
        grant: Grant | None = None,
        force: bool = False,
        on_worker: PlannedStage | None = None,
    ) -> StageResult:
        """As of Nodes. Of a rung: have the node trained up to there. The state is `behind` where others are ahead."""
        rung = self.early.find_rung(name)
        node = self.nodes[rung.node if rung else name]
        if self.stopped:
            return StageResult(name, "skipped", "the sweep was stopped")
        result = StageResult(name, "failed")
        started = time.monotonic()
        try:
            with convert_dvc_errors_to_plan_error():
                is_cached = self._try_load_cached_entry(node)
                if not is_cached and (behind := self.early.behind(node.id, rung.number if rung else None)):
                    return StageResult(name, "behind", behind)
                if rung is None:
                    return super().execute(name, watch, grant, force, on_worker)
                if not self._record_reached_metric(node, rung):
                    turn = StageTurn(result, watch, grant or Grant(), None, self.log_of(name))
                    self._train_to_rung(node, rung, turn)
            result.state = "ran"
        except Exception as error:
            is_expected = isinstance(error, StageFailed | PlanError)
            result.reason = ("" if is_expected else f"{type(error).__name__}: ") + " ".join(str(error).split())
        result.seconds = time.monotonic() - started
        return result

    def describe(self, name: str) -> StageResult:
        """As of Nodes, of rungs too, and of what is known to be behind."""
        rung = self.early.find_rung(name)
        node = self.nodes[rung.node if rung else name]
        if node.id not in self.entries and (why := self._find_stop_reason(node, rung.number if rung else None)):
            return StageResult(name, "behind", why)
        return StageResult(name, "up-to-date") if rung else super().describe(name)

    def part(self, name: str) -> tuple[Node, float]:
        """The node of a planned stage, and the share of its work that this stage is."""
        rung = self.early.find_rung(name)
        shares = [0.0, *(float(pause.share) for pause in self.early.list_rungs(rung.node if rung else name)), 1.0]
        number = rung.number if rung else len(shares) - 2
        return self.nodes[rung.node if rung else name], shares[number + 1] - shares[number]

    def find_behind_reason(self, node: str, results: Mapping[str, StageResult]) -> str:
        """Why a node was not trained to its end; empty unless its training was behind."""
        node_results = [results[name] for name in (*(rung.name for rung in self.early.list_rungs(node)), node)]
        return next((result.reason for result in node_results if result.state == "behind"), "")

    def numbers(self, node: str) -> dict[str, float]:
        """What a node's training had reached where it was compared with others."""
        return self.early.numbers(node)

    def sentences(self, results: Mapping[str, StageResult]) -> list[str]:
        """What stopping trainings early saved."""
        return self.early.sentences({name: result.state for name, result in results.items()})

    def _find_stop_reason(self, node: Node, number: int | None = None) -> str | None:
        """Why a node does not go on to a rung, or to its end, or what it needs does not; None while that is not
        known.
        """
        for name in node.upstream.values():
            if name not in self.entries and self._find_stop_reason(self.nodes[name]):
                return f"{name} is behind"
        return self.early.left(node.id, number)

    def _record_reached_metric(self, node: Node, rung: Rung) -> bool:
        """Whether it is known what a node had reached at a rung, which is noted."""
        metric = self.early.measure.name
        if node.id in self.entries:
            curve = next(
                md5 for path, md5 in get_entry_hashes(self.entries[node.id], "outs").items() if path.startswith(CURVES)
            )
            file = cache_objects.find_cache_object(self.root, curve)
            try:
                reached = halving.parse_rung_metric_from_curve(file.read_text() if file else "", rung, metric)
            except (ValueError, IndexError):
                raise PlanError(
                    f"--early {metric}: {node.id} is in the cache, and its curve has no such number"
                ) from None
        else:
            reached = halving.read_rung_metric(self._get_rung_file(node, rung), metric)
            if reached is None:
                return False
        self.early.note(rung, reached)
        return True

    def _train_to_rung(self, node: Node, rung: Rung, turn: StageTurn) -> None:
        """Train a node up to a rung, and note what it has reached.

        A command that does not pause has made the node's outs then.
        """
        entry = self._build_future_entry(node)
        turn.say(turn.result.reason)
        with suppress(StageWaiting), self._record_execution_run(node, entry, turn) as variables:
            pause_request = halving.build_pause_variable(rung, self.early.measure.name, self._get_rung_file(node, rung))
            outs = self._make_outputs_locally(node, entry, turn, {**variables, **pause_request})
            self._write_cache_entry(node, entry, outs, turn.result)
        if not self._record_reached_metric(node, rung):
            raise StageFailed(f"{node.draft.stage} paused elsewhere than at {rung.percent} of its steps")

    def _get_rung_file(self, node: Node, rung: Rung) -> Path:
        checkpoints = self.root / CHECKPOINTS / compute_run_cache_key(self._build_future_entry(node))
        return halving.get_rung_file(checkpoints, node.draft.stage, rung, self.early.measure.name)

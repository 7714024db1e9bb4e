"""Runs the nodes of a sweep, each in a copy of the snapshot, from the cache and into the cache.

It stands where a run has its coordinator, and never touches the workspace, its outs or its dvc.lock. A node is found in
DVC's run cache, whoever made it, or it runs and leaves an entry there, so that points share with each other and with
the workspace.
"""

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from flows.engine.checker import Checker, iterate_declared_out_faults
from flows.engine.coordinator import ATTEMPTS, StageTurn, capture_recording_failure, hold_run_lock
from flows.engine.dvc_command import CommandRunner, StageFailed, StageWaiting, WorkerLost
from flows.engine.dvc_lock import Entry, get_entry_hashes
from flows.engine.dvc_repository import PlanError, convert_dvc_errors_to_plan_error
from flows.engine.dvc_stage import compute_run_cache_key, iterate_run_cache_entries
from flows.engine.previous_outputs import delete_path
from flows.engine.stage_types import Grant, PlannedStage, StageResult, Watcher
from flows.lineage import cache_objects
from flows.machine.warm_start import WarmStarts
from flows.params.files import PARAMS
from flows.sweeps import dvc_objects, snapshot
from flows.sweeps.dvc_graph import Item, Node
from flows.workers import dvc_transfer
from flows.workers.in_copy import open_scratch_folder

if TYPE_CHECKING:
    from flows.engine.journals.recorder_protocol import Recorder
    from flows.workers.dispatch import Dispatch

HOME = Path(".dvc/tmp/posttrain/copies")  # as a worker's
CHECKPOINTS = Path("mlruns/checkpoints")
LONGEST = 120  # letters of a file's name


class Nodes:
    """The nodes of one sweep; a context manager, beside which no other run is at work in the repository.

    `texts` has the params.yaml of each point by its number.
    """

    def __init__(self, root: Path, tree: Path, nodes: Mapping[str, Node], texts: Mapping[int, str]) -> None:
        self.root = root.absolute()
        self._tree = tree
        self.nodes = nodes
        self._texts = texts
        self.recorder: Recorder | None = None
        self.workers: Dispatch | None = None  # for the nodes of work pools
        self.entries: dict[str, Entry] = {}  # of each node whose outs are in the cache
        self._runner = CommandRunner(self.root)
        self._checker = Checker(tree)
        self._writing = threading.Lock()
        self._held = ExitStack()

    def use_warm_starts(self, starts: WarmStarts | None) -> Self:
        """The same, with stages that start warm."""
        self._runner = CommandRunner(self.root, starts)
        return self

    def __enter__(self) -> Self:
        self._held.enter_context(hold_run_lock(self.root / ".dvc/tmp/posttrain"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._held.close()

    def stop(self) -> None:
        """Stop every command; waiting nodes never start."""
        self._runner.stop()
        self._checker.stop()

    def part(self, name: str) -> tuple[Node, float]:
        """The node of a planned stage, and the share of its work that this stage is."""
        return self.nodes[name], 1.0

    def find_behind_reason(self, node: str, results: Mapping[str, StageResult]) -> str:
        """Why a node was not trained to its end; empty unless its training was behind."""
        return ""

    def numbers(self, node: str) -> dict[str, float]:
        """What a node's training had reached where it was compared with others."""
        return {}

    def sentences(self, results: Mapping[str, StageResult]) -> list[str]:
        """What stopping trainings early saved."""
        return []

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._runner.stopped

    def log_of(self, name: str) -> Path:
        """The file that a node's command writes its output to."""
        return self.root / "mlruns/logs" / f"{make_node_file_name(name)}.log"

    def plan(self) -> list[PlannedStage]:
        """The nodes as a run plans stages: those whose outs are in the cache have no reason to run."""
        planned = []
        for node in self.nodes.values():
            ready = all(name in self.entries for name in node.upstream.values())
            node.reason = None if ready and self._try_load_cached_entry(node) else "not in the cache"
            request = node.draft.asked
            upstream = tuple(node.upstream.values())
            resources = (request.cpu, request.gpu, str(node.draft.cmd), request.pool, request.launcher)
            planned.append(PlannedStage(node.id, node.reason, upstream, *resources))
        return planned

    def execute(
        self,
        name: str,
        watch: Watcher,
        grant: Grant | None = None,
        force: bool = False,
        on_worker: PlannedStage | None = None,
    ) -> StageResult:
        """Have the node's outs in the cache; its upstream's must be there.

        A failure is part of the result, never raised.
        """
        if self.stopped:
            return StageResult(name, "skipped", "the sweep was stopped")
        node = self.nodes[name]
        started = time.monotonic()
        result = StageResult(name, "failed", node.reason or "")
        try:
            with convert_dvc_errors_to_plan_error():
                if self._try_load_cached_entry(node):  # made since the plan, by another node
                    result.state = "restored"
                    self._attach_found_run_id(result)
                else:
                    self._run(node, StageTurn(result, watch, grant or Grant(), on_worker, self.log_of(name)))
                    result.state = "ran"
                result.outs = get_entry_hashes(self.entries[name], "outs")
        except StageWaiting as waiting:
            result.state = "paused"
            result.reason = str(waiting)
        except Exception as error:
            is_expected = isinstance(error, StageFailed | PlanError)
            result.state = "failed"
            result.reason = ("" if is_expected else f"{type(error).__name__}: ") + " ".join(str(error).split())
        result.seconds = time.monotonic() - started
        return result

    def describe(self, name: str) -> StageResult:
        """The result of a node that needs not run, from the records alone."""
        result = StageResult(name, "up-to-date", outs=get_entry_hashes(self.entries[name], "outs"))
        self._attach_found_run_id(result)
        return result

    def close_record(self, results: Sequence[StageResult], complete: bool) -> None:
        """End the sweep's own run in MLflow; its points' runs say what each of them is made of."""
        if self.recorder is not None:
            self.recorder.close(results, complete, name_stages=False)

    def _attach_found_run_id(self, result: StageResult) -> None:
        if self.recorder is not None:
            with capture_recording_failure(result):
                result.mlflow_run_id = self.recorder.find(
                    self.nodes[result.stage].draft.stage, self.entries[result.stage]
                )

    def _try_load_cached_entry(self, node: Node) -> bool:
        """Whether the run cache has the node's outs, and the cache all their files; notes the entry."""
        entry = self._build_future_entry(node)
        for cached_entry in iterate_run_cache_entries(self.root, compute_run_cache_key(entry)):
            if all(
                cache_objects.is_cache_object_complete(self.root, md5)
                for md5 in get_entry_hashes(cached_entry, "outs").values()
            ):
                self.entries[node.id] = cached_entry
                return True
        return False

    def _build_future_entry(self, node: Node) -> Entry:
        """The node's future entry of dvc.lock, with the hashes of its deps."""
        deps = [self._build_dep_item(node, path) for path in node.draft.deps]
        entry: dict[str, Any] = {"cmd": node.draft.cmd, "deps": sorted(deps, key=lambda item: str(item["path"]))}
        if node.draft.params:
            entry["params"] = {file: dict(values) for file, values in node.draft.params.items()}
        return {**entry, "outs": [{"path": path, "hash": "md5"} for path in node.draft.outs]}

    def _build_dep_item(self, node: Node, path: str) -> Item:
        if path in node.draft.outside:
            return node.draft.outside[path]
        return dvc_objects.build_dep_item(self.root, path, self._read(node, path))

    def _read(self, node: Node, path: str) -> dict[str, Item]:
        """The outs of upstream that lie at this path, above it or below it."""
        dep_path = PurePosixPath(path)
        outs = [out for stage in node.draft.makers[path] for out in self.entries[node.upstream[stage]]["outs"]]
        by_path = {str(out["path"]): out for out in outs}
        return {
            name: out
            for name, out in by_path.items()
            if dep_path in (PurePosixPath(name), *PurePosixPath(name).parents)
            or PurePosixPath(name) in dep_path.parents
        }

    def _run(self, node: Node, turn: StageTurn) -> None:
        entry = self._build_future_entry(node)
        with self._record_execution_run(node, entry, turn) as variables:
            turn.say(turn.result.reason)
            make = self._make_outputs_locally if turn.on_worker is None else self._make_outputs_on_worker
            self._write_cache_entry(node, entry, make(node, entry, turn, variables), turn.result)

    def _write_cache_entry(
        self, node: Node, entry: Entry, outs: Sequence[Mapping[str, Any]], result: StageResult
    ) -> None:
        """Write the entry of what a node has made, with which it is in the run cache; its checkpoints are of no more
        use.
        """
        checkpoints = self.root / CHECKPOINTS / compute_run_cache_key(entry)
        entry = {**entry, "outs": outs}
        if self.recorder is not None and result.mlflow_run_id is not None:
            with capture_recording_failure(result):
                self.recorder.made(result.mlflow_run_id, node.draft.stage, entry)
        with self._writing:
            dvc_objects.write_run_cache_entry(self.root, entry)
        _delete_checkpoints(checkpoints)
        self.entries[node.id] = entry

    def _make_outputs_locally(
        self, node: Node, entry: Entry, turn: StageTurn, variables: Mapping[str, str]
    ) -> Sequence[Mapping[str, Any]]:
        """Run the command in a copy, check what it made and move that into the cache; the outs with their hashes."""
        with open_scratch_folder(self.root / HOME, "sweep-") as (folder, lock):
            copy = folder / "copy"
            self._lay_out_stage_copy(node, copy, self.root / CHECKPOINTS / compute_run_cache_key(entry))
            environ = {**os.environ, **turn.grant.environ, **variables, "DVC_ROOT": str(copy)}
            grant = replace(turn.grant, environ=environ, keep=(*turn.grant.keep, lock))
            self._runner.call(node.draft.stage, node.draft.cmd, copy, turn.log, grant, turn.tell)
            self._check(node, copy, turn.log)
            return [
                {"path": path, **dvc_transfer.store_in_cache(self.root, copy / path, copy, move=True)}
                for path in node.draft.outs
            ]

    def _make_outputs_on_worker(
        self, node: Node, entry: Entry, turn: StageTurn, _: Mapping[str, str]
    ) -> Sequence[Mapping[str, Any]]:
        """Have a worker do the same; one that is lost is tried again."""
        assert self.workers is not None
        assert turn.on_worker is not None
        named = replace(turn.on_worker, name=node.draft.stage)
        for left in reversed(range(ATTEMPTS)):
            try:
                outs, facts = self.workers.make(
                    named, make_node_file_name(node.id), entry, turn.log, turn.tell, turn.say, lambda: self.stopped
                )
            except WorkerLost as lost:
                if not left:
                    raise StageFailed(f"{lost}; it was tried {ATTEMPTS} times") from None
                turn.say(f"{lost}; tries again")
            else:
                break
        if self.recorder is not None and turn.result.mlflow_run_id is not None:
            with capture_recording_failure(turn.result):
                self.recorder.record_worker_environment(turn.result.mlflow_run_id, facts)
        by_path = {str(out["path"]): out for out in outs}
        return [by_path[path] for path in node.draft.outs]

    def _lay_out_stage_copy(self, node: Node, copy: Path, checkpoints: Path) -> None:
        """The snapshot with the point's params.yaml and what the stage reads; its checkpoints outlive the copy."""
        snapshot.copy_snapshot(self._tree, copy)
        (copy / PARAMS).unlink()
        (copy / PARAMS).write_text(self._texts[node.points[0].number])
        wanted = {name: str(out["md5"]) for path in node.draft.makers for name, out in self._read(node, path).items()}
        for name, md5 in wanted.items():
            delete_path(copy / name)
            dvc_objects.check_out_cached_object(self.root, md5, copy / name)
        for name in node.draft.outs:
            delete_path(copy / name)
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
        checkpoints.mkdir(parents=True, exist_ok=True)
        (copy / CHECKPOINTS).parent.mkdir(parents=True, exist_ok=True)
        (copy / CHECKPOINTS).symlink_to(checkpoints)

    def _check(self, node: Node, copy: Path, log: Path) -> None:
        """StageFailed unless the outs are valid, and the raw data that is linked to is what it was."""
        made = [copy / path for path in node.draft.outs]
        problems = [*iterate_declared_out_faults(copy, made)] or self._checker.problems(made)
        if self.stopped:
            raise StageFailed("stopped")
        for path, item in node.draft.outside.items():
            if (self._tree / path).is_symlink() and not dvc_objects.has_recorded_hash(
                self._tree, self._tree / path, str(item["md5"])
            ):
                problems.append(f"{path} changed while the stage ran; run the sweep again")
        if problems:
            with log.open("a") as file:
                file.writelines(f"{problem}\n" for problem in problems)
            raise StageFailed(problems[0])

    @contextmanager
    def _record_execution_run(self, node: Node, entry: Entry, turn: StageTurn) -> Iterator[dict[str, str]]:
        """One MLflow run around one execution."""
        if self.recorder is None:
            yield {}
            return
        result = turn.result
        result.log = turn.log
        run_id = result.mlflow_run_id = self.recorder.start(node.draft.stage, entry, result.reason)
        status = "FAILED"
        try:
            yield self.recorder.variables(run_id, turn.log)
            status = "FINISHED"
        except StageWaiting as waiting:
            status = "KILLED"
            with capture_recording_failure(result):
                self.recorder.waits(run_id, str(waiting))
            raise
        finally:
            killed = status == "FAILED" and self.stopped
            with capture_recording_failure(result):
                self.recorder.end(run_id, "KILLED" if killed else status, turn.log)


def _delete_checkpoints(checkpoints: Path) -> None:
    """Remove the folder of a training that has ended, with what it had reached where it paused."""
    with suppress(OSError):
        for reached in checkpoints.glob("*.json"):
            reached.unlink()
        checkpoints.rmdir()


def make_node_file_name(node: str) -> str:
    """A node's name as that of a file: values of parameters may be paths, lists and long."""
    safe = re.sub(r"[^A-Za-z0-9@=,._+-]", "_", node)
    if safe == node and len(node) <= LONGEST:
        return node
    return f"{safe[:LONGEST]}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"

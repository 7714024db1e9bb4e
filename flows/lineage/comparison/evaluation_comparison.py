"""The evaluations of two sides held against each other: their tables from DVC's cache, compared by a process of its
own.

The tables are read where the cache keeps them, by their hashes, so that runs of the past need not be brought back; a
file whose bytes are not those of its hash is refused.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.engine import dvc_lock
from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects
from flows.lineage.comparison.cautions import describe_evaluation_differences, explain_incomparable_metric
from flows.lineage.comparison.sides import Side
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.history import EVALUATIONS

FILES = {
    "language": ("asked.parquet", "generations.parquet", "measures.parquet", "evaluation.json"),
    "offline": ("episodes.parquet", "description.json"),
    "agents": ("sampled_episodes.parquet", "environment.json"),
}
MOST = 50  # flipped answers that are told each way


@dataclass(frozen=True)
class Compared:
    """Two evaluations side by side; `a` and `b` are their records.

    `fault` says why there are no numbers, if there are none.
    """

    policy: str  # the policy of both; empty where two policies are compared
    flow: str
    a: ExecutionRecord
    b: ExecutionRecord
    same: bool  # both are one and the same evaluation
    numbers: Mapping[str, Any] = field(default_factory=dict)  # what tasks/comparison found
    cautions: Sequence[str] = ()  # what else than the policies differs, and what that means
    fault: str = ""

    @property
    def metrics(self) -> Mapping[str, Mapping[str, Any]]:
        """By metric: `a`, `b`, `difference`, `low`, `high`, `interval`, and what changed."""
        rows: Mapping[str, Mapping[str, Any]] = self.numbers.get("metrics", {})
        return rows

    @property
    def problems(self) -> Mapping[str, int]:
        """How many problems `a` and `b` were asked and have in `common`; empty where returns are compared."""
        counts: Mapping[str, int] = self.numbers.get("problems", {})
        return counts

    def flips(self, way: str) -> Sequence[Mapping[str, Any]]:
        """Greedy answers that are right on one side alone: `gained` or `lost`."""
        answers: Sequence[Mapping[str, Any]] = self.numbers.get("flips", {}).get(way, ())
        return answers


def compare_side_evaluations(root: Path, a: Side, b: Side) -> list[Compared]:
    """Every policy that both sides have evaluated, or the one pair of policies."""
    pairs = [_prepare_comparison_request(root, *pair) for pair in _pair_evaluations(a, b)]
    to_compare = [(index, files) for index, (_, files) in enumerate(pairs) if files]
    answers = _run_comparison_process(root, [files for _, files in to_compare]) if to_compare else []
    numbers = {index: answer for (index, _), answer in zip(to_compare, answers, strict=True)}
    return [_add_comparison_numbers(compared, numbers.get(index, {})) for index, (compared, _) in enumerate(pairs)]


def _pair_evaluations(a: Side, b: Side) -> Iterator[tuple[str, ExecutionRecord, ExecutionRecord]]:
    ours = b.evaluated
    theirs = a.evaluated
    if a.policy is not None and b.policy is not None:
        stages = theirs[a.policy], ours[b.policy]
        kinds = [stage.partition("@")[0] for stage in stages]
        if kinds[0] != kinds[1]:
            raise PlanError(f"{stages[0]} and {stages[1]}: what they measure cannot be compared")
        yield "", a.records[stages[0]], b.records[stages[1]]
        return
    for policy in theirs:
        if ours.get(policy) == theirs[policy]:
            yield policy, a.records[theirs[policy]], b.records[ours[policy]]


def _prepare_comparison_request(
    root: Path, policy: str, a: ExecutionRecord, b: ExecutionRecord
) -> tuple[Compared, dict[str, Any]]:
    """The pair, and what the child needs to compare it; nothing where the cache lacks a table."""
    flow = EVALUATIONS[a.stage.partition("@")[0]]
    folders = [_get_output_folder_hash(record) for record in (a, b)]
    same = folders[0] == folders[1]
    pair = Compared(
        policy, flow, a, b, same, cautions=() if same else tuple(describe_evaluation_differences(flow, a, b))
    )
    try:
        files = [
            _locate_cached_files(root, record, folder, FILES[flow])
            for record, folder in zip((a, b), folders, strict=True)
        ]
    except PlanError as error:
        return Compared(**{**vars(pair), "fault": str(error)}), {}
    return pair, {"flow": flow, "same": same, "a": files[0], "b": files[1]}


def _get_output_folder_hash(record: ExecutionRecord) -> str:
    """The hash of the folder that an evaluation made."""
    return next((md5 for md5 in dvc_lock.get_entry_hashes(record.entry, "outs").values() if md5.endswith(".dir")), "")


def _locate_cached_files(root: Path, record: ExecutionRecord, folder: str, names: Iterable[str]) -> dict[str, str]:
    """Where the cache keeps these files of an evaluation's folder."""
    label = f"{record.stage}{f' of run {record.run_id[:8]}' if record.run_id else ''}"
    try:
        held = cache_objects.read_cached_file_hashes(root, folder)
    except PlanError:
        raise PlanError(f"{label}: its tables are not in DVC's cache (any more); `dvc pull` may bring them") from None
    paths = {}
    for name in names:
        file = cache_objects.find_cache_object(root, held.get(name, ""))
        if file is None:
            raise PlanError(f"{label}: {name} is not in DVC's cache (any more); `dvc pull` may bring it")
        if hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest() != held[name]:
            raise PlanError(f"{label}: {name} in DVC's cache is not what was recorded; `posttrain audit` tells more")
        paths[name] = str(file)
    return paths


def _run_comparison_process(root: Path, pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The comparisons by `python -m tasks.comparison`; PlanError with its last line where it fails."""
    ended = subprocess.run(
        [sys.executable, "-m", "tasks.comparison"],
        input=json.dumps({"most": MOST, "pairs": pairs}),
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise PlanError(next(reversed(ended.stderr.strip().splitlines()), "tasks.comparison failed"))
    answers: list[dict[str, Any]] = json.loads(ended.stdout)
    return answers


def _add_comparison_numbers(pair: Compared, numbers: Mapping[str, Any]) -> Compared:
    """The pair with its numbers; metrics that mean something else on each side are marked."""
    if "fault" in numbers:
        return Compared(**{**vars(pair), "fault": numbers["fault"]})
    if not numbers or pair.same:
        return Compared(**{**vars(pair), "numbers": numbers})
    metrics = {
        name: {**row, **({"incomparable": why} if (why := explain_incomparable_metric(name, pair.a, pair.b)) else {})}
        for name, row in numbers["metrics"].items()
    }
    best = numbers.get("best_temperature", {})
    more: tuple[str, ...] = ()
    if best and None not in best.values() and best["a"] != best["b"]:
        more = (
            f"the best temperature is {best['a']:g} in A and {best['b']:g} in B: metrics at tbest compare each "
            "policy at its own",
        )
    return Compared(**{**vars(pair), "numbers": {**numbers, "metrics": metrics}, "cautions": (*pair.cautions, *more)})

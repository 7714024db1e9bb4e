"""Sweeps over toy pipelines, run by the engine without Prefect and MLflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.engine.dvc_lock import get_entry_hashes
from flows.engine.execute import Execution
from flows.engine.stage_types import Event, StageResult
from flows.lineage import cache_objects
from flows.sweeps import axes
from flows.sweeps import sweep as sweeping
from flows.sweeps.sweep import Ended
from tests.flows.engine import in_order
from tests.flows.engine.toy import Toy

# As the toy's work.py for params in JSON: writes OUT, and starts in a tenth of Python's time.
WORK = """
out=$1; shift
name=${out##*/}
mkdir -p data
{ [ $# = 0 ] || cat "$@"; grep -oE "\\"$name\\": ([{][^}]*[}]|[^,}]*)" params.yaml || :; } > "$out"
echo "made $out"
"""


def in_shell(toy: Toy) -> Toy:
    """The same toy, whose stages run work.sh where they ran work.py."""
    toy.write("work.sh", WORK)
    for stage in toy.stages.values():
        if stage["cmd"].startswith("python work.py "):
            stage["cmd"] = stage["cmd"].replace("python work.py", "sh work.sh")
            stage["deps"] = [dep.replace("work.py", "work.sh") for dep in stage["deps"]]
    toy.save()
    return toy


@dataclass(frozen=True)
class Swept:
    """What a sweep did: the reason of each node before it ran, its result, and the points."""

    reasons: Mapping[str, str | None]
    results: Mapping[str, StageResult]
    points: Sequence[Ended]

    @property
    def states(self) -> dict[str, str]:
        return {name: result.state for name, result in self.results.items()}

    def content(self, toy: Toy, number: int, path: str) -> str:
        """An out of a point, as the cache has it."""
        ended = next(one for one in self.points if one.point.number == number)
        [md5] = [
            get_entry_hashes(entry, "outs")[path]
            for entry in ended.entries.values()
            if path in get_entry_hashes(entry, "outs")
        ]
        file = cache_objects.find_cache_object(toy.root, md5)
        assert file is not None
        return file.read_text()


def swept(
    toy: Toy, *varied: str, seeds: str = "", targets: Sequence[str] = (), jobs: int = 2, early: str = ""
) -> Swept:
    """Run a sweep over all that the targets need."""
    points = axes.build_grid_points([axes.parse_axis(text) for text in varied], axes.parse_seeds_axis(seeds))
    events: list[Event] = []
    with (
        sweeping.prepare_sweep(toy.root, points, targets or tuple(toy.stages), early=early) as sweep,
        sweep.owner as owner,
    ):
        execution = Execution(owner, sweep.planned, jobs, events.append)
        results = {result.stage: result for result in in_order.run(execution)}
        reasons = {stage.name: stage.reason for stage in sweep.planned}
        return Swept(reasons, results, sweep.ended(results))

"""Where the time and memory of the default flows go: `python -m benchmarks.profile [language] [offline]` writes
benchmarks/results/profile.json, and `--typical` from it what the estimates of a first run go by.

Each flow runs in a clone of the last commit, from an empty cache. What is told of each stage is what its run in MLflow
says.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.engine import describe_machine
from flows.engine import mlflow_run_lookup
from flows.engine.mlflow_run_lookup import PEAK_MEMORY, PREFIX
from flows.engine.plan import plan_stages
from flows.engine.stage_types import PlannedStage
from flows.lineage.expected_durations import TYPICAL, select_work_params
from flows.params.files import parse_params
from flows.running import FLOWS, get_flow_targets

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks/results/profile.json"


@dataclass(frozen=True)
class Cost:
    """What one stage took."""

    stage: str
    seconds: float
    cores: int
    megabytes: float


@dataclass(frozen=True)
class Profile:
    """One run of a flow: on which machine, its wall time, the longest chain of stages that wait for each other, and
    what each stage took.
    """

    machine: str
    seconds: float
    path: float
    load: float
    stages: Sequence[Cost]


def measure_flow_seconds(flow: str, root: Path) -> float:
    """The wall time of the flow in a new clone at `root`."""
    subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
    environ = {**os.environ, "PYTHONPATH": str(root)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "flows.start", "run", flow], cwd=root, env={**environ, "PATH": path}, check=True
    )
    return time.perf_counter() - began


def load_stage_costs(root: Path, planned: Sequence[PlannedStage]) -> list[Cost]:
    """What the last finished run of each stage took, the longest first."""
    found = []
    with mlflow_run_lookup.open_records_reader(root) as records:
        assert records is not None, f"{root}: nothing has run there"
        for stage in planned:
            [run_id, *_] = [run_id for run_id, _ in records.finished({PREFIX + "stage": stage.name})]
            head = records.head(run_id)
            assert head is not None
            assert head.ended is not None
            seconds = (head.ended - head.started) / 1000
            memory = records.latest(run_id).get(PEAK_MEMORY, 0.0)
            found.append(Cost(stage.name, seconds, stage.cpu, memory))
    return sorted(found, key=lambda cost: -cost.seconds)


def longest_chain_seconds(planned: Sequence[PlannedStage], seconds: Mapping[str, float]) -> float:
    """The time of the longest chain of stages that wait for each other."""
    ends: dict[str, float] = {}
    for stage in planned:  # upstream before downstream
        ends[stage.name] = seconds[stage.name] + max((ends[name] for name in stage.upstream), default=0.0)
    return max(ends.values())


def load_flow_profile(flow: str, root: Path, wall: float, load: float) -> Profile:
    """The profile of a flow that has run at `root`."""
    planned = plan_stages(root, get_flow_targets(flow))
    stages = load_stage_costs(root, planned)
    where = describe_machine("torch", "transformers", "dvc")
    return Profile(
        where, wall, longest_chain_seconds(planned, {cost.stage: cost.seconds for cost in stages}), load, stages
    )


def parse_profiles(results: Mapping[str, Any]) -> dict[str, Profile]:
    """The profiles of a file of results."""
    return {
        flow: Profile(**{**numbers, "stages": [Cost(**cost) for cost in numbers["stages"]]})
        for flow, numbers in results.items()
    }


def render(results: Mapping[str, Any]) -> str:
    """The page: a table of each flow."""
    lines = [
        "# Where the time and memory of the default flows go",
        "",
        "Made by `python -m benchmarks.profile`: each flow once, from an empty cache.",
        "Times are wall times of stages as their runs in MLflow have them, with others beside them where there "
        "were cores. Memory is the most that a stage's processes had together, resident;",
        "pages that a warm stage shares with its server count.",
    ]
    for flow, found in parse_profiles(results).items():
        work = sum(cost.seconds * cost.cores for cost in found.stages)
        lines += [
            *("", f"## {flow}", ""),
            f"On {found.machine}: {_format_minutes(found.seconds)} in all (load of the machine when it began: "
            f"{found.load:.1f}); {_format_minutes(found.path)} along the longest chain of stages, "
            f"{_format_minutes(work)} of cores.",
            *("", "| stage | s | cores | share of the work | peak MB |", "|---|---|---|---|---|"),
        ]
        lines += [
            f"| {cost.stage} | {cost.seconds:.1f} | {cost.cores} | {100 * cost.seconds * cost.cores / work:.1f} % "
            f"| {cost.megabytes:.0f} |"
            for cost in found.stages
        ]
    return "\n".join(lines) + "\n"


def duration(results: Mapping[str, Any], flow: str) -> str:
    """A sentence: what the default run of a flow took, and where."""
    where = results[flow]["machine"].partition("),")[0]
    return (
        f"From an empty cache the default run took {_format_minutes(results[flow]['seconds'])} on {where}), without "
        "a GPU.\n"
    )


def write_typical_durations(profiles: Mapping[str, Profile], params: str) -> None:
    """Write the durations by which a first run estimates how long it takes.

    They are the stages' seconds in the profiles, measured with the values of `params`, the text of params.yaml.
    """
    content = {
        "machine": {flow: profile.machine for flow, profile in profiles.items()},
        "params": select_work_params(parse_params(params)),
        "seconds": {cost.stage: round(cost.seconds, 1) for profile in profiles.values() for cost in profile.stages},
    }
    TYPICAL.write_text(json.dumps(content, indent=1) + "\n")


def _format_minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def main() -> None:
    """Run the flows, and keep what they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flows", nargs="*", choices=[*FLOWS, []], default=[*FLOWS])
    parser.add_argument("--typical", action="store_true", help="measure nothing: write what a first run goes by")
    options = parser.parse_args()
    profiles = parse_profiles(result_files.load_result(RESULT, {}))
    if options.typical:
        write_typical_durations(profiles, (ROOT / "params.yaml").read_text())
        return
    for flow in options.flows:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "clone"
            load = os.getloadavg()[0]
            profiles[flow] = load_flow_profile(flow, root, measure_flow_seconds(flow, root), load)
        results = {name: asdict(one) for name, one in profiles.items()}
        result_files.write_result(RESULT, results, adds=True)


if __name__ == "__main__":
    main()

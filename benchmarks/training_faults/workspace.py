"""A clone in which the arms of faults run one after the other, each from the outs of a default run."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks import result_files
from benchmarks.training_faults.fault import Arm, Fault, Row
from benchmarks.variants import call
from flows.params import checking, editing

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/training_faults"
ONE_CANDIDATE = "evaluate.candidates=[0.0]"  # the best temperature is not read here


def run(fault: Fault, seed: int, given: Path, scratch: Path, names: Sequence[str]) -> None:
    """Run the named arms of a fault, each in a clone of its own with the outs `given`; each result is written at
    once.
    """
    for name in names:
        folder = scratch / f"{fault.name}-{seed}-{name.replace(' ', '_')}"
        shutil.rmtree(folder, ignore_errors=True)
        prepare(folder, seed, given)
        seconds = train(folder, fault, fault.arms[name])
        keep(fault.name, name, seed, {**fault.read(folder), "cpu_seconds": seconds})


def prepare(folder: Path, seed: int, given: Path) -> None:
    """A clone with this seed in every section, and the outs of a default run."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    params = folder / "params.yaml"
    params.write_text(re.sub(r"^  seed: \d+", f"  seed: {seed}", params.read_text(), flags=re.MULTILINE))
    shutil.copytree(given, folder / "data", dirs_exist_ok=True)


def train(folder: Path, fault: Fault, arm: Arm) -> float:
    """Run an arm's stages; the CPU seconds that they took."""
    types = checking.sections(folder)
    editing.edit(folder, types, edits(folder, types, fault.name, arm))
    return sum(call(folder, stage) for stage in arm.stages)


def edits(folder: Path, types: checking.Sections, fault: str, arm: Arm) -> list[editing.Edit]:
    """What an arm changes in params.yaml."""
    laid = editing.preset(folder, types, f"fault-{fault}") if arm.preset else []
    return [*laid, *map(editing.setting, (*arm.settings, ONE_CANDIDATE))]


def curve(folder: Path, stage: str, *columns: str) -> dict[str, list[float]]:
    """These columns of a stage's curve, with its steps."""
    frame = pd.read_csv(folder / f"data/curves/{stage}.csv")
    return {name: [float(f"{value:.5g}") for value in frame[name]] for name in ("step", *columns)}


def evaluation(folder: Path, policy: str, *metrics: str) -> dict[str, dict[str, float]]:
    """These estimates of a policy's evaluation, with their 95 % intervals over problems."""
    found = json.loads((folder / f"data/metrics/evaluate@{policy}.json").read_text())
    return {name: found[name] for name in metrics}


def keep(fault: str, arm: str, seed: int, row: Row) -> None:
    """Add a result to the fault's file."""
    path = RESULTS / f"{fault}.json"
    results = results_of(fault)
    results.setdefault(arm, {})[str(seed)] = row
    result_files.write(path, results, adds=True)


def results_of(fault: str) -> dict[str, dict[str, Row]]:
    """What was kept of a fault: by arm and seed."""
    found: dict[str, dict[str, Row]] = result_files.load(RESULTS / f"{fault}.json", {})
    return found

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
from benchmarks.variants import run_stage_command
from flows.params import checking, editing

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/training_faults"
ONE_CANDIDATE = "evaluate.candidates=[0.0]"  # the best temperature is not read here


def run_fault_arms(fault: Fault, seed: int, given: Path, scratch: Path, names: Sequence[str]) -> None:
    """Run the named arms of a fault, each in a clone of its own with the outs `given`; each result is written at
    once.
    """
    for name in names:
        folder = scratch / f"{fault.name}-{seed}-{name.replace(' ', '_')}"
        shutil.rmtree(folder, ignore_errors=True)
        prepare_fault_clone(folder, seed, given)
        seconds = train_arm(folder, fault, fault.arms[name])
        save_arm_result(fault.name, name, seed, {**fault.read(folder), "cpu_seconds": seconds})


def prepare_fault_clone(folder: Path, seed: int, given: Path) -> None:
    """A clone with this seed in every section, and the outs of a default run."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    params = folder / "params.yaml"
    params.write_text(re.sub(r"^  seed: \d+", f"  seed: {seed}", params.read_text(), flags=re.MULTILINE))
    shutil.copytree(given, folder / "data", dirs_exist_ok=True)


def train_arm(folder: Path, fault: Fault, arm: Arm) -> float:
    """Run an arm's stages; the CPU seconds that they took."""
    types = checking.load_config_classes(folder)
    editing.edit_params(folder, types, list_arm_edits(folder, types, fault.name, arm))
    return sum(run_stage_command(folder, stage) for stage in arm.stages)


def list_arm_edits(folder: Path, types: checking.Sections, fault: str, arm: Arm) -> list[editing.Edit]:
    """What an arm changes in params.yaml."""
    laid = editing.load_preset_edits(folder, types, f"fault-{fault}") if arm.preset else []
    return [*laid, *map(editing.parse_setting, (*arm.settings, ONE_CANDIDATE))]


def load_curve_columns(folder: Path, stage: str, *columns: str) -> dict[str, list[float]]:
    """These columns of a stage's curve, with its steps."""
    frame = pd.read_csv(folder / f"data/curves/{stage}.csv")
    return {name: [float(f"{value:.5g}") for value in frame[name]] for name in ("step", *columns)}


def load_evaluation_metrics(folder: Path, policy: str, *metrics: str) -> dict[str, dict[str, float]]:
    """These estimates of a policy's evaluation, with their 95 % intervals over problems."""
    found = json.loads((folder / f"data/metrics/evaluate@{policy}.json").read_text())
    return {name: found[name] for name in metrics}


def save_arm_result(fault: str, arm: str, seed: int, row: Row) -> None:
    """Add a result to the fault's file."""
    path = RESULTS / f"{fault}.json"
    results = load_fault_results(fault)
    results.setdefault(arm, {})[str(seed)] = row
    result_files.write_result(path, results, adds=True)


def load_fault_results(fault: str) -> dict[str, dict[str, Row]]:
    """What was kept of a fault: by arm and seed."""
    found: dict[str, dict[str, Row]] = result_files.load_result(RESULTS / f"{fault}.json", {})
    return found

"""A toy pipeline with what a language flow has: two policies with files of weights, their evaluations, and a report."""

import copy
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.engine.stage_types import StageResult
from flows.lineage import history, pipeline_summary
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import copy_folder

WORK = """
import json, pathlib, sys
stage, out = sys.argv[1:]
params = json.loads(pathlib.Path("params.yaml").read_text())
folder, metrics = pathlib.Path(out), pathlib.Path(f"data/metrics/{stage}.json")
folder.mkdir(parents=True)
metrics.parent.mkdir(parents=True, exist_ok=True)
if stage.startswith("evaluate@"):
    policy = stage.partition("@")[2]
    value = params[policy]["value"]
    numbers = {"strict_greedy": {"mean": value, "low": value - 0.1, "high": value + 0.1}, "asked": 10}
    numbers |= {"strict_validation_t0.3": {"mean": value / 2, "low": 0.0, "high": 1.0}}
    folder.joinpath("answers.json").write_text(json.dumps([numbers, params[policy]]))
elif stage == "report":
    numbers = {"policies": 2}
    folder.joinpath("report.html").write_text("<h1>Report</h1><!-- posttrain:run -->")
else:
    numbers = {"loss": 1.0}
    folder.joinpath("model.safetensors").write_text(f"weights of {stage} {params[stage]}")
    folder.joinpath("config.json").write_text("{}")
metrics.write_text(json.dumps(numbers))
"""
NEEDS = {
    "sft": [],
    "dpo": ["sft"],
    "evaluate@sft": ["sft"],
    "evaluate@dpo": ["dpo"],
    "report": ["evaluate@sft", "evaluate@dpo"],
}
WHO = ("-c", "user.name=t", "-c", "user.email=t@localhost")


def folder(stage: str) -> str:
    return f"data/{stage.replace('@', '/')}"


def commit(root: Path) -> None:
    for command in (["add", "."], [*WHO, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=root, check=True)


def make(toy: Toy, empty_mlflow: Path) -> Toy:
    """Define the stages; nothing has run, and all is committed."""
    toy.write("work.py", WORK)
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    toy.params = {
        "sft": {"value": 0.5, "rate": 1},
        "dpo": {"value": 0.6, "beta": 0.1},
        "report": {"best_by": "strict_greedy", "policies": ["sft", "dpo"]},
    }
    branches = {"foreach": "${report.policies}", "do": definition("evaluate@${item}", ["${item}"], "evaluate")}
    for stage in ("sft", "dpo", "report"):
        toy.stages[stage] = definition(stage, NEEDS[stage], stage)
        if stage == "dpo":
            toy.stages["evaluate"] = branches
    toy.params["evaluate"] = {"seed": 0}
    toy.save()
    commit(toy.root)
    return toy


def definition(stage: str, needs: list[str], section: str) -> dict[str, Any]:
    params = [section, "${item}.value"] if section == "evaluate" else [section]
    return {
        "cmd": f"python work.py {stage} {folder(stage)}",
        "deps": ["work.py", *map(folder, needs)],
        "params": params,
        "outs": [folder(stage)],
        "metrics": [f"data/metrics/{stage}.json"],
    }


@dataclass(frozen=True)
class Ran:
    """The pipeline after one run. Running it takes a second, so that tests get copies."""

    toy: Toy
    first: history.PipelineRun
    results: dict[str, StageResult]

    def at(self, root: Path) -> "Ran":
        """A copy elsewhere."""
        copy_folder(self.toy.root, root)
        toy = copy.deepcopy(self.toy)
        toy.root = root
        return Ran(toy, self.first, self.results)


def run(toy: Toy, **params: Mapping[str, Any]) -> tuple[history.PipelineRun, dict[str, StageResult]]:
    """Change parameters, run the flow as `posttrain run language` does, and return its record."""
    toy.set(**{section: {**toy.params[section], **values} for section, values in params.items()})
    recorder = FlowRecorder(toy.root, "language")
    planned = toy.plan("report")
    results = toy.run("report", recorder=recorder)
    for result in results.values():
        result.pipeline_run_id = recorder.parent
    recorder.close(results.values())
    text = json.dumps(toy.params)
    pages = [page for page in [toy.root / "data/report/report.html"] if page.is_file()]
    pipeline_summary.record_pipeline_summary(
        toy.root, "language", text, [stage.name for stage in planned], [*results.values()], pages
    )
    return history.get_pipeline_run(toy.root, recorder.parent), results

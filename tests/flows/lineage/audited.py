"""A small repository as a user has one: git, raw data, checkpoints, evaluations and a report, each run in MLflow and
sealed.
"""

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

from flows.engine.coordinator import Coordinator
from flows.engine.dvc_lock import Entry
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.engine.stage_types import StageResult
from flows.lineage import pipeline_summary
from flows.lineage.auditing import Audit, audit_lineage
from flows.lineage.checks.database import iterate_metric_numbers
from flows.lineage.checks.md5_cache import PLACE
from flows.web import run_page
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import built_once, copy_folder, dvc

WORK = """
import json, pathlib, sys
import helper
name, *ins = sys.argv[1:]
stage, params = name.partition("@")[0], json.loads(pathlib.Path("params.yaml").read_text())
text = "".join(helper.text(pathlib.Path(path)) for path in ins) + f"{name} {params[stage]}\\n"
if params[stage].get("fail"):
    sys.exit("cannot go on")
metrics = pathlib.Path(f"data/metrics/{name}.json")
metrics.parent.mkdir(parents=True, exist_ok=True)
if stage == "evaluate":
    mean = params[stage]["mean"]
    metrics.write_text(json.dumps({"strict_greedy": {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}, "asked": 10}))
elif stage == "report":
    out = pathlib.Path("data/report")
    out.mkdir(parents=True)
    table = "<table><tr><td>b</td><td>0.5</td></tr></table>"
    out.joinpath("report.html").write_text(f"<html>\\n<h1>Report</h1><!-- posttrain:title -->\\n{table}\\n<!-- posttrain:run -->\\n<p>{params[stage]['title']}</p>\\n</html>\\n")
    out.joinpath("report.md").write_text("# Report\\n\\n| b | 0.5 |\\n\\n<!-- posttrain:run -->\\n")
else:
    out = pathlib.Path("data", name)
    out.mkdir(parents=True)
    out.joinpath("model.bin").write_text(text)
    out.joinpath("table.csv").write_text("".join(f"{row},{name}\\n" for row in range(params[stage]["rows"])))
    metrics.write_text(json.dumps({"rows": params[stage]["rows"], "loss": 0.25}))
"""  # noqa: E501
HELPER = """
def text(path):
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return "".join(file.read_text() for file in files if file.is_file())
"""
CODE = ["work.py", "helper.py"]
POLICIES = ("b", "c")


class Recorder(FlowRecorder):
    """Logs what a stage logs itself: its parameters, and its metrics at step 0 and on the way."""

    def made(self, run_id: str, stage: str, entry: Entry) -> None:
        section = stage.partition("@")[0]
        for key, value in entry["params"]["params.yaml"][section].items():
            self.client.log_param(run_id, f"{section}.{key}", str(value))
        file = self.root / f"data/metrics/{stage}.json"
        if file.is_file():
            for step in (1, 2):
                self.client.log_metric(run_id, "train/loss", 1 / step, step=step)
            for key, value in iterate_metric_numbers(json.loads(file.read_text())):
                self.client.log_metric(run_id, key, value, step=0)
        super().made(run_id, stage, entry)


class Audited(Toy):
    """The repository, and the pipeline run that makes its results."""

    @classmethod
    def build(cls, root: Path, empty_mlflow: Path) -> "Audited":
        """All stages defined and committed, nothing run."""
        toy = cls(root)
        toy.write("work.py", WORK)
        toy.write("helper.py", HELPER)
        toy.write(".gitignore", "/data/\n/mlruns/\n/report.*\n/lineage.html\n__pycache__/\n")
        toy.write("data/raw/x.txt", "raw x")
        toy.write("data/raw/y.txt", "raw y")
        toy.params = {name: {"rows": 3, "beta": 0.1} for name in ("a", *POLICIES)}
        toy.params |= {"evaluate": {"mean": 0.5}, "report": {"title": "all"}}
        toy.trains("a", "data/raw/x.txt", "data/raw/y.txt")
        for policy in POLICIES:
            toy.trains(policy, "data/a")
        toy.stages["evaluate"] = {
            "foreach": list(POLICIES),
            "do": {
                "cmd": "python work.py evaluate@${item} data/${item}",
                "deps": [*CODE, "data/${item}"],
                "params": ["evaluate"],
                "outs": ["data/metrics/evaluate@${item}.json"],
            },
        }
        evaluations = [f"data/metrics/evaluate@{policy}.json" for policy in POLICIES]
        toy.stages["report"] = {
            "cmd": f"python work.py report {' '.join(evaluations)}",
            "deps": [*CODE, *evaluations],
            "params": ["report"],
            "outs": ["data/report"],
        }
        toy.save()
        (root / "mlruns").mkdir()
        shutil.copyfile(empty_mlflow, root / "mlruns/mlflow.db")
        toy.commit()
        return toy

    @classmethod
    def opened(cls, root: Path) -> "Audited":
        """One that is there already."""
        toy = object.__new__(cls)
        toy.root, toy.events = root, []
        toy.params = json.loads(toy.read("params.yaml"))
        toy.stages = json.loads(toy.read("dvc.yaml"))["stages"]
        return toy

    def at(self, root: Path) -> "Audited":
        """A copy of it elsewhere."""
        copy_folder(self.root, root)
        return Audited.opened(root)

    def trains(self, name: str, *ins: str) -> None:
        self.stages[name] = {
            "cmd": f"python work.py {name} {' '.join(ins)}",
            "deps": [*CODE, *ins],
            "params": [name],
            "outs": [f"data/{name}", f"data/metrics/{name}.json"],
        }

    def change(self, section: str, **values: object) -> None:
        self.params[section] |= values
        self.save()

    def dvc(self, *arguments: str) -> str:
        return dvc(self.root, *arguments)

    def commit(self) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        self.git("add", "--all")
        self.git(*who, "commit", "--quiet", "--message", "x")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout

    def pipeline(self, *targets: str, force: Collection[str] = ()) -> dict[str, StageResult]:
        """What `posttrain run` does, without Prefect."""
        recorder = Recorder(self.root, "language")
        planned, results = self.plan(*targets, force=force), dict[str, StageResult]()
        with Coordinator(self.root, recorder) as coordinator:
            for stage in planned:
                if any(results[name].state in ("failed", "skipped") for name in stage.upstream):
                    results[stage.name] = StageResult(stage.name, "skipped")
                else:
                    forced = stage.reason == "forced"
                    results[stage.name] = coordinator.execute(stage.name, self.events.append, force=forced)
        for result in results.values():
            result.pipeline_run_id = recorder.parent
        recorder.close(results.values())
        pages = run_page.write_report_pages(self.root, planned, list(results.values()))
        params = self.read("params.yaml")
        stages = [stage.name for stage in planned]
        pipeline_summary.record_pipeline_summary(self.root, "language", params, stages, list(results.values()), pages)
        return results

    def sql(self, statement: str, *values: object) -> int:
        """Change MLflow's database; the number of rows that were changed."""
        with sqlite3.connect(self.root / "mlruns/mlflow.db") as records:
            return records.execute(statement, values).rowcount

    def run_of(self, stage: str) -> str:
        """The newest finished run of a stage."""
        with sqlite3.connect(self.root / "mlruns/mlflow.db") as records:
            [(run_id,)] = records.execute(
                "SELECT run_uuid FROM runs JOIN tags USING (run_uuid) WHERE key = 'posttrain.stage' AND tags.value = ? "
                "AND status = 'FINISHED' ORDER BY start_time DESC LIMIT 1",
                [stage],
            )
        return str(run_id)

    def cached(self, path: str) -> Path:
        """The cache's object of a file of an out."""
        from flows.lineage import cache_objects

        for stage in self.lock["stages"].values():
            for out in stage["outs"]:
                if path == out["path"] or path.startswith(f"{out['path']}/"):
                    listed = cache_objects.read_cached_file_hashes(self.root, out["md5"])
                    found = cache_objects.find_cache_object(
                        self.root, listed[path.removeprefix(out["path"]).lstrip("/")]
                    )
                    assert found is not None
                    return found
        raise AssertionError(path)

    def audit(self, of: str | None = None, **options: bool) -> Audit:
        return audit_lineage(self.root, of, **options)

    def faults(self, of: str | None = None, **options: bool) -> list[str]:
        return [finding.line for finding in self.audit(of, **options).faults]


def once(folders: pytest.TempPathFactory, template: Path, empty_mlflow: Path) -> Audited:
    """Two pipeline runs: all stages, and then those that another beta of b concerns."""

    def build(folder: Path) -> Audited:
        copy_folder(template, folder / "repository")
        toy = Audited.build(folder / "repository", empty_mlflow)
        assert {result.state for result in toy.pipeline().values()} == {"ran"}
        toy.change("b", beta=0.2)
        toy.commit()
        states = {name: result.state for name, result in toy.pipeline().items()}
        assert (states["b"], states["c"], states["evaluate@b"]) == ("ran", "up-to-date", "ran")
        assert toy.audit("report").findings == [], "and its report was made again once"
        (toy.root / PLACE).unlink()
        return toy

    return built_once(folders, "audited_once", build)


def again(folders: pytest.TempPathFactory, before: Audited, name: str, beta: float) -> Audited:
    """One more pipeline run, with another beta of b."""

    def build(folder: Path) -> Audited:
        toy = before.at(folder / "repository")
        toy.change("b", beta=beta)
        toy.pipeline()
        return toy

    return built_once(folders, name, build)


def flip(file: Path) -> None:
    """Change one byte; DVC's cache is read-only."""
    file.chmod(0o644)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def replace(file: Path, old: str, new: str) -> None:
    """Change a text that is there."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))

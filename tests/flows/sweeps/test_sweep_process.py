"""`posttrain sweep`, `apply` and `run --seeds` as processes of their own, with Prefect and MLflow."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flows.sweeps.test_halving import FIT
from tests.flows.toy_pipeline import environ, make_pipeline, posttrain

pytestmark = pytest.mark.slow
EVALUATE = """
import json, sys
from pathlib import Path
from ruamel.yaml import YAML
beta = json.loads(Path("data/dpo/result.json").read_text())
seed = YAML(typ="safe").load(Path("params.yaml"))["evaluate"]["seed"]
Path("data/metrics").mkdir(parents=True, exist_ok=True)
value = {"mean": beta + seed / 100, "low": 0.0, "high": 1.0}
Path("data/metrics/evaluate@dpo.json").write_text(json.dumps({"strict_greedy": value, "other": value}))
"""

READ = 'params = json.loads(pathlib.Path("params.yaml").read_text())["fit"]\n'
BY_FIT = 'YAML(typ="safe").load(Path("params.yaml"))["fit"]["rate"] / 100'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A pipeline whose policy `dpo` is evaluated as by its own beta and a seed."""
    root = make_pipeline(tmp_path / "toy")
    (root / "evaluate.py").write_text(EVALUATE)
    with (root / "dvc.yaml").open("a") as pipeline:
        pipeline.write("  evaluate:\n    foreach: [dpo]\n    do:\n      cmd: python evaluate.py\n")
        pipeline.write("      deps: [evaluate.py, data/dpo]\n      params: [evaluate]\n")
        pipeline.write("      outs: ['data/metrics/evaluate@dpo.json']\n")
    params = (root / "params.yaml").read_text()
    (root / "params.yaml").write_text(f"seed: &seed 0\n{params}evaluate:\n  seed: *seed\n")
    return root


def test_a_sweep_ends_in_a_table_a_page_and_runs_that_can_be_taken_up(root: Path) -> None:
    targets = ("evaluate@dpo", "dpo")
    done = posttrain(root, "sweep", "dpo.beta=0.2,0.6,0.4", "--seeds", "0,2", *targets)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "6 points: 11 of 11 stages to run; 24 without sharing"
    table = [line.split() for line in lines[lines.index(next(line for line in lines if line.startswith("dpo.beta"))) :]]
    assert [row[0] for row in table[:4]] == ["dpo.beta", "0.6", "0.4", "0.2"], "the best first"
    # 0.60 and 0.62: mean 0.61, deviation 0.01414, t(1) = 12.706: half 0.12706
    assert table[1][1:] == ["61.0", "%", "[48.3,", "73.7]", "3,4"]
    assert (root / "sweep.html").read_text().count("<svg") == 1
    assert not (root / "data").exists()

    again = posttrain(root, "sweep", "dpo.beta=0.2,0.6,0.4", "--seeds", "0,2", "--json", *targets)
    facts = json.loads(again.stdout)["points"]
    assert [fact["settings"] for fact in facts][:2] == [{"dpo.beta": 0.2, "seed": 0}, {"dpo.beta": 0.2, "seed": 2}]
    assert {state for fact in facts for state in fact["states"].values()} == {"up-to-date"}
    listed = json.loads(posttrain(root, "runs", "--json", "--points").stdout)
    assert len(listed) == 7, "the sweep and its points, once"
    [alone] = json.loads(posttrain(root, "runs", "--json").stdout)
    assert alone["changes"] == "sweep dpo.beta=0.2,0.6,0.4 seed=0,2: 6 points"
    point = next(run for run in listed if run["id"] == facts[3]["run"])
    assert point["metrics"]["dpo/strict_greedy"] == pytest.approx(0.62)
    assert (point["params"]["dpo.beta"], point["status"]) == ("0.6", "FINISHED")

    applied = posttrain(root, "apply", "4")
    assert applied.stdout.splitlines() == ["params.yaml: seed: 0 -> 2", "params.yaml: dpo.beta: 0.1 -> 0.6"]
    ran = json.loads(posttrain(root, "run", "evaluate@dpo", "--json").stdout)
    assert {fact["state"] for fact in ran.values()} == {"restored"}
    audited = posttrain(root, "audit")
    assert audited.returncode == 0
    assert "no faults" in audited.stdout, audited.stdout
    assert posttrain(root, "apply", facts[0]["run"][:8]).stdout.count("->") == 2
    (root / "mlruns/artifacts" / facts[3]["run"] / "artifacts/params.yaml").write_text("seed: 1\n")
    forged = posttrain(root, "apply", "4")
    assert forged.returncode == 2
    assert "is not the params.yaml that run" in forged.stderr


def test_points_that_are_behind_are_told_in_the_table_the_page_and_mlflow(root: Path) -> None:
    load = 'from ruamel.yaml import YAML\nparams = YAML(typ="safe").load(pathlib.Path("params.yaml"))["fit"]\n'
    program = FIT.replace("LOG", repr(str(root / "steps.txt"))).replace(READ, load)
    (root / "fit.py").write_text(program)
    with (root / "dvc.yaml").open("a") as pipeline:
        pipeline.write("  fit:\n    cmd: python fit.py\n    deps: [fit.py]\n    params: [fit]\n")
        pipeline.write("    outs: [data/fit, data/curves/fit.csv]\n")
    with (root / "params.yaml").open("a") as params:
        params.write("fit: {rate: 1}\n")
    (root / "evaluate.py").write_text(EVALUATE.replace('json.loads(Path("data/dpo/result.json").read_text())', BY_FIT))
    text = (root / "dvc.yaml").read_text()
    (root / "dvc.yaml").write_text(text.replace("deps: [evaluate.py, data/dpo]", "deps: [evaluate.py, data/fit]"))
    command = ("sweep", "fit.rate=1,2,4,3", "--early", "accuracy", "evaluate@dpo")
    done = posttrain(root, *command)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("fit.rate"))
    assert [line.split()[0] for line in lines[head + 1 : head + 5]] == ["4", "1", "2", "3"]
    assert lines[head + 4].endswith("4  at step 4 of 8 accuracy was 12; 16 goes on")
    told = "fit: 3 of 4 trainings were behind by accuracy and are paused; all together trained 16 of 32 steps"
    assert told in lines
    page = (root / "sweep.html").read_text()
    assert told in page
    assert "at step 2 of 8 accuracy was 2; 6 goes on" in page
    listed = json.loads(posttrain(root, "runs", "--json", "--points").stdout)
    points = {run["params"]["fit.rate"]: run for run in listed if run["name"].startswith("fit.rate=")}
    assert {run["status"] for run in listed} == {"FINISHED"}
    assert points["3"]["metrics"]["fit/accuracy/at_step_4"] == 12
    assert "dpo/strict_greedy" not in points["3"]["metrics"]
    assert points["4"]["metrics"]["dpo/strict_greedy"] == pytest.approx(0.04)
    again = posttrain(root, *command, "--json")
    facts = json.loads(again.stdout)["points"]
    assert [fact["behind"] for fact in facts][2:] == ["", "at step 4 of 8 accuracy was 12; 16 goes on"]
    assert {fact["run"] for fact in facts} == {run["id"] for run in points.values()}, "the same records"
    shown = [line.split()[-1] for line in posttrain(root, *command, "--dry-run").stdout.splitlines() if "fit@" in line]
    assert shown.count("behind") == 5, "three trainings, and two of them at 50 %"
    audited = posttrain(root, "audit")
    assert (audited.returncode, "no faults" in audited.stdout) == (0, True), audited.stdout


def test_a_sweep_that_is_killed_goes_on(root: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "sweep", "dpo.beta=0.2,0.4", "dpo.seconds=60", "dpo"]
    process = subprocess.Popen(command, cwd=root, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 90
    log = root / "mlruns/logs/dpo@beta=0.2.log"
    while time.monotonic() < deadline and not (log.exists() and "working on dpo" in log.read_text()):
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    (root / "stage.py").write_text((root / "stage.py").read_text().replace('time.sleep(params["seconds"])', ""))
    assert not (root / "data").exists()
    done = posttrain(root, "sweep", "dpo.beta=0.2,0.4", "dpo.seconds=60", "dpo")
    assert done.returncode == 0, done.stderr
    states = [run["status"] for run in json.loads(posttrain(root, "runs", "--json", "--points").stdout)]
    assert sorted(states) == ["FINISHED", "FINISHED", "FINISHED", "KILLED"]
    assert not [*(root / ".dvc/tmp/posttrain/copies").iterdir()], "no copy is left"


def test_wrong_use_is_one_line(root: Path) -> None:
    for arguments, line in {
        ("sweep", "evaluate@dpo"): "sweep: expected a parameter with the values to try, such as dpo.beta=0.05,0.1,0.2",
        ("sweep", "dpo.beta=0.1,0.2", "sft"): "dpo.beta: no stage that sft needs depends on it",
        (
            "sweep",
            "dpo.beta=0.1,0.2",
            "nosuch",
        ): "dvc.yaml: no stage 'nosuch'; it has problems, sft, dpo, ppo, report, evaluate",
        ("run", "--seeds", "0,x"): "--seeds 0,x: expected whole numbers from 0 on, such as 0,1,2",
        ("apply", "9"): "9: no pipeline run has this id; `posttrain runs` lists them",
    }.items():
        done = posttrain(root, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"posttrain: {line}\n")

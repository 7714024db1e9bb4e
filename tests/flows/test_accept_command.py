"""`posttrain accept`, on a pipeline that has run and is committed."""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.engine.dvc_lock import read_lock_entries
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.params import checking, rules
from tests.flows.engine.toy import Toy
from tests.flows.toy_pipeline import TYPES, call, environ, make_pipeline

WHY = ("--why", "the same by hand")


@pytest.fixture(autouse=True)
def _typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "load_config_classes", lambda root: TYPES)
    monkeypatch.setattr(rules, "RULES", [])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Path:
    """Five stages that have run, each with a run in MLflow."""
    root = make_pipeline(tmp_path_factory.mktemp("made") / "toy")
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    subprocess.run(["git", *who, "commit", "--quiet", "--message", "x"], cwd=root, check=True)
    (root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, root / "mlruns/mlflow.db")
    toy = object.__new__(Toy)
    toy.root, toy.events = root, []
    recorder = FlowRecorder(root, "language")
    names = ("problems", "sft", "dpo", "ppo", "report")
    recorder.close(toy.run(*names, recorder=recorder).values())
    assert call(root, "run")[0] == 0
    return root


@pytest.fixture
def root(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "toy", symlinks=True)


def edit(root: Path, old: str, new: str) -> None:
    text = (root / "stage.py").read_text()
    assert old in text
    (root / "stage.py").write_text(text.replace(old, new))


def test_a_person_vouches_and_the_audit_tells_it(root: Path) -> None:
    before = read_lock_entries(root)["report"]["outs"]
    edit(root, '"working on"', '"at work on"')
    code, out, error = call(root, "accept", "report", *WHY)
    assert (code, out) == (2, "")
    assert error == "posttrain: report: problems, sft, dpo above it is out of date; run that first\n"
    for stage in ("problems", "sft", "dpo", "ppo", "report"):
        code, out, error = call(root, "accept", stage, *WHY)
        assert (code, error) == (0, "")
        assert '  -print("working on", name, flush=True)\n  +print("at work on", name, flush=True)\n' in out
        assert out.endswith(f"accepted for {stage}, as you say so; `posttrain audit` tells it as vouched for\n")
    assert read_lock_entries(root)["report"]["outs"] == before
    assert call(root, "run")[1].startswith("nothing has changed")
    code, out, _ = call(root, "audit")
    assert code == 0
    assert out.count("the same by hand. It is vouched for, not proven") == 5


def test_a_flow_is_all_of_its_stages(root: Path) -> None:
    edit(root, '"working on"', '"at work on"')
    code, out, error = call(root, "accept", "language", *WHY)
    assert (code, error) == (0, "")
    assert "accepted for problems, sft, dpo, ppo, report, as you say so" in out
    assert call(root, "run")[1].startswith("nothing has changed")


@pytest.mark.slow
def test_accept_may_be_killed_at_any_moment(root: Path, tmp_path: Path) -> None:
    """DVC's record is then that of before or that of after, and the same command again ends it, once."""
    edit(root, '"working on"', '"at work on"')
    command = [sys.executable, "-m", "flows.cli", "accept", "problems", *WHY]
    whole = shutil.copytree(root, tmp_path / "whole", symlinks=True)
    began = time.monotonic()
    subprocess.run(command, cwd=whole, env=environ(), check=True, capture_output=True)
    seconds, ends = time.monotonic() - began, {(place / "dvc.lock").read_text() for place in (root, whole)}
    draw = random.Random(int(os.environ.get("SEED_OF_TESTS", 0)))
    for _ in range(4):
        with subprocess.Popen(command, cwd=root, env=environ(), stdout=subprocess.DEVNULL) as process:
            time.sleep(draw.uniform(0.3, 0.95) * seconds)
            process.kill()
        assert (root / "dvc.lock").read_text() in ends
    for stage in ("problems", "sft", "dpo", "ppo", "report"):
        again = subprocess.run([*command[:4], stage, *WHY], cwd=root, env=environ(), capture_output=True, text=True)
        assert again.returncode == 0 or (stage, again.stderr) == (
            "problems",
            "posttrain: problems is up to date, so there is nothing to accept\n",
        )
    assert call(root, "run")[1].startswith("nothing has changed")
    code, out, _ = call(root, "audit")
    assert (code, out.count("the same by hand. It is vouched for, not proven")) == (0, 5), out


@pytest.mark.parametrize(
    ("arguments", "change", "line"),
    [
        (("sft",), "", 'accept: expected a reason, as in --why "a faster loop, the same sums"'),
        (("sft", "--why", " "), "", 'accept: expected a reason, as in --why "a faster loop, the same sums"'),
        (("sft", *WHY), "", "sft is up to date, so there is nothing to accept"),
        (("language", *WHY), "", "language is up to date, so there is nothing to accept"),
        (("sftt", *WHY), "", "dvc.yaml: no stage 'sftt'; did you mean 'sft'?"),
        (
            ("problems", *WHY),
            "out",
            "problems: its out data/problems is deleted; only outs as they were recorded can be kept",
        ),
    ],
)
def test_wrong_use_is_one_line(root: Path, arguments: tuple[str, ...], change: str, line: str) -> None:
    if change == "out":
        edit(root, '"working on"', '"at work on"')
        shutil.rmtree(root / "data/problems")
    before = (root / "dvc.lock").read_text()
    code, _, error = call(root, "accept", *arguments)
    assert (code, error) == (2, f"posttrain: {line}\n")
    assert (root / "dvc.lock").read_text() == before

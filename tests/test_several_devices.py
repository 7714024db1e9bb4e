"""A stage as several processes through its real command, in a tiny copy of this repository; minutes, and slow."""

import json
import shlex
import signal
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest
from mlflow import MlflowClient

from tasks import contract
from tests.clone import Clone, states
from tests.test_pipeline import TINY

pytestmark = pytest.mark.slow
SFT = "tasks.language.sft"


@pytest.fixture(autouse=True)
def no_orphan(clone: Clone):
    yield
    left = [one for one in psutil.process_iter(["cmdline"]) if SFT in (one.info["cmdline"] or [])]
    assert [one for one in left if one.cwd() == str(clone.root)] == []


def ask(clone: Clone, stage: str, **resources: int) -> None:
    """What the stage takes, in dvc.yaml."""
    pipeline = contract.make_yaml_reader().load(clone.root / "dvc.yaml")
    pipeline["stages"][stage]["meta"]["resources"] = {"cpu": 1, "gpu": 1, **resources}
    contract.make_yaml_reader().dump(pipeline, clone.root / "dvc.yaml")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """With SFT done by one process."""
    clone = Clone.of_this(tmp_path_factory.mktemp("clone") / "posttrain", TINY)
    ask(clone, "sft", processes=1)
    clone.posttrain("run", "sft")
    return clone


def results(clone: Clone) -> tuple[pd.DataFrame, dict[str, float]]:
    metrics = json.loads((clone.root / "data/metrics/sft.json").read_text())
    return pd.read_csv(clone.root / "data/curves/sft.csv"), metrics


def recorded(clone: Clone) -> dict[str, float]:
    """The metrics of the newest run of SFT."""
    client = MlflowClient(f"sqlite:///{clone.root}/mlruns/mlflow.db")
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    return client.search_runs(ids, "tags.mlflow.runName = 'sft'", order_by=["start_time DESC"])[0].data.metrics


def test_the_flow_and_dvc_run_it_as_two_with_the_same_results(clone: Clone) -> None:
    alone, metrics = results(clone)
    assert recorded(clone)["system/processes"] == 1
    ask(clone, "sft", processes=2)
    assert "didn't change" in clone.dvc("repro", "sft"), "the number of processes stands in no hash"
    assert states(clone.posttrain("run", "sft", "--force", "sft"))["ran"] == {"sft"}
    curve, found = results(clone)
    assert recorded(clone)["system/processes"] == 2
    assert not curve.equals(alone), "bits depend on the number of processes"
    assert ((curve - alone).abs() / (1 + alone.abs())).max().max() < 1e-5
    assert found == pytest.approx(metrics, rel=1e-5)
    model = (clone.root / "data/sft/model.safetensors").read_bytes()
    clone.dvc("repro", "--quiet", "--force", "--single-item", "--no-run-cache", "sft")
    assert results(clone)[0].equals(curve)
    assert (clone.root / "data/sft/model.safetensors").read_bytes() == model


def command_of_sft(clone: Clone) -> list[str]:
    return [
        sys.executable,
        *shlex.split(contract.make_yaml_reader().load(clone.root / "dvc.yaml")["stages"]["sft"]["cmd"])[1:],
    ]


@pytest.fixture(scope="module")
def never_killed(clone: Clone) -> tuple[pd.DataFrame, bytes]:
    """The curve and the model of two processes."""
    ask(clone, "sft", processes=2)
    subprocess.run(command_of_sft(clone), cwd=clone.root, capture_output=True, check=True)
    return results(clone)[0], (clone.root / "data/sft/model.safetensors").read_bytes()


@pytest.mark.parametrize("killed", ["first", "second", "what started them"])
def test_killed_with_9_nothing_is_left_and_it_goes_on_to_the_same_bytes(
    clone: Clone, never_killed: tuple[pd.DataFrame, bytes], killed: str
) -> None:
    module, checkpoint = clone.root / "tasks/common/checkpoints.py", clone.root / "mlruns/checkpoints/sft.safetensors"
    before = module.read_text()
    module.write_text(f"{before}\n\nEVERY_SECONDS, SHARE = 0.0, 1e9\n")
    for earlier in ("data/sft/model.safetensors", "data/curves/sft.csv"):
        (clone.root / earlier).unlink(missing_ok=True)
    words = command_of_sft(clone)
    command = subprocess.Popen(words, cwd=clone.root, stderr=subprocess.PIPE, text=True)
    while not checkpoint.exists():
        assert command.poll() is None
        time.sleep(0.01)
    if killed == "what started them":
        command.kill()
    else:
        rank = ["first", "second"].index(killed)
        [one] = [child for child in psutil.Process(command.pid).children() if child.environ()["RANK"] == str(rank)]
        one.kill()
    _, said = command.communicate(timeout=60)
    if killed == "what started them":
        assert command.returncode == -signal.SIGKILL
    else:
        assert command.returncode == 128 + signal.SIGKILL
        assert said.splitlines()[-1] == f"process {rank + 1} of the stage's 2 was killed by signal 9"
    done = subprocess.run(words, cwd=clone.root, capture_output=True, text=True, check=True)
    assert "sft.safetensors resumed after step " in done.stderr
    assert results(clone)[0].equals(never_killed[0])
    assert (clone.root / "data/sft/model.safetensors").read_bytes() == never_killed[1]
    module.write_text(before)


def failing(clone: Clone, *launcher: str, **changes: float) -> tuple[int, list[str]]:
    """Status and last lines of SFT's own command with other params."""
    before = (clone.root / "params.yaml").read_text()
    clone.edit({"sft": changes})
    words = [sys.executable, *launcher, *command_of_sft(clone)[1:]]
    done = subprocess.run(words, cwd=clone.root, capture_output=True, text=True, check=False)
    (clone.root / "params.yaml").write_text(before)
    return done.returncode, done.stderr.splitlines()


def test_what_goes_wrong_on_a_rank_is_the_stage_s_own_line(clone: Clone) -> None:
    ask(clone, "sft", processes=2)
    status, lines = failing(clone, learning_rate=1e30, clip=1e30)
    assert status == 1
    assert lines[-1].startswith("sft: step ")
    assert lines[-1].endswith("training has diverged")
    status, lines = failing(clone, learning_rate=-1.0)
    assert (status, len(lines)) == (1, 1)
    assert lines[0].startswith("params.yaml: sft.learning_rate: expected")


def test_a_stage_that_can_only_be_one_says_so_before_it_works(clone: Clone) -> None:
    ask(clone, "responses", processes=2)
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "repro", "responses"],
        cwd=clone.root,
        env=clone.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "dvc.yaml: responses: asked for 2 processes, but this stage can only be one" in done.stderr
    ask(clone, "responses")


def test_torchrun_starts_it_as_well(clone: Clone) -> None:
    ask(clone, "sft", processes=2)
    clone.dvc("repro", "--quiet", "--force", "--single-item", "--no-run-cache", "sft")
    expected = results(clone)
    status, lines = failing(clone, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert status == 0, lines[-20:]
    found = results(clone)
    assert found[0].equals(expected[0])
    assert found[1] == expected[1]

"""`posttrain verify`: exit codes, JSON, what a person reads, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flows.lineage.receipts.test_envelope import keys
from tests.flows.toy_pipeline import call, environ, make_pipeline


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_pipeline(tmp_path_factory.mktemp("pipeline") / "toy")
    code, _, error = call(root, "run", "sft")
    assert code == 0, error
    return root


def test_a_stage_is_made_again_and_its_receipt_holds(pipeline, tmp_path):
    private, public = keys(tmp_path, "ssh")
    code, out, error = call(pipeline, "verify", "sft", "--key", str(private), "--to", str(tmp_path / "sft.json"))
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "sft: no run on record"
    assert lines[-2].startswith("equal to the bit: data/sft (1 file, ")
    assert lines[-1].endswith("sft.json")
    before = sorted(file for file in pipeline.rglob("*") if ".dvc/tmp" not in str(file))
    code, out, _ = call(pipeline, "verify", "--receipt", str(tmp_path / "sft.json"), "--key", str(public))
    assert code == 0
    assert "signature: right, of SHA256:" in out
    assert out.splitlines()[-1] == "the receipt holds; nothing was run"
    assert sorted(file for file in pipeline.rglob("*") if ".dvc/tmp" not in str(file)) == before


def test_json_ends_the_output_and_the_rest_goes_to_standard_error(pipeline):
    code, out, error = call(pipeline, "verify", "data/problems", "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["stage"], found["differences"]) == (0, "equal", "problems", [])
    assert Path(found["receipt"]).parent == pipeline / "mlruns/receipts"
    assert set(found["outs"]["data/problems"]["result.json"]) == {"md5", "sha256", "size"}
    assert "equal to the bit" in error
    code, out, _ = call(pipeline, "verify", "--receipt", found["receipt"], "--json")
    assert (code, json.loads(out)["holds"], json.loads(out)["signature"]) == (0, True, "none")


def test_a_wrong_key_or_a_changed_file_is_exit_1(pipeline, tmp_path):
    private, _ = keys(tmp_path)
    _, other = keys(tmp_path, name="other")
    receipt = tmp_path / "r.json"
    assert call(pipeline, "verify", "sft", "--key", str(private), "--to", str(receipt))[0] == 0
    code, out, _ = call(pipeline, "verify", "--receipt", str(receipt), "--key", str(other))
    assert code == 1
    assert "fault: signature: not of SHA256:" in out
    assert out.splitlines()[-1] == "the receipt does not hold"


def test_what_cannot_be_made_again_is_exit_1_in_one_line(pipeline, monkeypatch):
    kept = (pipeline / "stage.py").read_text()
    (pipeline / "stage.py").write_text(kept + "# changed\n")
    try:
        code, out, _ = call(pipeline, "verify", "sft", "--json")
        assert (code, json.loads(out)["verdict"]) == (1, "failed")
        assert json.loads(out)["problem"].startswith("stage.py: expected ")
    finally:
        (pipeline / "stage.py").write_text(kept)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected a stage, path, run or hash to make again, or --receipt FILE to check"),
        (["sft", "--receipt", "x"], "expected a stage, path, run or hash to make again, or --receipt FILE to check"),
        (["--receipt", "x", "--keep"], "--to and --keep are for making something again"),
        (["--receipt", "nothing.json"], "nothing.json: No such file or directory; expected a receipt"),
        (["sft", "--key", "stage.py"], "stage.py: expected a private key of Ed25519"),
        (["sft", "--to", "data"], "data: the receipt cannot be written there"),
        (["sftt"], "did you mean sft?"),
        (["stage.py"], "raw data: no stage makes it"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(pipeline, arguments, said):
    code, out, error = call(pipeline, "verify", *arguments)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1


def test_ctrl_c_ends_the_command_and_leaves_nothing(tmp_path):
    root = make_pipeline(tmp_path / "toy")
    assert call(root, "run", "problems")[0] == 0
    lock = (root / "dvc.lock").read_text()
    (root / "dvc.lock").write_text(lock.replace("seconds: 0", "seconds: 600"))
    assert "seconds: 600" in (root / "dvc.lock").read_text()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "verify", "problems"],
        cwd=root,
        env={**environ(), "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a parent in the background ignores it
    )
    deadline = time.monotonic() + 60
    while not (logs := list(scratch.glob("*/mlruns/logs/problems.log"))) or "working" not in logs[0].read_text():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.startswith("posttrain: stopped")
    assert not list(scratch.iterdir())

"""`posttrain verify`: exit codes, JSON, what a person reads, and Ctrl-C."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flows.toy_pipeline import call, environ, make_pipeline


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_pipeline(tmp_path_factory.mktemp("pipeline") / "toy")
    code, _, error = call(root, "run", "sft")
    assert code == 0, error
    return root


def snapshot(root: Path) -> dict[str, bytes]:
    files = (file for file in root.rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files if ".dvc/tmp" not in str(file)}


def test_a_stage_is_made_again_and_what_it_read_and_made_is_printed(pipeline):
    before = snapshot(pipeline)
    code, out, error = call(pipeline, "verify", "sft")
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "sft: no run on record"
    assert lines[1].startswith("scratch copy: 1 code files and 1 inputs as recorded (")
    assert lines[-1].startswith("equal to the bit: data/sft (1 file, ")
    assert snapshot(pipeline) == before


def test_json_ends_the_output_and_the_rest_goes_to_standard_error(pipeline):
    before = snapshot(pipeline)
    code, out, error = call(pipeline, "verify", "data/sft", "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["stage"], found["differences"]) == (0, "equal", "sft", [])
    assert found["command"] == "python stage.py sft data/sft"
    assert set(found["inputs"]) == {"stage.py", "data/problems"}
    for files, path in ((found["inputs"], "data/problems"), (found["outs"], "data/sft")):
        content = (pipeline / path / "result.json").read_bytes()
        md5, sha256 = (hashlib.new(name, content).hexdigest() for name in ("md5", "sha256"))
        assert files[path]["result.json"] == {"md5": md5, "sha256": sha256, "size": len(content)}
    assert "equal to the bit" in error
    assert snapshot(pipeline) == before


def test_a_difference_is_exit_1_and_names_its_file(pipeline):
    """dvc.lock has another parameter than the one by which the out was made."""
    kept = (pipeline / "dvc.lock").read_text()
    assert kept.count("beta: 0.1") == 2, "of problems and of sft"
    head, _, tail = kept.rpartition("beta: 0.1")
    (pipeline / "dvc.lock").write_text(f"{head}beta: 0.2{tail}")
    try:
        code, out, error = call(pipeline, "verify", "sft")
    finally:
        (pipeline / "dvc.lock").write_text(kept)
    assert (code, error) == (1, "")
    assert "differs: 1 of 1 files, 0 are equal" in out
    assert "  data/sft/result.json: " in out


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
        ([], "Missing argument 'X'"),
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
    deadline = time.monotonic() + 300
    while not (logs := list(scratch.glob("*/mlruns/logs/problems.log"))) or "working" not in logs[0].read_text():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 130
    assert error.startswith("posttrain: stopped")
    assert not list(scratch.iterdir())

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tasks.algorithms.common import distributed
from tasks.common import processes
from tasks.common.errors import ConfigError

ROOT = Path(__file__).parents[3]
START = """
import os, sys, time
from pathlib import Path
from tasks.common import processes
rank = int(os.environ["RANK"])
Path(f"pid-{rank}").write_text(str(os.getpid()))
print("rank", rank, "of", os.environ["WORLD_SIZE"], sys.argv[1:], flush=True)
while not all(Path(f"pid-{other}").exists() for other in range(int(os.environ["WORLD_SIZE"]))):
    time.sleep(0.01)
"""


@pytest.fixture
def start(tmp_path):
    """Starts `count` processes of a module that runs START and then the code given for a rank."""

    def started(count, **codes):
        cases = "".join(f"if rank == {rank.removeprefix('rank')}:\n    {code}\n" for rank, code in codes.items())
        (tmp_path / "toy.py").write_text(START + cases)
        return subprocess.Popen(
            [sys.executable, "-m", "tasks.common.processes", str(count), "toy", "--out", "a b"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    yield started
    for file in tmp_path.glob("pid-*"):
        assert not psutil.pid_exists(int(file.read_text())), "nothing outlives the stage"


def test_all_run_and_only_the_first_is_heard(start):
    out, err = (process := start(3)).communicate()
    assert (process.returncode, out, err) == (0, "rank 0 of 3 ['--out', 'a b']\n", "")


def test_a_stage_becomes_what_runs_its_command_several_times(monkeypatch):
    replaced = []
    monkeypatch.setattr(os, "execv", lambda *given: replaced.append(given))
    monkeypatch.setattr(sys, "argv", ["toy.py", "--out", "a b"])
    processes.replace_with_processes(3, "stages.toy")
    command = [sys.executable, "-m", "tasks.common.processes", "3", "stages.toy", "--out", "a b"]
    assert replaced == [(sys.executable, command)]


SLEEP = "time.sleep(600)"
LINES = "Path(os.environ[processes.FOLDER]).glob('line-*')"
WAITS = f"[*iter(lambda: any(file.read_text() for file in {LINES}), True)]"  # until another has written its line


FAILS = "raise processes.record_failure_and_make_exit({!r})"
ENDS = [
    ({"rank0": SLEEP, "rank1": FAILS.format("sft: step 3: diverged")}, 1, "sft: step 3: diverged"),
    ({"rank0": SLEEP, "rank1": "os.kill(os.getpid(), 9)"}, 137, "process 2 of the stage's 2 was killed by signal 9"),
    ({"rank0": FAILS.format("mine"), "rank1": SLEEP}, 1, "mine"),
    ({"rank0": f"{WAITS}; raise SystemExit(processes.LOST)", "rank1": FAILS.format("it")}, 1, "it"),
    ({"rank0": SLEEP, "rank1": "raise ValueError('a bug')"}, 1, "ValueError: a bug"),
    ({"rank0": "raise ValueError('a bug')", "rank1": SLEEP}, 1, "ValueError: a bug"),
    ({"rank0": "raise SystemExit(3)", "rank1": SLEEP}, 3, None),
    ({"rank0": SLEEP, "rank1": "raise SystemExit(processes.LOST)"}, 1, "the stage's processes lost each other"),
]


@pytest.mark.parametrize(
    ("codes", "status", "last"), [*ENDS[:2], *(pytest.param(*end, marks=pytest.mark.slow) for end in ENDS[2:])]
)
def test_one_that_fails_ends_all_with_its_own_line(start, codes, status, last):
    process = start(2, **codes)
    _, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    assert [*err.splitlines(), None][-2 if last else -1] == last


def pids(folder, count):
    deadline = time.monotonic() + 120
    while len(found := [file.read_text() for file in folder.glob("pid-*")]) < count or not all(found):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [psutil.Process(int(text)) for text in found]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_they_end_with_what_started_them(start, tmp_path, number):
    process = start(2, rank0=SLEEP, rank1=SLEEP)
    ranks = pids(tmp_path, 2)
    process.send_signal(number)
    process.communicate(timeout=120)  # until none of them holds the pipe
    assert process.returncode == -number
    assert psutil.wait_procs(ranks, timeout=120)[1] == []


@pytest.mark.slow
def test_with_a_ctrl_c_of_the_whole_group_only_the_first_answers(start, tmp_path):
    process = start(2, rank0=SLEEP, rank1=SLEEP)
    for one in (*pids(tmp_path, 2), process):
        one.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (-signal.SIGINT, "")


def cuda(devices):
    return SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: devices))


@pytest.mark.parametrize(
    ("resources", "torch", "device", "count"),
    [
        ({"cpu": 2, "gpu": 0}, cuda(8), "", 1),
        ({"cpu": 2, "gpu": 1}, cuda(8), "", 1),
        ({"cpu": 2, "gpu": 2}, cuda(8), "", 2),
        ({"cpu": 2, "gpu": 2}, cuda(0), "", 1),
        ({"cpu": 2, "gpu": 2}, cuda(8), "cpu", 1),
        ({"cpu": 2, "gpu": 2, "processes": 3}, cuda(8), "cpu", 3),
        ({"cpu": 2, "gpu": 2, "processes": 3}, cuda(2), "cuda", 2),
        ({"cpu": 2, "gpu": 0, "processes": 3}, cuda(8), "", 3),
        ({"cpu": 2, "gpu": 2}, None, "", 1),
    ],
)
def test_how_many_processes_a_stage_is(monkeypatch, resources, torch, device, count):
    monkeypatch.setenv("POSTTRAIN_DEVICE", device)
    assert processes.count_wanted_processes("sft", resources, torch) == count


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"gpu": 4}, "dvc.yaml: sft: meta.resources.gpu: asks for 4, this process sees 2"),
        ({"gpu": 0, "processes": 0}, "dvc.yaml: sft: meta.resources.processes: expected a number of at least 1, got 0"),
        ({"gpu": 0, "processes": "2"}, "meta.resources.processes: expected a number of at least 1, got '2'"),
        ({"gpu": 0, "processes": True}, "meta.resources.processes: expected a number of at least 1, got True"),
    ],
)
def test_what_a_stage_cannot_have_is_one_line(monkeypatch, resources, said):
    monkeypatch.setenv("POSTTRAIN_DEVICE", "")
    with pytest.raises(ConfigError) as error:
        processes.count_wanted_processes("sft", resources, cuda(2))
    assert said in str(error.value)


def test_what_processes_may_divide():
    assert processes.SHARD == distributed.SHARD
    assert processes.read_shard_setting("sft", {"cpu": 2}) == ""
    assert processes.read_shard_setting("sft", {"shard": "optimizer"}) == "optimizer"
    assert processes.read_shard_setting("sft", {"shard": "model"}) == "model"
    for value in ("gradients", 1, True, None):
        with pytest.raises(
            ConfigError, match=r"^dvc.yaml: sft: meta.resources.shard: expected optimizer or model, got "
        ):
            processes.read_shard_setting("sft", {"shard": value})

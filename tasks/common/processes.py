"""Several processes for one stage: how many it asks for, how they start, and that they end together.

`python -m tasks.common.processes N MODULE ARGUMENTS` runs the stage's command N times, as torchrun does and with its
variables (RANK, LOCAL_RANK, WORLD_SIZE), so that torchrun can start a stage as well. Unlike torchrun it imports no
torch, leaves no process behind when it is killed with -9, and ends with the stage's own line. Process 0 writes to the
stage's log; what another one writes is shown only when it fails.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from tasks.common.errors import ConfigError

FOLDER = "POSTTRAIN_RANKS"  # variable: the folder that the processes of a stage share while it runs
LOOK_SECONDS = 0.05
GRACE_SECONDS = 5.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h
SHARD = "POSTTRAIN_SHARD"  # variable: what the processes of a stage divide, for tasks/algorithms/common/distributed.py
SHARDS = ("optimizer", "model")
LOST = 75  # exit status of a process that ended since another one had
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def read_world_size() -> int:
    """How many processes the stage is, as its environment says; 0 where that says nothing, and the stage has only
    begun.
    """
    return int(os.environ["WORLD_SIZE"]) if {"RANK", "WORLD_SIZE"} <= os.environ.keys() else 0


def is_multi_process() -> bool:
    """Whether this process is one of several of a stage."""
    return read_world_size() > 1


def is_main_process() -> bool:
    """Whether this process tracks and writes: it is alone, or the first of several."""
    return not is_multi_process() or os.environ["RANK"] == "0"


def count_wanted_processes(stage: str, resources: Mapping[str, int], torch: Any) -> int:
    """The number of processes that the stage's `meta.resources` ask for on this machine; ConfigError where it has too
    few devices.

    With CUDA that is `gpu`, one for each device; on a CPU `processes`. `torch` is the module, or None where the stage
    has not imported it.
    """
    devices = torch.cuda.device_count() if torch is not None and resources.get("gpu") and _is_cuda_allowed() else 0
    key = "gpu" if devices else "processes"
    count = resources.get(key, 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"dvc.yaml: {stage}: meta.resources.{key}: expected a number of at least 1, got {count!r}")
    if devices and count > devices:
        raise ConfigError(f"dvc.yaml: {stage}: meta.resources.gpu: asks for {count}, this process sees {devices}")
    return count


def read_shard_setting(stage: str, resources: Mapping[str, object]) -> str:
    """What the stage's processes divide among them: the optimizer, the model, or nothing; ConfigError for anything
    else.
    """
    value = resources.get("shard", "")
    if value not in ("", *SHARDS):
        raise ConfigError(f"dvc.yaml: {stage}: meta.resources.shard: expected {' or '.join(SHARDS)}, got {value!r}")
    return str(value)


def _is_cuda_allowed() -> bool:
    return os.environ.get("POSTTRAIN_DEVICE", "cuda") in ("", "cuda")


def replace_with_processes(count: int, module: str) -> NoReturn:
    """Replace this process by `count` processes that run `module` with the same arguments, and what looks after
    them.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", __name__, str(count), module, *sys.argv[1:]])


def join_process_group(torch: Any) -> None:
    """Meet the other processes of the stage; on a machine with GPUs each process computes on its own."""
    cuda = torch.cuda.is_available() and os.environ.get("POSTTRAIN_DEVICE") != "cpu"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    folder = os.environ.get(FOLDER)
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        init_method=f"file://{folder}/meeting" if folder else "env://",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(
            days=1
        ),  # one may wait long for another's rewards; that a process has ended is noticed at once
    )


def leave_process_group(torch: Any) -> None:
    """Part from the other processes, once all of them are here: who ends while another still connects is lost to it."""
    torch.distributed.all_reduce(torch.zeros(1))
    torch.distributed.destroy_process_group()


def collect_process_facts(torch: Any) -> dict[str, float]:
    """What a run's record says of its processes: their number, threads of each, and GPUs in all.

    Sums, and so bits, depend on them.
    """
    count = max(1, read_world_size())
    gpus = count if _is_cuda_allowed() and torch.cuda.is_available() else 0
    return {"system/processes": count, "system/threads": torch.get_num_threads(), "system/gpus": gpus}


def measure_peak_gpu_memory(torch: Any) -> dict[str, float]:
    """The most that this process's tensors held of its GPU so far, in megabytes; nothing without a GPU."""
    if not torch.cuda.is_initialized():
        return {}
    return {"system/gpu_peak_memory_megabytes": torch.cuda.max_memory_allocated() / 1e6}


def record_failure_and_make_exit(line: str) -> SystemExit:
    """What ends a process of several that fails with this line, which the stage then ends with."""
    if (folder := os.environ.get(FOLDER)) is None:
        return SystemExit(line)
    Path(folder, f"line-{os.environ['RANK']}").write_text(line)
    return SystemExit(1)


def is_peer_lost_error(error: Exception) -> bool:
    """Whether an error says no more than that another process has ended."""
    return any(text in str(error) for text in ("closed by peer", "reset by peer", "Broken pipe"))


def main(count: int, command: Sequence[str]) -> int:
    """Run the command `count` times at once until all have ended; when one fails, the others are stopped.

    The exit status.
    """
    children: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: object) -> None:
        _stop_children(children)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in STOPS:
        signal.signal(number, stop)
    with TemporaryDirectory(prefix="posttrain-") as name:
        folder = Path(name)
        for rank in range(count):
            environ = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, FOLDER: name}
            variables = {**os.environ, **{key: str(value) for key, value in environ.items()}}
            with (folder / f"log-{rank}").open("wb") as log:
                output = log if rank else None
                # This process has one thread, so that a function may run in the child before the command does.
                child = subprocess.Popen(
                    command,
                    env=variables,
                    preexec_fn=_make_parent_death_hook(os.getpid()),
                    stdout=output,
                    stderr=output,
                )
            children.append(child)
        while None in (ended := [child.poll() for child in children]) and not any(ended):
            time.sleep(LOOK_SECONDS)
        if not any(ended):
            return 0
        time.sleep(LOOK_SECONDS)  # one that failed at the same time has its line
        ended = [child.poll() for child in children]
        _stop_children(children)
        return _print_failure(folder, ended)


def _make_parent_death_hook(parent: int) -> Callable[[], None]:
    """What a child calls before it becomes the command: it is killed when its parent ends, and leaves Ctrl-C to it."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if library is not None:
            library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(LOST)

    return prepare


def _stop_children(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    for child in children:
        with suppress(ProcessLookupError):
            child.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _print_failure(folder: Path, ended: Sequence[int | None]) -> int:
    """Print why the stage failed, its own line last if it has one; returns the exit status.

    `ended` was before the others were stopped.
    """
    lines = sorted(folder.glob("line-*"), key=lambda file: file.stat().st_mtime_ns)
    if lines:
        print(lines[0].read_text(), file=sys.stderr, flush=True)
        return 1
    count = len(ended)
    for rank, status in enumerate(ended):
        if status is not None and status < 0:
            print(
                f"process {rank + 1} of the stage's {count} was killed by signal {-status}", file=sys.stderr, flush=True
            )
            return 128 - status
    failed_ranks = [rank for rank, status in enumerate(ended) if status not in (None, 0, LOST)]
    for rank in failed_ranks[:1]:
        if rank:
            sys.stderr.write((folder / f"log-{rank}").read_text(errors="replace"))
        return ended[rank] or 1
    print("the stage's processes lost each other", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), [sys.executable, "-m", *sys.argv[2:]]))

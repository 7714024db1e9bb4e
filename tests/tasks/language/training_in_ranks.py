"""Trainings in several processes: `python -m tests.tasks.language.training_in_ranks MADE PROCESSES STAGE/NAME[=KILL] ..
[PROCESSES ..]`.

Each fills the folder STAGE/NAME, in as many processes as the number before it says. KILL is RANK:STEPS[:THEN]: the
process of this rank kills itself after so many optimizer steps, at which the others end by themselves; then as many
processes, or THEN, go on. In a folder named `divided` they divide the optimizer, in one whose name begins with
`sharded` the model. All are forks of this process, which has trained a little by itself, since imports and first calls
take longest.
"""

import contextlib
import os
import signal
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tasks.common import processes
from tests.tasks.language.training_to_kill import arrange, begin_fork
from tests.tasks.language.trainings import IN_RANKS, PRECISE, ROUNDED


def log(folder, rank):
    return Path(folder, f"log-{rank}")


def run(made, out, rank, count, folder, kill):
    """One rank."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), processes.FOLDER: folder}
    os.environ[processes.SHARD] = {"divided": "optimizer", "sharded": "model"}.get(out.name.partition("-")[0], "")
    if rank:  # as for a stage: what another process writes must not break a line of the first
        os.dup2(os.open(log(folder, rank), os.O_CREAT | os.O_WRONLY), sys.stderr.fileno())
    begin_fork()
    processes.join_process_group(torch)
    if kill is not None:
        arrange(kill[1] if rank == kill[0] else None)
    try:
        metrics = {**IN_RANKS, **PRECISE, **ROUNDED}[out.parts[0]](made, out)
    except RuntimeError as error:
        if processes.is_peer_lost_error(error):
            os._exit(processes.LOST)
        traceback.print_exc()
        os._exit(1)
    if rank == 0:
        (out / "metrics.txt").write_text(repr(metrics))
    torch.distributed.destroy_process_group()


def attempt(made, out, count, kill):
    with TemporaryDirectory() as folder:
        children = []
        for rank in range(count):
            child = os.fork()
            if child == 0:
                run(made, out, rank, count, folder, kill)
                os._exit(0)
            children.append(child)
        found = [os.waitpid(child, 0)[1] for child in children]
        logs = [log(folder, rank).read_text() for rank in range(1, count)]
    expected = [
        signal.SIGKILL if kill and rank == kill[0] else 256 * processes.LOST if kill else 0 for rank in range(count)
    ]
    assert found == expected, (out, kill, found, *logs)


def prepare(made):
    """Do what each process would have to do anew: tables of names and of conversions, checks of schemas, FSDP's
    imports.
    """
    import torch.distributed.fsdp  # noqa: F401

    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name in ("sft", "grpo"):
            IN_RANKS[name](made, Path(name))


if __name__ == "__main__":
    torch.set_num_threads(1)
    made, *words = sys.argv[1:]
    prepare(Path(made))
    count = 0
    for word in words:
        if word.isdecimal():
            count = int(word)
            continue
        out, _, kill = word.partition("=")
        if kill:
            rank, steps, *others = map(int, kill.split(":"))
            attempt(Path(made), Path(out), count, (rank, steps))
        attempt(Path(made), Path(out), (others or [count])[0] if kill else count, None)

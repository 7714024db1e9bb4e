"""Trainings in several processes: `python -m tests.tasks.language.training_in_ranks MADE PROCESSES STAGE/NAME[=KILL] ...`.

Each fills the folder STAGE/NAME. KILL is RANK:STEPS[:THEN]: the process of this rank kills itself after so many optimizer steps, at
which the others end by themselves; then as many processes, or THEN, go on. In a folder named `divided` they divide the optimizer, in one whose
name begins with `sharded` the model. All are forks of this process, since imports take longest.
"""

import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tasks.common import processes
from tests.tasks.language.training_to_kill import arrange
from tests.tasks.language.trainings import IN_RANKS, PRECISE, ROUNDED


def run(made, out, rank, count, folder, kill):
    """One rank."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), processes.FOLDER: folder}
    os.environ[processes.SHARD] = {"divided": "optimizer", "sharded": "model"}.get(out.name.partition("-")[0], "")
    processes.join(torch)
    if kill is not None:
        arrange(kill[1] if rank == kill[0] else None)
    try:
        metrics = {**IN_RANKS, **PRECISE, **ROUNDED}[out.parts[0]](made, out)
    except RuntimeError as error:
        os._exit(processes.LOST if processes.lost_another(error) else 1)
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
    expected = [
        signal.SIGKILL if kill and rank == kill[0] else 256 * processes.LOST if kill else 0 for rank in range(count)
    ]
    assert found == expected, (out, kill, found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    made, count, *outs = sys.argv[1:]
    for text in outs:
        out, _, kill = text.partition("=")
        if kill:
            rank, steps, *others = map(int, kill.split(":"))
            attempt(Path(made), Path(out), int(count), (rank, steps))
        attempt(Path(made), Path(out), (others or [int(count)])[0] if kill else int(count), None)

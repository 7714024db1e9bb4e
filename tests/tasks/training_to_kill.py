"""A stage's training in processes that are killed: `python -m tests.tasks.training_to_kill STAGE MADE OUT KILL...`.

Each KILL is one attempt: the steps after which it kills itself, `writing` (as it puts its first checkpoint in place), or
`never`. Attempts are forks of this one process, since importing takes longest.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from tasks import training
from tasks.algorithms.optimizer import Optimizer
from tasks.language import pretrained, sft
from tests.conftest import tiny


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def run(stage, made, out):
    if stage == "sft":
        config = tiny(sft.SftConfig, "sft").model_copy(update={"epochs": 3, "optimizer": "muon"})
        sft.run(config, made / "pretrained", made / "problems", out / "model", out / "curve.csv")
    else:
        config = tiny(pretrained.PretrainedConfig, "pretrained").model_copy(update={"steps": 12, "optimizer": "adamw"})
        pretrained.run(config, made / "corpus", made / "tokenizer", made, out / "model", out / "curve.csv")


def arrange(kill):
    training.EVERY_SECONDS, training.SHARE = 0.0, float("inf")  # a checkpoint after every step
    if kill == "writing":
        Path.replace = die
    elif kill != "never":
        step, left = Optimizer.step, iter(range(int(kill)))
        Optimizer.step = lambda self: die() if next(left, None) is None else step(self)


if __name__ == "__main__":
    torch.set_num_threads(1)
    stage, made, out, *kills = sys.argv[1:]
    for kill in kills:
        child = os.fork()
        if child == 0:
            arrange(kill)
            run(stage, Path(made), Path(out))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) == (kill != "never"), (kill, status)
        assert kill != "never" or status == 0, status

"""A stage's training in processes that are killed: `python -m tests.tasks.training_to_kill STAGE MADE OUT=KILL,KILL...`.

Each KILL is one attempt to fill OUT: the steps after which it kills itself, or `writing`, as it puts its first checkpoint
in place. One more attempt survives. They are forks of this one process, since importing takes longest.
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
    elif kill:
        step, left = Optimizer.step, iter(range(int(kill)))
        Optimizer.step = lambda self: die() if next(left, None) is None else step(self)


def attempt(stage, made, out, kill):
    child = os.fork()
    if child == 0:
        arrange(kill)
        run(stage, made, out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if kill else 0), (kill, status)


if __name__ == "__main__":
    torch.set_num_threads(1)
    stage, made, *outs = sys.argv[1:]
    for out, _, kills in (text.partition("=") for text in outs):
        for kill in [*filter(None, kills.split(",")), ""]:
            attempt(stage, Path(made), Path(out), kill)

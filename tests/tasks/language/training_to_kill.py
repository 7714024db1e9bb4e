"""Trainings in processes that kill themselves: `python -m tests.tasks.language.training_to_kill MADE
STAGE/NAME=KILL,KILL...`.

Each KILL is one attempt to fill the folder STAGE/NAME. It is the number of optimizer steps after which the attempt
kills itself, or `writing` for a kill while the first checkpoint is put in place. One more attempt survives. All are
forks of this process, since imports take longest; without kills this process trains itself, and so has imported what
later forks need.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from tasks.algorithms.common.optimizer import Optimizer
from tasks.common import checkpoints
from tests.tasks import policies
from tests.tasks.language import test_dpo, test_pretrained, test_reward_model, test_reward_objectives, test_sft


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


STAGES = {
    "pretrained": lambda made, out: test_pretrained.pretrain(made, out, steps=12, training={"optimizer": "adamw"}),
    "sft": lambda made, out: test_sft.tune(made, out, epochs=3, training={"optimizer": "muon"}),
    "sft-packed": lambda made, out: test_sft.tune(made, out, epochs=4, packing=True, max_length=250, batch_size=2),
    "reward_model": lambda made, out: test_reward_model.fit(made, made / "preferences", out),
    **{
        f"reward_model-{objective}": lambda made, out, objective=objective: test_reward_objectives.learn(
            made, out, objective, epochs=4
        )
        for objective in ("ranking", "outcome", "process")
    },
    "reward_model-process-log_probability": lambda made, out: test_reward_objectives.learn(
        made, out, "process", epochs=4, **test_reward_objectives.BY_LOG_PROBABILITIES
    ),
    "dpo": lambda made, out: test_dpo.fit(made, made / "preferences", out),
    "rejection_sft": lambda made, out: policies.train("rejection_sft", made, out, epochs=3),
    "reinforce": lambda made, out: policies.train("reinforce", made, out, **SPACED, variance_every=3),
    "ppo": lambda made, out: policies.train("ppo", made, out, **SPACED, kl_target=1.0, epochs=2, minibatches=2),
    "grpo": lambda made, out: policies.train(
        "grpo", made, out, **SPACED, keep="best", updates=2, sampler_precision="bf16"
    ),
}
SPACED = {"steps": 10, "evaluate_every": 3}
UPDATES = {"reinforce": 5, "ppo": 8, "grpo": 2}  # of optimizers in a step, where they are more than one


def begin_fork():
    """Have torch see in its main thread that it was forked, as a warm stage does: threads that first see it at once can
    fail.
    """
    torch.set_num_threads(1)


def arrange(kill):
    checkpoints.EVERY_SECONDS, checkpoints.SHARE = 0.0, float("inf")  # a checkpoint after every step
    if kill == "writing":
        Path.replace = die
    elif kill:
        step, left = Optimizer.step, iter(range(int(kill)))
        Optimizer.step = lambda self: die() if next(left, None) is None else step(self)


def attempt(made, out, kill):
    child = os.fork()
    if child == 0:
        begin_fork()
        arrange(kill)
        STAGES[out.parts[0]](made, out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if kill else 0), (out, kill, status)


if __name__ == "__main__":
    torch.set_num_threads(1)
    made, *outs = sys.argv[1:]
    for text in outs:
        out, _, kills = text.partition("=")
        if kills:
            for kill in [*kills.split(","), ""]:
                attempt(Path(made), Path(out), kill)
        else:
            STAGES[Path(out).parts[0]](Path(made), Path(out))

"""The stages that train a policy by reward, each with the tiny settings of tests/conftest.py."""

from pathlib import Path

import pytest
import torch

from tasks.language import grpo, ppo, reinforce, rejection_sft
from tasks.language.rewards.weighted_rewards import Rewards
from tasks.language.training.judge import Judge
from tests.conftest import PARAMS, TINY

NO_FILES = Path("rewards/none")  # of functions in Python
STAGES = {
    "reinforce": (reinforce.ReinforceConfig, reinforce.run),
    "ppo": (ppo.PpoConfig, ppo.run),
    "grpo": (grpo.GrpoConfig, grpo.run),
    "rejection_sft": (rejection_sft.RejectionSftConfig, rejection_sft.run),
}


def configured(stage, **changes):
    """The stage's tiny section with changes, checked as in params.yaml; `reward` names the only reward that counts."""
    if "reward" in changes:
        changes["reward"] = {changes["reward"]: 1.0}
    if "training" in changes:
        changes["training"] = {**PARAMS[stage]["training"], **changes["training"]}
    return STAGES[stage][0].model_validate({**PARAMS[stage], **TINY[stage], **changes})


def train(stage, home, out, **changes):
    """Run the stage on what `home` holds, into out/model and out/curve.csv; returns its metrics."""
    sources = ("pretrained", "mixture", "reward_model")
    config = configured(stage, **changes)
    read = [*(home / name for name in sources), Path(config.reward_files)]
    return STAGES[stage][1](config, *read, out / "model", out / "curve.csv")


def judge_that_fails_at(call):
    """A judge whose `call`-th batch has one reward that is infinite."""
    judge, calls = Judge.__call__, []

    def judged(self, *arguments):
        calls.append(judge(self, *arguments))
        if len(calls) == call:
            total = calls[-1].total.clone()
            total[1] = torch.inf
            return Rewards(total, total, calls[-1].parts)
        return calls[-1]

    return judged


def marked(stages, quick):
    """The stages as parameters of a test: all but the `quick` ones are marked slow."""
    return [stage if stage in quick else pytest.param(stage, marks=pytest.mark.slow) for stage in stages]

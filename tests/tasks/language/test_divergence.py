"""Every stage that trains stops at a step whose gradient is not finite, and writes no model."""

import math

import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import Optimizer
from tasks.common import checkpoints
from tests.tasks import policies
from tests.tasks.language import test_dpo, test_pretrained, test_reward_model, test_sft

FEW = {"evaluate_every": 0, "prompts_per_step": 2, "max_new_tokens": 3}
STAGES = {
    "pretrained": lambda made, out: test_pretrained.pretrain(made, out),
    "sft": lambda made, out: test_sft.tune(made, out, demonstrations=8, batch_size=2),
    "reward_model": lambda made, out: test_reward_model.fit(made, made / "preferences", out),
    "dpo": lambda made, out: test_dpo.fit(made, made / "preferences", out),
    "rejection_sft": lambda made, out: policies.train("rejection_sft", made, out),
    "reinforce": lambda made, out: policies.train("reinforce", made, out, baseline="none", **FEW),
    "ppo": lambda made, out: policies.train("ppo", made, out, epochs=1, minibatches=1, **FEW),
    "grpo": lambda made, out: policies.train("grpo", made, out, updates=1, **FEW),
}
UPDATES = {"ppo": 2}  # optimizers in a step: the policy's and the critic's


@pytest.mark.parametrize("stage", STAGES)
def test_one_bad_gradient_stops_the_stage(ready, easy_sums, tmp_path, monkeypatch, stage):
    step, calls, kept = Optimizer.step, [], []

    def spoiled(optimizer):
        calls.append(optimizer)
        if len(calls) == 1 + 2 * UPDATES.get(stage, 1):
            optimizer.parameters[0].grad.flatten()[0] = math.nan
        return step(optimizer)

    def keep(self, rows, state):
        weights = [part.state_dict() for part in state.values() if isinstance(part, torch.nn.Module)]
        kept.append((len(rows), all(w.isfinite().all() for part in weights for w in part.values())))

    monkeypatch.setattr(Optimizer, "step", spoiled)
    monkeypatch.setattr(checkpoints.ResumableTraining, "_write", keep)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    with pytest.raises(TrainingError) as stopped:
        STAGES[stage](easy_sums if stage in ("reward_model", "dpo") else ready, tmp_path)
    assert str(stopped.value) == f"{stage}: step 3: the gradient's norm is nan: training has diverged"
    assert kept == [(1, True), (2, True)]
    assert not list(tmp_path.iterdir())

"""In every stage: what is computed in which precision, and what is saved."""

import pandas as pd
import pytest
import torch
from safetensors import safe_open
from transformers.models.llama.modeling_llama import LlamaMLP

from tasks.algorithms.common.precision import get_master_weight
from tasks.algorithms.language import completions
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.language.training import trained_model
from tests.tasks.language.trainings import FULL, TRAININGS
from tests.tasks.policies import configured, marked

FEW = {"steps": 1, "prompts_per_step": 2, "max_new_tokens": 3, "evaluate_every": 1, "evaluate_prompts": 2}
QUICK = {"sft": {"demonstrations": 8}, **{stage: {**FULL[stage], **FEW} for stage in ("reinforce", "ppo", "grpo")}}


def types(path):
    with safe_open(path / "model.safetensors", "pt") as file:
        return {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118


@pytest.fixture
def computed(monkeypatch):
    """The types of the weights of all models that read responses, and of all that are sampled from."""
    found, on = set(), completions.Completions.on

    def noted(self, model: PretrainedModel):
        found.add(next(model.parameters()).dtype)
        return on(self, model)

    monkeypatch.setattr(completions.Completions, "on", noted)
    return found


@pytest.mark.parametrize("stage", marked(TRAININGS, ["sft", "ppo"]))
@pytest.mark.parametrize(
    ("precision", "saved"), [("bf16", torch.float32), ("pure_bf16", torch.bfloat16)], ids=["bf16", "pure_bf16"]
)
def test_every_stage_trains_in_bfloat16(ready, preferences, tmp_path, computed, stage, precision, saved):
    """The reference, the critic and the reward model too; a model with masters is saved in fp32."""
    TRAININGS[stage](ready, tmp_path, **QUICK.get(stage, {}), training={"precision": precision})
    assert types(tmp_path / "model") == {saved}
    if stage == "reward_model":
        assert computed == {torch.bfloat16, saved}, "the model that is saved is the one that is measured"
    elif stage not in ("pretrained", "sft"):  # they read no responses apart from their prompts
        assert computed == {torch.bfloat16}
    assert pd.read_csv(tmp_path / "curve.csv").notna().all(axis=None)


def test_a_critic_has_masters_as_its_policy_has(ready):
    """Without them it would lose updates that its policy keeps."""
    training = configured("ppo", training={"precision": "bf16"}).training
    critic = trained_model.build_policy_critic(trained_model.load_trainable_model(ready / "pretrained", training))
    assert {(p.dtype, get_master_weight(p).dtype) for p in critic.parameters()} == {(torch.bfloat16, torch.float32)}


@pytest.mark.slow
def test_with_masters_dpo_follows_fp32(ready, preferences, tmp_path):
    """Measured: the loss, from 0.693, ends at 0.2980 in fp32 and at 0.2983 in bf16."""
    fp32, bf16 = (
        TRAININGS["dpo"](ready, tmp_path / precision, training={"precision": precision})
        for precision in ("fp32", "bf16")
    )
    assert bf16["loss"] == pytest.approx(fp32["loss"], rel=0.01)


@pytest.mark.parametrize("stage", marked(TRAININGS, ["sft", "ppo"]))
def test_every_stage_can_recompute_its_layers(ready, preferences, tmp_path, monkeypatch, stage):
    """Its feed-forward layers then run in the backward pass as often as in the forward pass."""
    calls, forward = {True: 0, False: 0}, LlamaMLP.forward

    def counted(self, states):
        if torch.is_grad_enabled():
            calls[torch._C._current_graph_task_id() != -1] += 1
        return forward(self, states)

    monkeypatch.setattr(LlamaMLP, "forward", counted)
    options = {**QUICK.get(stage, {}), **({"variance_every": 0} if stage == "reinforce" else {})}
    name, first = "loss/policy" if stage == "ppo" else "loss", []
    for on in (False, True):
        calls.update({True: 0, False: 0})
        TRAININGS[stage](ready, tmp_path / str(on), **options, training={"gradient_checkpointing": on})
        first.append(pd.read_csv(tmp_path / str(on) / "curve.csv")[name].iloc[0])
        assert calls[False] > 0
        assert calls[True] == (calls[False] if on else 0)
    assert first[1] == pytest.approx(first[0], rel=1e-3, abs=1e-6)

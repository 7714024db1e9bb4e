"""LoRA in every stage that can have it: what is trained, kept, shared and written."""

import copy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import dpo, grpo, ppo
from tasks.common import checkpoints, models
from tasks.language.training.trained_model import TrainedModel
from tests.tasks.language.trainings import FULL, TRAININGS
from tests.tasks.policies import marked

STAGES = [stage for stage in TRAININGS if stage != "pretrained"]
ALGORITHMS = {"dpo": dpo, "grpo": grpo, "ppo": ppo}
POLICIES = ("reinforce", "ppo", "grpo")
DROPPING = ("sft", "reward_model", "rejection_sft")
FEW = {"steps": 2, "evaluate_every": 0, "prompts_per_step": 2, "max_new_tokens": 4}
SHORT = {
    "sft": {"demonstrations": 16, "batch_size": 8},
    "dpo": {"epochs": 1, "prompts_per_batch": 20},
    **dict.fromkeys(POLICIES, FEW),
    "grpo": {**FEW, "updates": 1},
}
LIKELY = {"reward_model": {"kind": "log_probability", "likelihood": 1.0}}


def train(stage, home, out, training=None, short=True, **changes):
    """Run the stage with an adapter, with `changes` to it; for a step or a few where it is to be `short`."""
    adapter = {"rank": 2, "alpha": 8.0, "targets": "all-linear", "merge": True}
    adapter |= {"dropout": 0.0} if stage in DROPPING else {}
    options = {
        **FULL.get(stage, {}),
        **LIKELY.get(stage, {}),
        **(SHORT.get(stage, {}) if short else {}),
        "learning_rate": 0.01,
    }
    options |= {name: changes.pop(name) for name in ("demonstrations", "batch_size") if name in changes}
    return TRAININGS[stage](home, out, **options, training=training or {}, lora={**adapter, **changes})


@dataclass
class Adapted:
    """A training with an adapter: its folder, the models that its algorithm was given, their weights, and how often a
    model was read.
    """

    out: Path
    models: list[Any] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)  # of each weight in memory, by where it lies
    loads: int = 0


@pytest.fixture(scope="module")
def adapted(ready, preferences, tmp_path_factory):
    """`adapted(stage)`: a training with the adapter as it is above, done once."""

    @cache
    def once(stage):
        seen = Adapted(tmp_path_factory.mktemp(stage))
        load = models.load_model

        def loaded(*arguments):
            seen.loads += 1
            return load(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(models, "load_model", loaded)
            save_both_ways(patch, seen.out / "other")
            if stage in ALGORITHMS:
                patch.setattr(ALGORITHMS[stage], "fit", noting(ALGORITHMS[stage].fit, seen))
            train(stage, ready, seen.out)
        return seen

    return once


def save_both_ways(patch, other):
    """A model whose adapter is merged is written to `other` with its adapter beside it, and the other way round."""
    save = TrainedModel.save

    def both(self, tokenizer, out):
        another = copy.deepcopy(self)
        another.adapter = self.adapter.model_copy(update={"merge": not self.adapter.merge})
        save(self, tokenizer, out)
        save(another, tokenizer, other)

    patch.setattr(TrainedModel, "save", both)


def noting(fit, seen):
    def noted(*given, **named):
        for one in (*given, *named.values()):
            if hasattr(one, "parameters") and callable(getattr(one, "parameters", None)):
                seen.models.append(one)
                seen.sizes.update({p.data_ptr(): p.numel() for p in one.parameters()})
        return fit(*given, **named)

    return noted


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
@pytest.mark.parametrize("stage", marked(STAGES, ["dpo", "ppo"]))
def test_the_out_is_the_model_with_its_adapter_added_in(ready, adapted, stage):
    """It differs from the model before by matrices of the adapter's rank, and by those of its file; nothing else has
    moved.
    """
    out, before = adapted(stage).out / "model", AutoModelForCausalLM.from_pretrained(ready / "pretrained")
    merged = AutoModelForCausalLM.from_pretrained(out)
    assert not [name for name in load_file(out / "model.safetensors") if "lora" in name]
    for name, weight in before.state_dict().items():
        change = merged.state_dict()[name] - weight
        has_adapter = "_proj." in name
        assert (change.abs().max() > 1e-4) == has_adapter, name
        if has_adapter:
            assert torch.linalg.matrix_rank(change, rtol=1e-3) <= 2, name
    unmerged = PeftModel.from_pretrained(before, out / "adapter")
    tokens = torch.arange(12).view(2, 6)
    with torch.no_grad():
        torch.testing.assert_close(
            unmerged(input_ids=tokens).logits, merged(input_ids=tokens).logits, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("stage", marked(STAGES, ["sft"]))
def test_side_by_side_they_are_the_merged_model(ready, adapted, stage):
    """models.load_model, by which later stages load it, adds the adapter in."""
    out = adapted(stage).out
    one, two = (models.load_model(path) for path in (out / "model", out / "other"))
    for name, weight in one.state_dict().items():
        torch.testing.assert_close(two.state_dict()[name], weight, rtol=1e-5, atol=1e-6)
    files = {file.name for file in (out / "other").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "model.safetensors", "config.json"} <= files
    weights, before = (load_file(path / "model.safetensors") for path in (out / "other", ready / "pretrained"))
    assert weights.keys() == before.keys()
    assert all(torch.equal(weights[name], before[name]) for name in before)


@pytest.mark.parametrize("stage", marked(["sft", "dpo", "grpo"], ["sft"]))
def test_below_bfloat16_the_weights_are_not_rounded(ready, preferences, tmp_path, stage):
    """The adapter is added to the weights as they were loaded, although the model computed with rounded ones."""
    train(stage, ready, tmp_path, training={"precision": "bf16"})
    found, before = (load_file(path / "model.safetensors") for path in (tmp_path / "model", ready / "pretrained"))
    assert torch.equal(found["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    change = found["model.layers.0.mlp.up_proj.weight"] - before["model.layers.0.mlp.up_proj.weight"]
    assert torch.linalg.matrix_rank(change, rtol=1e-3) <= 2
    assert change.abs().max() > 1e-4
    assert not torch.equal(before["model.embed_tokens.weight"], before["model.embed_tokens.weight"].bfloat16().float())


class Killed(Exception):
    pass


@pytest.mark.parametrize("stage", marked(["sft", "dpo", "grpo", "ppo"], ["sft"]))
def test_a_killed_training_goes_on_to_the_same_bytes(ready, preferences, tmp_path, monkeypatch, stage):
    """The checkpoint holds the adapter alone of the model.

    Dropout in SFT draws from torch's generator, which is in it too.
    """
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    options = {"dropout": 0.3} if stage in DROPPING else {}
    options |= {"demonstrations": 16, "batch_size": 4} if stage == "sft" else {}
    contents = []
    for name, killed_at in (("whole", None), ("killed", 3 if stage != "ppo" else 9)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        if killed_at:
            step, left = Optimizer.step, iter(range(killed_at))

            def dying(self, step=step, left=left):
                if next(left, None) is None:
                    raise Killed
                return step(self)

            with monkeypatch.context() as patch:
                patch.setattr(Optimizer, "step", dying)
                with pytest.raises(Killed):
                    train(stage, ready, folder, short=False, **options)
            [file] = (folder / "mlruns/checkpoints").iterdir()
            kept = [key for key in load_file(file) if key.startswith(("model/", "policy/", "critic/"))]
            assert kept
            assert all(".lora_" in key or "/head." in key for key in kept)
        train(stage, ready, folder, short=False, **options)
        contents.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()})
    assert contents[0] == contents[1]


@pytest.mark.parametrize(("stage", "count"), [("dpo", 1), ("grpo", 2), ("ppo", 3)])
def test_one_model_is_in_memory(ready, adapted, stage, count):
    """Policy, reference and critic together have the policy's weights once, an adapter each for policy and critic, and
    a head.
    """
    seen = adapted(stage)
    assert seen.loads == 2, "one to train, one to be saved without its adapter"
    assert len(seen.models) == count
    names = load_file(seen.out / "model/adapter/adapter_model.safetensors")
    adapter, base = sum(map(torch.numel, names.values())), models.load_model(ready / "pretrained").num_parameters()
    head = 32 + 1 if stage == "ppo" else 0
    assert sum(seen.sizes.values()) == base + (2 if stage == "ppo" else 1) * adapter + head


def test_the_reference_is_the_policy_without_its_adapter(adapted):
    """In GRPO's first update there is no distance to it yet, and in later ones there is."""
    distance = pd.read_csv(adapted("grpo").out / "curve.csv")["kl"]
    assert distance.iloc[0] == pytest.approx(0, abs=1e-6)
    assert (distance.iloc[1:] > 1e-4).all()


KEYS = {"rank": 3, "alpha": 2.0, "targets": ["q_proj"], "dropout": 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_each_key_of_an_adapter_acts(ready, preferences, tmp_path, stage):
    train(stage, ready, tmp_path / "before")
    before = (tmp_path / "before/model/model.safetensors").read_bytes()
    for key, value in KEYS.items():
        if key != "dropout" or stage in DROPPING:
            train(stage, ready, tmp_path / key, **{key: value})
            assert (tmp_path / key / "model/model.safetensors").read_bytes() != before, key


def test_a_reward_model_with_a_head_trains_the_head_too(easy_sums, tmp_path, monkeypatch):
    from tasks.language.rewards import reward_model_files

    save_both_ways(monkeypatch, tmp_path / "other")
    adapter = {"rank": 2, "alpha": 8.0, "targets": "all-linear", "merge": True, "dropout": 0.0}
    metrics = TRAININGS["reward_model"](easy_sums, tmp_path, epochs=1, kind="head", likelihood=0.0, lora=adapter)
    assert metrics["accuracy"] > 0.8
    one, two = (reward_model_files.load_reward_model(tmp_path / name).state_dict() for name in ("model", "other"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-5, atol=1e-6)

"""Every training on several real processes against one: the same curve and model, and killed on any of them the same
bytes.
"""

import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from tests.tasks.language.test_kills import written
from tests.tasks.language.trainings import IN_RANKS, PRECISE, ROUNDED

ROOT = Path(__file__).parents[3]
UPDATES = {"grpo": 2, "reinforce": 5, "ppo": 4}  # of optimizers in a step, where they are more than one
# A metric is a sum in fp32 of up to some thousand terms of its own size: 2**-24 of it, times the root of their number,
# and what a few updates make of that. Measured: at most 3e-6.
CLOSE = 1e-5
# Adam divides a gradient by its own size, so a weight whose gradient is mere rounding moves by the learning rate either
# way.
# The keys' biases are such weights, whose true gradient is 0; of the others there are few. Measured: at most 4e-4.
MOVED = 1e-3


def train(home, folder, *words):
    """Fill `folder` with the trainings, by the number of processes that stands before them; returns what they said of
    checkpoints.
    """
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.tasks.language.training_in_ranks", home, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stderr.splitlines() if line.startswith("checkpoint mlruns")]


def without_keys_biases(weights):
    """GPT-2's weights, of whose biases of queries, keys and values the middle ones are left out."""
    for name, tensor in weights.items():
        if name.endswith("attn.c_attn.bias"):
            tensor.view(3, -1)[1] = 0
    return weights


def moved(before, after):
    return sum((after[name].double() - tensor.double()).square().sum() for name, tensor in before.items()).sqrt().item()


@pytest.mark.slow
def test_the_curve_and_the_model_are_those_of_one_process(with_dropout, tmp_path):
    """With dropout, batches that no number of processes divides, a part of a batch of one row, and steps of fewer
    prompts than processes.

    Three processes divide the model, so that the last of them has fewer rows of a weight than the others, or none.
    """
    runs, words = {1: "alone", 2: "two", 3: "sharded", 4: "four"}, []
    for count, out in runs.items():
        names = [*IN_RANKS, *(PRECISE if count in (1, 3) else ())]
        words += [count, *(f"{name}/{out}" for name in names)]
    train(with_dropout, tmp_path / "all", *words)
    start = without_keys_biases(load_file(with_dropout / "pretrained/model.safetensors"))
    for name in (*IN_RANKS, *PRECISE):
        alone, *several = (tmp_path / "all" / name / out for out in runs.values())
        expected = pd.read_csv(alone / "curve.csv")
        weights = without_keys_biases(load_file(alone / "model/model.safetensors"))
        for found in [out for out in several if name in IN_RANKS or out.name == "sharded"]:
            curve = pd.read_csv(found / "curve.csv")
            assert list(curve) == list(expected)
            # Before the first update both rewards of a pair are 0, and which is higher is rounding.
            if name.startswith("dpo"):
                curve.loc[0, "rewards/accuracies"] = expected.loc[0, "rewards/accuracies"]
            difference = ((curve - expected).abs() / (1 + expected.abs())).max()
            assert difference.max() < CLOSE, (found, difference.idxmax(), difference.max())
            metrics, wanted = (literal_eval((out / "metrics.txt").read_text()) for out in (found, alone))
            flat, flat_wanted = (pd.json_normalize(values).iloc[0] for values in (metrics, wanted))
            assert np.allclose(flat, flat_wanted, rtol=CLOSE, atol=CLOSE), name
            other = without_keys_biases(load_file(found / "model/model.safetensors"))
            before = start if weights.keys() == start.keys() else {key: 0 * tensor for key, tensor in weights.items()}
            assert moved(weights, other) < MOVED * moved(before, weights), found


@pytest.mark.slow
def test_a_divided_model_in_bf16_is_what_it_is_undivided(with_dropout, tmp_path):
    """Until a master falls within rounding of the border between two numbers of bf16: its weight then differs by a
    256th of itself.
    """
    train(with_dropout, tmp_path / "2", 2, *(f"{name}/{out}" for name in ROUNDED for out in ("a", "sharded")))
    for name in ROUNDED:
        one, other = (pd.read_csv(tmp_path / "2" / name / out / "curve.csv") for out in ("a", "sharded"))
        # The second is of masters that have been updated; an updated weight of a sampler may fall on either side of a
        # border.
        first = ((one - other).abs() / (1 + one.abs()))[: 1 if name == "grpo-sampler" else 2]
        assert first.max().max() < CLOSE, name
        whole, divided = (
            load_file(tmp_path / "2" / name / out / "model/model.safetensors") for out in ("a", "sharded")
        )
        assert whole.keys() == divided.keys()
        for key, tensor in whole.items():
            assert tensor.shape == divided[key].shape
            assert not tensor.any() or not torch.equal(divided[key], divided[key].bfloat16().float()), (name, key)


@pytest.mark.slow
def test_killed_on_any_process_and_resumed_it_is_the_same_to_the_bit(with_dropout, tmp_path):
    """After a kill with -9 the others stop by themselves; the same number of processes goes on from the checkpoint.

    The first process is killed where each has everything, the second where they divide something. Processes that divide
    the optimizer have the same bits, whether they were killed or not; those that divide the model have their own.
    """
    outs, expected = [], []
    for name in IN_RANKS:
        stage, updates = name.partition("-")[0], UPDATES.get(name, 1)
        outs += [f"{name}/whole", f"{name}/killed=0:{updates + 1}"]
        outs += [f"{name}/divided=1:{2 * updates}", f"{name}/sharded-whole", f"{name}/sharded=1:{2 * updates}"]
        line = f"checkpoint mlruns/checkpoints/{stage}.safetensors resumed after step "
        expected += [f"{line}{(updates + 1) // updates}", *[f"{line}2"] * 2]
    assert train(with_dropout, tmp_path / "2", 2, *outs) == expected
    for name in IN_RANKS:
        whole, *killed = (written(tmp_path / "2" / name / out) for out in ("whole", "killed", "divided"))
        assert {Path("model/model.safetensors"), Path("curve.csv"), Path("metrics.txt")} <= whole.keys()
        for found in killed:
            assert [file for file in whole if found.get(file) != whole[file]] == [], name
        whole, killed = (written(tmp_path / "2" / name / out) for out in ("sharded-whole", "sharded"))
        assert [file for file in whole if killed.get(file) != whole[file]] == [], name
    assert not list((tmp_path / "2/mlruns/checkpoints").iterdir())


@pytest.mark.slow
def test_a_checkpoint_of_another_number_of_processes_is_not_gone_on_from(with_dropout, tmp_path):
    """Two processes leave a checkpoint behind; one starts afresh, and says why."""
    train(with_dropout, tmp_path / "alone", 1, "sft/whole")
    said = train(with_dropout, tmp_path / "2", 2, "sft/a=1:2:1")
    assert len(said) == 1
    assert "number of processes); this one starts afresh" in said[0]
    assert written(tmp_path / "2/sft/a") == written(tmp_path / "alone/sft/whole")

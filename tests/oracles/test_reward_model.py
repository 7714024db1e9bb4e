"""The reward models' losses and gradients on a frozen batch against TRL's trainers.

Of pairs, margins and centering included, against RewardTrainer; of steps against what PRMTrainer said (prm.py).
"""

import json
from dataclasses import replace

import pytest
import torch

from tasks.algorithms.language import labelled_reward_model, reward_model
from tasks.algorithms.language.pairs import Pairs
from tests.oracles import prm
from tests.oracles.frozen import CHOSEN, COMPLETIONS, PAD, PROMPTS, REJECTED, Still, gradients
from tests.tasks.tiny import llama_scorer

pytestmark = pytest.mark.slow
MARGINS = (1 / 3, 2 / 3, 1.0, 1.5)
LEVELS = torch.tensor([3, 0, 1])


@pytest.mark.parametrize(("margins", "centering"), [((0.0,) * 4, 0.0), (MARGINS, 0.0), (MARGINS, 0.02)])
def test_loss_and_gradient(judge, tmp_path, margins, centering):
    model = llama_scorer(1, pad_token_id=PAD)
    trainer = judge.reward(model, tmp_path, center_rewards_coefficient=centering or None)
    expected = trainer(judge.scored_batch(PROMPTS, CHOSEN, REJECTED, [margins[level] for level in LEVELS]))
    pairs = Pairs(COMPLETIONS, torch.arange(6), torch.tensor([0, 2, 4]), torch.tensor([1, 3, 5]), torch.ones(3), LEVELS)
    row = next(reward_model.fit(model, [pairs], Still(), margins=margins, centering=centering, likelihood=0.0))
    judge.same((row["loss"], gradients(model)), expected)
    logged = trainer.logged()
    assert row["accuracy"] == pytest.approx(logged["accuracy"])
    assert row["margin"] == pytest.approx(logged["margin"], rel=1e-4)


def of_steps(ends=prm.ENDS, labels=prm.LABELS, weight=None):
    """One step of `fit`, summed up as the oracle's is."""
    model = llama_scorer(num_labels=3, pad_token_id=PAD)
    prm.sow(model)
    eye = torch.eye(3).tolist()
    batch = labelled_reward_model.label_steps(COMPLETIONS, ends, [[eye[label] for label in row] for row in labels])
    batch = batch if weight is None else replace(batch, weight=weight(batch.at))
    loss = next(labelled_reward_model.fit(model, [batch], Still()))["loss"]
    return prm.summed_up(loss, gradients(model))


def faults(ours, theirs):
    """What differs by more than rounding."""
    for name, norm in theirs["norms"].items():
        if ours["norms"][name] != pytest.approx(norm, rel=1e-3):
            yield name
    if ours["loss"] != pytest.approx(theirs["loss"], rel=1e-4):
        yield "loss"
    if not torch.allclose(torch.tensor(ours["head"]), torch.tensor(theirs["head"]), rtol=1e-3, atol=1e-5):
        yield "head"


def test_steps_as_prm_trainer():
    ours, theirs = of_steps(), json.loads(prm.FILE.read_text())
    assert ours["norms"].keys() == theirs["norms"].keys()
    assert max(theirs["norms"].values()) > 0.5
    assert list(faults(ours, theirs)) == []


@pytest.mark.parametrize(
    "mistaken",
    [
        {"labels": [[2 - label for label in row] for row in prm.LABELS]},  # good for bad
        {"ends": [[max(0, end - 1) if len(row) == 1 else end for end in row] for row in prm.ENDS]},  # before the end
        {
            "weight": lambda at: at / at.sum(1, keepdim=True) / len(at)
        },  # a response weighs the same however many steps it has
    ],
)
def test_known_mistakes_are_noticed(mistaken):
    assert {"loss", "head"} <= set(faults(of_steps(**mistaken), json.loads(prm.FILE.read_text())))

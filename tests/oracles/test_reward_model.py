"""The reward model's loss and gradient on a frozen batch, margin and centering included, against TRL's RewardTrainer."""

import pytest
import torch

from tasks.algorithms.language import reward_model
from tasks.algorithms.language.pairs import Pairs
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

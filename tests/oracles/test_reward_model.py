"""The reward model's loss and gradient on a frozen batch, margin and centering included, against TRL's RewardTrainer."""

import pytest
import torch

from tasks.algorithms.language import reward_model
from tasks.algorithms.language.pairs import Pairs
from tests.oracles.frozen import CHOSEN, COMPLETIONS, PAD, PROMPTS, REJECTED, Still, gradients
from tests.tasks.tiny import llama_scorer

pytestmark = pytest.mark.slow
STRONG = torch.tensor([True, False, True])


@pytest.mark.parametrize(("margin", "centering"), [(0.0, 0.0), (1.5, 0.0), (1.5, 0.02)])
def test_loss_and_gradient(judge, tmp_path, margin, centering):
    model = llama_scorer(1, pad_token_id=PAD)
    trainer = judge.reward(model, tmp_path, center_rewards_coefficient=centering or None)
    expected = trainer(judge.scored_batch(PROMPTS, CHOSEN, REJECTED, (margin * STRONG).tolist()))
    pairs = Pairs(COMPLETIONS, torch.arange(6), torch.tensor([0, 2, 4]), torch.tensor([1, 3, 5]), torch.ones(3), STRONG)
    row = next(reward_model.fit(model, [pairs], Still(), margin=margin, centering=centering, likelihood=0.0))
    judge.same((row["loss"], gradients(model)), expected)
    logged = trainer.logged()
    assert row["accuracy"] == pytest.approx(logged["accuracy"])
    assert row["margin"] == pytest.approx(logged["margin"], rel=1e-4)

"""DPO's losses and gradients on a frozen batch against TRL's trainers."""

import pytest
import torch

from tasks.algorithms.language import dpo
from tasks.algorithms.language.dpo import MarginLoss
from tasks.algorithms.language.pairs import NO_LEVEL, Pairs
from tests.oracles.frozen import CHOSEN, COMPLETIONS, PROMPTS, REJECTED, Still, gradients
from tests.tasks.tiny import llama

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # TRL needs it
]
PAIRS = Pairs(
    COMPLETIONS,
    torch.arange(6),
    torch.tensor([0, 2, 4]),
    torch.tensor([1, 3, 5]),
    torch.ones(3),
    torch.full((3,), NO_LEVEL),
)
BETA, SMOOTHING, GAMMA, LIKELIHOOD = 0.3, 0.15, 0.7, 0.5


def ours(objective, pairs=PAIRS):
    """Loss, gradient and the other metrics of one step of `fit`."""
    model = llama(1)
    reference = dpo.compute_reference_logps(llama(2), [COMPLETIONS]) if objective.needs_reference else None
    row = next(dpo.fit(model, [pairs], Still(), reference=reference, objective=objective))
    return row["loss"], gradients(model), row


def objective(loss, **changes):
    plain = {"beta": BETA, "label_smoothing": 0.0, "gamma": 0.0, "length_normalised": False, "nll": 0.0}
    return MarginLoss(loss, **{**plain, **changes})


# TRL's sigmoid ignores label smoothing. Its robust loss is ((1 - e) L(d) - e L(-d)) / (1 - 2e), L(d) being the sigmoid
# loss, so conservative DPO, (1 - e) L(d) + e L(-d), is this weighted sum of the two.
CONSERVATIVE = {
    "loss_type": ["sigmoid", "robust"],
    "loss_weights": [2 * (1 - SMOOTHING), -(1 - 2 * SMOOTHING)],
    "label_smoothing": SMOOTHING,
}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (objective("sigmoid"), {"loss_type": ["sigmoid"]}),
        (objective("sigmoid", label_smoothing=SMOOTHING), CONSERVATIVE),
        (objective("sigmoid", length_normalised=True), {"loss_type": ["sigmoid_norm"]}),
        (objective("ipo", length_normalised=True), {"loss_type": ["ipo"]}),
    ],
    ids=["sigmoid", "conservative", "length-normalised", "ipo"],
)
def test_loss_and_gradient(judge, tmp_path, mine, theirs):
    trainer = judge.dpo(llama(1), llama(2), tmp_path, beta=BETA, **theirs)
    expected = trainer(judge.preference_batch(PROMPTS, CHOSEN, REJECTED))
    loss, gradient, row = ours(mine)
    judge.same((loss, gradient), expected)
    logged = trainer.logged()
    for name in ("logps/chosen", "logps/rejected", "rewards/accuracies"):
        assert row[name] == pytest.approx(logged[name], rel=1e-4), name
    if not mine.length_normalised:  # TRL logs rewards of sums even if the loss uses means
        for name in ("rewards/chosen", "rewards/rejected", "rewards/margins"):
            assert row[name] == pytest.approx(logged[name], rel=1e-4), name


def test_likelihood_of_the_chosen(judge, tmp_path):
    """TRL's `sft` is a mean over the tokens of a batch, ours over its responses, so that TRL gets one pair at a time.

    All pairs at once differ: the chosen responses are 2, 4 and 2 tokens long.
    """
    trainer = judge.dpo(
        llama(1), llama(2), tmp_path, beta=BETA, loss_type=["sigmoid", "sft"], loss_weights=[1.0, LIKELIHOOD]
    )
    alone = [
        trainer(judge.preference_batch(*([part] for part in pair)))
        for pair in zip(PROMPTS, CHOSEN, REJECTED, strict=True)
    ]
    loss = sum(loss for loss, _ in alone) / 3
    gradient = {name: sum(gradient[name] for _, gradient in alone) / 3 for name in alone[0][1]}
    found, found_gradient, _ = ours(objective("sigmoid", nll=LIKELIHOOD))
    judge.same((found, found_gradient), (loss, gradient))
    together, _ = trainer(judge.preference_batch(PROMPTS, CHOSEN, REJECTED))
    assert abs(together - found) > 0.001


def test_simpo(judge, tmp_path):
    trainer = judge.simpo(llama(1), tmp_path, beta=BETA, simpo_gamma=GAMMA)
    expected = trainer(judge.labelled_batch(PROMPTS, CHOSEN, REJECTED))
    loss, gradient, row = ours(objective("simpo", gamma=GAMMA, length_normalised=True))
    judge.same((loss, gradient), expected)
    logged = trainer.logged()
    for name in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"):
        assert row[name] == pytest.approx(logged[name], rel=1e-4), name

"""A batch that is passed through a model in parts has the gradient, the loss and the metrics of one pass."""

from dataclasses import replace

import pytest
import torch

from tasks.algorithms.language import dpo, labelled_reward_model, reward_model, sft
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.pairs import TIED, Pairs
from tasks.algorithms.language.sequences import make_sequence_batch
from tests.tasks.tiny import llama, llama_scorer

# Five demonstrations and nine answers to four prompts, of unequal lengths, so that no mean of means is the mean.
DEMONSTRATIONS = make_sequence_batch(
    [[3], [4, 5, 6], [7], [8, 9], [3, 3]], [[1, 2], [1] * 9 + [2], [5, 2], [2], [6, 7, 8, 2]], pad=2
)
OWNER = [0, 0, 0, 1, 1, 2, 2, 3, 3]
RESPONSES = make_completions(
    [[3, 4], [5], [6, 7, 8], [9]],
    OWNER,
    [[1, 2], [2], [4, 5, 6, 2], [7, 2], [8, 8, 8, 8, 8, 2], [2], [3, 2], [9, 1, 1, 2], [5, 2]],
    pad=2,
)
CHOSEN, REJECTED = [0, 0, 1, 3, 6, 7], [1, 2, 2, 4, 5, 8]
PAIRS = Pairs(
    RESPONSES,
    torch.arange(9),
    torch.tensor(CHOSEN),
    torch.tensor(REJECTED),
    torch.tensor([1 / 3, 1 / 3, 1 / 3, 1.0, 0.5, 2.0]),
    torch.tensor([2, 0, 3, 1, TIED, 0]),
)
MARGINS = (0.25, 0.5, 1.0, 2.0)
ANSWERS = labelled_reward_model.label_outcomes(
    RESPONSES, [True, False, True, False, True, False, True, True, False], "all"
)
STEPS = labelled_reward_model.label_steps(
    RESPONSES,
    [[1], [0], [0, 1, 3], [1], [2, 5], [0], [1], [1, 3], [0, 1]],
    [[(0, 0, 1)], [(1, 0, 0)], [(0, 0, 1)] * 3, [(0, 1, 0)], [(0, 0, 1), (0.25, 0, 0.75)], [(1, 0, 0)], [(0, 0, 1)],
     [(0, 0, 1), (1, 0, 0)], [(0, 1, 0), (0, 0, 1)]],
)  # fmt: skip
NOT_BAD = replace(STEPS, target=1 - STEPS.target[..., :1])  # as log-probabilities say it
OBJECTIVE = dpo.MarginLoss("sigmoid", 0.1, label_smoothing=0.1, gamma=0.0, length_normalised=False, nll=0.0)


class Noting:
    """An optimizer that notes the gradient and leaves the weights."""

    learning_rate = 0.0

    def __init__(self, model):
        self.model = model

    def step(self):
        self.gradient = torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None])
        return self.gradient.norm().item()


def sft_step(parts):
    model = llama()
    optimizer = Noting(model)
    return list(sft.fit(model, [DEMONSTRATIONS], optimizer, parts)), optimizer.gradient


def dpo_step(parts):
    model = llama(1)
    optimizer, known = Noting(model), dpo.compute_reference_logps(llama(2), [RESPONSES])
    rows = dpo.fit(model, [PAIRS], optimizer, reference=known, objective=OBJECTIVE, accumulate=parts)
    return list(rows), optimizer.gradient


def head_step(parts):
    model = llama_scorer()
    optimizer = Noting(model)
    rows = reward_model.fit(model, [PAIRS], optimizer, margins=MARGINS, centering=0.3, likelihood=0.0, accumulate=parts)
    return list(rows), optimizer.gradient


def likelihood_step(parts):
    model = llama()
    model.config.reward_beta = 0.5
    optimizer = Noting(model)
    rows = reward_model.fit(
        model, [PAIRS], optimizer, margins=(0, 0, 0, 0), centering=0.0, likelihood=0.7, accumulate=parts
    )
    return list(rows), optimizer.gradient


def labels_step(parts, batch):
    model = llama_scorer(num_labels=batch.target.shape[2])
    optimizer = Noting(model)
    return list(labelled_reward_model.fit(model, [batch], optimizer, parts)), optimizer.gradient


def outcome_step(parts):
    return labels_step(parts, ANSWERS)


def process_step(parts):
    return labels_step(parts, STEPS)


def not_bad_step(parts):
    model = llama()
    model.config.reward_beta, model.config.reward_threshold = 0.5, 2.0
    optimizer = Noting(model)
    return list(labelled_reward_model.fit(model, [NOT_BAD], optimizer, parts, likelihood=0.7)), optimizer.gradient


STEPS_OF_ALL = (sft_step, dpo_step, head_step, likelihood_step, outcome_step, process_step, not_bad_step)


@pytest.mark.parametrize("parts", [3, 100])
@pytest.mark.parametrize("step", STEPS_OF_ALL)
def test_the_parts_add_up_to_the_batch(step, parts):
    """By torch's own gradient of one pass. Each part is smaller: a part that read all would make the sum too large."""
    ([whole], gradient), ([cut], summed) = step(1), step(parts)
    torch.testing.assert_close(summed, gradient, rtol=1e-4, atol=1e-6)
    assert cut == pytest.approx(whole, rel=1e-4, abs=1e-6)


def test_a_mean_of_means_would_be_another_gradient():
    model = llama().train()
    for part in DEMONSTRATIONS.parts(5):
        (sft.cross_entropy_and_accuracy(model, part)[0] / 5).backward()
    wrong = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert (wrong - sft_step(1)[1]).norm() > 0.1 * wrong.norm()


def test_the_parts_are_all_rows_and_all_pairs_once():
    tokens = [
        row[kept].tolist()
        for part in DEMONSTRATIONS.parts(3)
        for row, kept in zip(part.tokens, part.attention, strict=True)
    ]
    assert tokens == [
        row[kept].tolist() for row, kept in zip(DEMONSTRATIONS.tokens, DEMONSTRATIONS.attention, strict=True)
    ]
    assert [len(part.tokens) for part in DEMONSTRATIONS.parts(3)] == [2, 2, 1]
    assert [part.tokens.shape[1] for part in DEMONSTRATIONS.parts(3)] == [13, 3, 6], "padded no further than needed"
    parts = list(PAIRS.parts(2))
    assert [part.index.tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6, 7, 8]], "two prompts each"
    found = [
        (part.index[row].tolist(), part.index[other].tolist())
        for part in parts
        for row, other in zip(part.chosen, part.rejected, strict=True)
    ]
    assert found == list(zip(CHOSEN, REJECTED, strict=True))
    assert torch.cat([part.weight for part in parts]).tolist() == PAIRS.weight.tolist()
    assert torch.cat([part.level for part in parts]).tolist() == PAIRS.level.tolist()


def test_a_part_without_trained_tokens_adds_nothing():
    """A row of one token has none to predict; its mean would be nan."""
    batch = make_sequence_batch([[], [3]], [[4], [5, 2]], pad=2)
    model = llama()
    loss, _ = sft.accumulate_gradients(model, batch, 2)
    assert loss == pytest.approx(sft.cross_entropy_and_accuracy(model, batch)[0].item(), rel=1e-5)
    assert all(p.grad.isfinite().all() for p in model.parameters())

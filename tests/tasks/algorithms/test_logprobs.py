from math import log

import pytest
import torch

from tasks.algorithms.logprobs import batches_per_run, make_batch, response_logps, shuffled, token_logps
from tests.tasks.tiny import ARCHITECTURES, BIGRAMS, END, Bigrams

# Prompt 0 1, response 1 end; prompt 1, response 0 0 (cut off). Padding is the end token.
BATCH = make_batch([[0, 1], [1]], [[1, END], [0, 0]], pad=END)
BY_HAND = [[0.0, log(0.6), log(0.3)], [log(0.1), log(0.5), 0.0]]


def test_masks_come_from_lengths():
    assert BATCH.tokens.tolist() == [[0, 1, 1, END], [1, 0, 0, END]]
    assert BATCH.attention.tolist() == [[True, True, True, True], [True, True, True, False]]
    assert BATCH.response.tolist() == [[False, False, True, True], [False, True, True, False]]


def test_token_logps_by_hand():
    logps = token_logps(Bigrams(BIGRAMS), BATCH)
    torch.testing.assert_close(logps, torch.tensor(BY_HAND))
    sums = response_logps(Bigrams(BIGRAMS), BATCH)
    torch.testing.assert_close(sums, torch.tensor([log(0.6 * 0.3), log(0.1 * 0.5)]))


def wrong(shift=1, response=BATCH.response, reduce=torch.sum):
    """What code with one of the usual mistakes computes."""
    every = Bigrams(BIGRAMS)(BATCH.tokens, None, None).logits.log_softmax(-1)
    picked = every[:, : 4 - shift].gather(2, BATCH.tokens[:, shift:, None]).squeeze(2)
    mask = response[:, shift:]
    return torch.stack([reduce(row[kept]) for row, kept in zip(picked, mask, strict=True)])


@pytest.mark.parametrize(
    "mistake",
    [
        {"shift": 0},
        {"response": BATCH.response & (BATCH.tokens != END)},  # padding taken for the end token
        {"response": BATCH.attention},  # the prompt as well
        {"response": ~BATCH.attention | BATCH.response},  # the padding as well
        {"reduce": torch.mean},
    ],
)
def test_known_mistakes_give_another_sum(mistake):
    ours = response_logps(Bigrams(BIGRAMS), BATCH)
    torch.testing.assert_close(wrong(), ours)
    assert (wrong(**mistake) - ours).abs().max() > 0.1


def test_temperature_divides_the_logits():
    """At temperature 1/2 probabilities are squared and normalised again: 0.6 -> 0.36 / (0.01 + 0.36 + 0.09)."""
    logps = token_logps(Bigrams(BIGRAMS), BATCH, temperature=0.5)
    torch.testing.assert_close(logps[0, 1].item(), log(0.36 / 0.46))
    assert logps[0, 1].item() != pytest.approx(log(0.6) / 0.5), "dividing log-probabilities forgets to normalise"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_changes_neither_value_nor_gradient(architecture):
    model = ARCHITECTURES[architecture]()
    prompts, responses = [[3, 4, 5], [6]], [[7, 8, 2], [9, 2]]
    narrow = make_batch(prompts, responses, pad=2)
    columns = torch.full((2, 5), 2), torch.zeros(2, 5, dtype=torch.bool)
    wide = type(narrow)(
        torch.cat([narrow.tokens, columns[0]], 1),
        torch.cat([narrow.attention, columns[1]], 1),
        torch.cat([narrow.response, columns[1]], 1),
    )
    gradients = []
    for batch in (narrow, wide):
        values = response_logps(model, batch)
        model.zero_grad()
        values.sum().backward()
        gradients.append((values.detach(), [p.grad.clone() for p in model.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_batch_is_its_rows_one_by_one(architecture):
    model = ARCHITECTURES[architecture]()
    prompts, responses = [[3, 4, 5], [6], [7, 8]], [[7, 8, 2], [9, 2], [10, 11, 12, 13, 2]]
    with torch.no_grad():
        together = response_logps(model, make_batch(prompts, responses, pad=0))
        alone = [response_logps(model, make_batch([p], [r], pad=0)) for p, r in zip(prompts, responses, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_shuffled_gives_every_index_once_an_epoch():
    batches = list(shuffled(10, 4, 3, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    assert len(batches) == batches_per_run(10, 4, 3)
    epochs = [[index for batch in batches[at : at + 3] for index in batch] for at in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3, "a new order each epoch"
    assert batches == list(shuffled(10, 4, 3, torch.Generator().manual_seed(0)))
    assert batches != list(shuffled(10, 4, 3, torch.Generator().manual_seed(1)))

from math import log

import pytest
import torch

from tasks.algorithms.language.completions import (
    Completions,
    compute_response_logps,
    compute_response_states,
    compute_token_logps,
    make_completions,
)
from tests.tasks.tiny import ARCHITECTURES, BIGRAMS, END, Bigrams

# Prompt 0 1, responses 1 end and 1 1 end; prompt 1, response 0 0 (cut off). Padding is the end token.
BATCH = make_completions([[0, 1], [1]], [0, 0, 1], [[1, END], [1, 1, END], [0, 0]], pad=END)
BY_HAND = [[log(0.6), log(0.3), 0.0], [log(0.6), log(0.6), log(0.3)], [log(0.1), log(0.5), 0.0]]


def test_masks_come_from_lengths():
    assert BATCH.prompts.tolist() == [[0, 1], [END, 1]]
    assert BATCH.prompt_mask.tolist() == [[True, True], [False, True]]
    assert BATCH.tokens.tolist() == [[1, END, END], [1, 1, END], [0, 0, END]]
    assert BATCH.mask.tolist() == [[True, True, False], [True, True, True], [True, True, False]]


def test_token_logps_by_hand():
    logps = compute_token_logps(Bigrams(BIGRAMS), BATCH)
    torch.testing.assert_close(logps, torch.tensor(BY_HAND))
    sums = compute_response_logps(Bigrams(BIGRAMS), BATCH)
    torch.testing.assert_close(sums, torch.tensor([log(0.6 * 0.3), log(0.6 * 0.6 * 0.3), log(0.1 * 0.5)]))


def wrong(owner=BATCH.owner, mask=BATCH.mask, ahead=1, reduce=torch.sum):
    """The results of code with common mistakes."""
    asked = BATCH.prompts[owner]
    whole = torch.cat([asked, BATCH.tokens], dim=1)
    every = Bigrams(BIGRAMS)(whole).logits.log_softmax(-1)
    width = asked.shape[1]
    before = every[:, width - ahead : width - ahead + BATCH.tokens.shape[1]]
    picked = before.gather(2, BATCH.tokens[:, :, None]).squeeze(2)
    return torch.stack([reduce(row[kept]) for row, kept in zip(picked, mask, strict=True)])


@pytest.mark.parametrize(
    "mistake",
    [
        {"ahead": 0},  # a token predicts itself
        {"mask": BATCH.mask & (BATCH.tokens != END)},  # padding taken for the end token
        {"mask": torch.ones_like(BATCH.mask)},  # the padding as well
        {"reduce": torch.mean},
        {"owner": torch.tensor([0, 0, 0]), "ahead": 2},  # another prompt's cache, one token off
    ],
)
def test_known_mistakes_give_another_sum(mistake):
    ours = compute_response_logps(Bigrams(BIGRAMS), BATCH)
    torch.testing.assert_close(wrong(), ours)
    assert (wrong(**mistake) - ours).abs().max() > 0.1


def test_temperature_divides_the_logits():
    """At temperature 1/2 probabilities are squared and normalised again: 0.6 -> 0.36 / (0.01 + 0.36 + 0.09)."""
    logps = compute_token_logps(Bigrams(BIGRAMS), BATCH, temperature=0.5)
    torch.testing.assert_close(logps[0, 0].item(), log(0.36 / 0.46))
    assert logps[0, 0].item() != pytest.approx(log(0.6) / 0.5), "dividing log-probabilities forgets to normalise"


PROMPTS, OWNER = [[3, 4, 5], [6], [7, 8]], [0, 0, 1, 2, 2, 2]
RESPONSES = [[7, 8, 2], [9, 2], [10, 11, 12, 13, 2], [1], [2, 2], [4, 3, 2]]


def alone(model, prompt, response):
    """Log-probabilities of one sequence without padding, cache or sharing."""
    logits = model(input_ids=torch.tensor([prompt + response])).logits[0]
    return logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(response)[:, None]).squeeze(1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sharing_a_prompt_changes_neither_value_nor_gradient(architecture):
    """Compared with whole sequences one by one; every response has its own weight in the loss."""
    model = ARCHITECTURES[architecture]()
    weight = torch.arange(1.0, 7.0)
    found = []
    for compute in (
        lambda: compute_response_logps(model, make_completions(PROMPTS, OWNER, RESPONSES, pad=2)),
        lambda: torch.stack([alone(model, PROMPTS[o], r).sum() for o, r in zip(OWNER, RESPONSES, strict=True)]),
    ):
        model.zero_grad()
        values = compute()
        (weight * values).sum().backward()
        found.append((values.detach(), [p.grad.clone() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_states_stand_before_each_token_and_after_the_last(architecture):
    body = ARCHITECTURES[architecture]().base_model
    hidden = compute_response_states(body, make_completions(PROMPTS, OWNER, RESPONSES, pad=2))
    assert hidden.shape[:2] == (6, 6)
    for row, (owner, response) in enumerate(zip(OWNER, RESPONSES, strict=True)):
        prompt = PROMPTS[owner]
        whole = body(input_ids=torch.tensor([prompt + response])).last_hidden_state[0]
        ours = hidden[row, : len(response) + 1]
        torch.testing.assert_close(ours, whole[len(prompt) - 1 :], rtol=1e-4, atol=1e-5)


def test_rows_are_those_responses_with_their_prompts_only():
    batch = make_completions(PROMPTS, OWNER, RESPONSES, pad=2)
    part = batch.rows(torch.tensor([4, 1]))
    assert part.prompts.tolist() == [[3, 4, 5], [2, 7, 8]]
    assert part.prompt_mask.tolist() == [[True, True, True], [False, True, True]]
    assert part.owner.tolist() == [1, 0]
    assert part.tokens.tolist() == [[2, 2], [9, 2]]
    chosen = torch.zeros(6, dtype=torch.bool)
    chosen[2] = True
    single = batch.rows(chosen)
    assert (single.prompts.tolist(), single.tokens.tolist()) == ([[6]], [RESPONSES[2]])
    assert isinstance(single, Completions)
    assert len(single) == 1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_part_has_the_values_of_the_whole(architecture):
    model = ARCHITECTURES[architecture]()
    batch = make_completions(PROMPTS, OWNER, RESPONSES, pad=0)
    with torch.no_grad():
        whole = compute_response_logps(model, batch)
        for rows in ([5, 0], [2], [3, 4, 1, 0]):
            part = compute_response_logps(model, batch.rows(torch.tensor(rows)))
            torch.testing.assert_close(part, whole[rows], rtol=1e-4, atol=1e-5)

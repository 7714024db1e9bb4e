from itertools import islice

import pytest
import torch
from torch.nn import functional

from tasks.algorithms.offline import text_pretraining
from tasks.algorithms.offline.adam import AdamW
from tasks.algorithms.offline.networks.transformer import Transformer


def test_each_token_is_predicted_from_those_before_it():
    torch.manual_seed(0)
    words = text_pretraining.Text(torch.eye(3), torch.zeros(8, 3), torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2]]))
    rows = torch.tensor([[0, 1, 1, 2], [2, 2, 0, 0]])
    # A trunk that passes vectors on: the logits are 2 for the same token again, 0 for the others.
    again, other = 2 - torch.tensor([2.0, 0, 0]).logsumexp(0), -torch.tensor([2.0, 0, 0]).logsumexp(0)
    expected = -(2 * other + again + again + other + again) / 6
    assert words.loss(lambda embeddings: embeddings, rows).item() == pytest.approx(expected.item())
    unshifted = functional.cross_entropy(2 * functional.one_hot(rows, 3).float().flatten(0, 1), rows.flatten())
    assert unshifted.item() < 0.3 < expected.item()  # the known mistake: predicting the token that is seen


def test_each_token_is_seen_with_the_embedding_of_its_position():
    """Positions point to token 2, 1, 0 by turns, more strongly than the tokens seen point to themselves."""
    words = text_pretraining.Text(torch.eye(3), 5 * torch.eye(3).flip(0), 2 * torch.eye(3))
    loss = words.loss(lambda embeddings: embeddings, torch.tensor([[1, 2, 1, 0]]))
    logits = 2 * torch.tensor([[0.0, 1.0, 5.0], [0.0, 5.0, 1.0], [5.0, 1.0, 0.0]])
    assert loss.item() == pytest.approx(functional.cross_entropy(logits, torch.tensor([2, 1, 0])).item())


def test_a_head_of_its_own_is_one_only_where_it_was_given():
    assert len(list(text_pretraining.make_text_model(5, 4, 3).parameters())) == 2
    assert len(list(text_pretraining.Text(torch.ones(5, 4), torch.ones(3, 4), torch.ones(5, 4)).parameters())) == 3


def test_a_chain_steps_by_its_transition_matrix():
    rows = next(text_pretraining.iterate_markov_chains(3, 4000, 6, torch.Generator().manual_seed(0)))
    transitions = torch.softmax(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    counts = torch.zeros(3, 3).index_put_((rows[:, :-1].flatten(), rows[:, 1:].flatten()), torch.ones(20_000), True)
    assert torch.allclose(counts / counts.sum(1, keepdim=True), transitions, atol=0.03)


def test_cuttings_are_stretches_of_the_stream():
    rows = next(text_pretraining.iterate_random_text_rows(torch.arange(10), 500, 4, torch.Generator().manual_seed(0)))
    assert (rows.diff(dim=1) == 1).all()
    assert set(rows[:, 0].tolist()) == set(range(7))  # the last place where four tokens are left, too


def test_a_trunk_learns_a_chain_beyond_its_frequencies():
    torch.manual_seed(0)
    trunk, words = Transformer(32, 1, 1, 0.0), text_pretraining.make_text_model(8, 32, 16)
    optimizer = AdamW(
        [*trunk.parameters(), *words.parameters()], 0.02, clip=1.0, weight_decay=0.0, warmup=0, steps=60, last=0.1
    )
    chain = text_pretraining.iterate_markov_chains(8, 32, 16, torch.Generator().manual_seed(0))
    for rows in islice(chain, 60):
        optimizer.step(words.loss(trunk, rows))
    held_out = next(chain)
    frequencies = torch.bincount(held_out.flatten(), minlength=8) / held_out.numel()
    unigram = -(frequencies * frequencies.log()).sum().item()
    with torch.no_grad():
        assert words.loss(trunk, held_out).item() < unigram - 0.1

"""TRPO's step against the natural gradient worked out in full."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tasks.algorithms.agents.trust_region import TrustRegion, conjugate_gradients, take_trust_region_step

SETTINGS = TrustRegion(radius=0.001, iterations=50, damping=0.0, halvings=5)


@given(st.integers(1, 8), st.integers(0, 99))
def test_conjugate_gradients_solve_what_is_solved_directly(size, seed):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    matrix, right = root @ root.T + torch.eye(size), torch.randn(size, generator=generator, dtype=torch.float64)
    found = conjugate_gradients(lambda v: matrix @ v, right, 10 * size)
    assert torch.allclose(found, torch.linalg.solve(matrix, right), atol=1e-6)


def of_a_softmax(logits, advantages):
    """A policy of one state: its surrogate and its divergence from what it was."""
    old = logits.detach().log_softmax(0)

    def surrogate():
        return (logits.log_softmax(0).exp() * advantages).sum()

    def divergence():
        return (old.exp() * (old - logits.log_softmax(0))).sum()

    return surrogate, divergence


def test_the_step_is_the_natural_gradient_at_the_bound():
    logits = nn.Parameter(torch.tensor([0.3, -0.5, 1.0], dtype=torch.float64))
    advantages = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)
    before = logits.detach().clone()
    p = before.softmax(0)
    fisher, gradient = torch.diag(p) - torch.outer(p, p), p * (advantages - p @ advantages)
    natural = torch.linalg.pinv(fisher) @ gradient
    wanted = natural * (2 * SETTINGS.radius / (natural @ fisher @ natural)).sqrt()
    found = take_trust_region_step([logits], *of_a_softmax(logits, advantages), SETTINGS)
    assert found.share in (1.0, 0.5), "near the bound the true divergence may be a little above its model"
    moved = logits.detach() - before
    assert torch.allclose(moved - moved.mean(), found.share * (wanted - wanted.mean()), rtol=1e-3, atol=1e-6)
    assert 0 < found.kl <= SETTINGS.radius
    assert found.gain > 0


def test_a_step_that_cannot_gain_leaves_the_policy_as_it_was():
    logits = nn.Parameter(torch.tensor([0.3, -0.5], dtype=torch.float64))
    before = logits.detach().clone()
    flat, divergence = of_a_softmax(logits, torch.ones(2, dtype=torch.float64))
    found = take_trust_region_step(
        [logits], lambda: flat() - 10 * divergence().detach().clamp(min=0).sqrt(), divergence, SETTINGS
    )
    assert found.share == 0.0
    assert torch.equal(logits.detach(), before)


def test_a_step_beyond_the_bound_is_halved_until_it_keeps_to_it():
    """The surrogate falls beyond a quarter of the step: two halvings are needed, and one leaves the policy as it
    was.
    """
    for halvings, share in ((1, 0.0), (2, 0.25), (5, 0.25)):
        place = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        start = place.detach().clone()

        def surrogate(place=place):
            return place.sum() - 100 * (place - 0.03).clamp(min=0).sum()

        def divergence(place=place, start=start):
            return (place - start).square().sum() / 2

        found = take_trust_region_step([place], surrogate, divergence, TrustRegion(0.005, 5, 0.0, halvings))
        assert found.share == share
        assert place.item() == pytest.approx(0.1 * share)

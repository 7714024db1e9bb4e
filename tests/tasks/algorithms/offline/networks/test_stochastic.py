from math import exp, log, pi

import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from tasks.algorithms.offline.networks.stochastic import Categorical, Gaussian, SquashedGaussian
from tasks.algorithms.offline.transition_tensors import Spaces

CONTINUOUS = Spaces(3, 2, discrete=False)
SEEN = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.5, 0.3]])


def constant(policy, *outputs):
    """The policy with these raw outputs in every state."""
    with torch.no_grad():
        for parameter in policy.layers.parameters():
            parameter.zero_()
        policy.layers[-1].bias.copy_(torch.tensor(outputs))
    return policy


def squashed(*outputs):
    return constant(SquashedGaussian(Spaces(1, len(outputs) // 2, False), []), *outputs)


def test_log_likelihood_and_divergence_of_categoricals_by_hand():
    spaces = Spaces(1, 2, discrete=True)
    one, other = constant(Categorical(spaces, []), log(3), 0.0), constant(Categorical(spaces, []), 5.0, 5.0)
    seen = torch.zeros(2, 1)
    assert one.log_likelihood(seen, torch.tensor([0, 1])).tolist() == pytest.approx([log(3 / 4), log(1 / 4)])
    there, back = 3 / 4 * log(3 / 2) + 1 / 4 * log(1 / 2), (log(2 / 3) + log(2)) / 2
    assert one.divergence(other, seen).tolist() == pytest.approx([there] * 2)
    assert other.divergence(one, seen).tolist() == pytest.approx([back] * 2)
    assert abs(there - back) > 0.01  # the direction matters


def test_the_gaussian_has_torchs_density_which_is_finite_at_the_edge_of_the_box():
    torch.manual_seed(0)
    policy = Gaussian(CONTINUOUS, [4])
    actions = torch.tensor([[1.0, -1.0], [0.3, 0.0]])
    expected = Independent(Normal(policy(SEEN), policy.log_deviation.exp()), 1).log_prob(actions)
    torch.testing.assert_close(policy.log_likelihood(SEEN, actions), expected)
    assert policy(SEEN).abs().max() < 1


def test_the_gaussians_deviation_is_learnt():
    policy = constant(Gaussian(Spaces(1, 1, False), []), 0.0)
    optimizer = torch.optim.Adam(policy.parameters(), 0.05)
    actions = torch.tensor([[0.3], [-0.3]])
    for _ in range(200):
        optimizer.zero_grad()
        (-policy.log_likelihood(torch.zeros(2, 1), actions).mean()).backward()
        optimizer.step()
    assert policy.log_deviation.exp().item() == pytest.approx(0.3, rel=0.02)


def test_the_squashed_density_integrates_to_1():
    policy = squashed(0.4, log(0.8))
    grid = torch.linspace(-0.999, 0.999, 20_001).unsqueeze(1)
    density = policy.log_likelihood(torch.zeros(len(grid), 1), grid).exp()
    assert torch.trapezoid(density, grid.squeeze(1)).item() == pytest.approx(1, abs=2e-3)
    mean, log_deviation = policy.compute_gaussian_parameters(torch.zeros(1, 1))
    uncorrected = Normal(mean, log_deviation.exp()).log_prob(grid.atanh()).exp().squeeze(1)
    assert torch.trapezoid(uncorrected, grid.squeeze(1)).item() < 0.8  # without the tanh's slope


def test_the_squashed_gaussian_agrees_with_torchs_and_knows_the_density_of_its_samples():
    torch.manual_seed(0)
    policy = SquashedGaussian(CONTINUOUS, [4])
    actions, densities = policy.sample(SEEN, 5, torch.Generator().manual_seed(0))
    assert actions.shape == (5, 2, 2)
    assert densities.shape == (5, 2)
    mean, log_deviation = policy.compute_gaussian_parameters(SEEN)
    torchs = TransformedDistribution(Independent(Normal(mean, log_deviation.exp()), 1), [TanhTransform()])
    torch.testing.assert_close(densities, torchs.log_prob(actions), rtol=1e-4, atol=1e-4)
    for action, density in zip(actions, densities, strict=True):
        torch.testing.assert_close(policy.log_likelihood(SEEN, action), density, rtol=1e-4, atol=1e-4)


def test_densities_far_out_and_at_the_edge_of_the_box_are_finite():
    policy = squashed(30.0, 0.0)
    actions, densities = policy.sample(torch.zeros(1, 1), 100, torch.Generator().manual_seed(0))
    assert actions.max() == 1  # rounded
    # log N(u) - log(1 - tanh^2), the second being 2 (log 2 - u) + O(e^-2u) with u near 30.
    assert densities.mean().item() == pytest.approx(-log(2 * pi) / 2 - 0.5 - 2 * log(2) + 60, abs=1)
    edges = policy.log_likelihood(torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]]))
    assert edges.isfinite().all()


def test_samples_follow_the_mean_and_the_deviation_with_gradient():
    policy = squashed(0.2, log(0.1))
    actions, _ = policy.sample(torch.zeros(1, 1), 4000, torch.Generator().manual_seed(0))
    assert actions.atanh().mean().item() == pytest.approx(0.2, abs=0.01)
    assert actions.atanh().std().item() == pytest.approx(0.1, abs=0.01)
    actions.mean().backward()
    slope = policy.layers[-1].bias.grad[0].item()
    assert slope == pytest.approx(1 - 0.2**2, abs=0.02)  # d tanh(u) / du at 0.2


def test_the_divergence_of_squashed_gaussians_is_exact():
    one, other = squashed(0.3, -0.2, log(0.5), log(1.5)), squashed(-0.4, 0.1, log(0.9), log(0.7))
    seen = torch.zeros(1, 1)
    by_hand = log(0.9 / 0.5) + (0.25 + 0.49) / (2 * 0.81) - 0.5 + log(0.7 / 1.5) + (2.25 + 0.09) / (2 * 0.49) - 0.5
    assert one.divergence(other, seen).item() == pytest.approx(by_hand, rel=1e-5)
    actions, densities = one.sample(seen, 40_000, torch.Generator().manual_seed(0))
    inside = (actions.abs() < 0.999).all(-1).squeeze(1)
    ratio = densities.squeeze(1) - other.log_likelihood(seen, actions.squeeze(1))
    assert ratio[inside].mean().item() == pytest.approx(by_hand, rel=0.1)
    assert one.divergence(one, seen).item() == pytest.approx(0, abs=1e-6)


def test_it_plays_the_mean_not_the_deviation():
    assert squashed(0.5, -0.3, 1.0, 1.0).act(torch.zeros(3, 1))[1].tolist() == pytest.approx(
        [(exp(1) - 1) / (exp(1) + 1), -(exp(0.6) - 1) / (exp(0.6) + 1)]
    )


def test_random_actions_are_the_policy_s():
    """Drawn often in one state: shares as the softmax says; mean and deviation as the Gaussian says, within the box."""
    generator, seen = torch.Generator().manual_seed(0), torch.ones(2)
    torch.manual_seed(0)
    discrete = Categorical(Spaces(2, 3, True), [4])
    drawn = torch.stack([discrete.drawn(seen, generator) for _ in range(1500)])
    torch.testing.assert_close(
        torch.bincount(drawn, minlength=3) / 1500, discrete(seen).softmax(-1).detach(), rtol=0, atol=0.03
    )
    gaussian = constant(Gaussian(Spaces(2, 1, False), [4]), 0.0)
    drawn = torch.stack([gaussian.drawn(seen, generator) for _ in range(1500)])
    assert drawn.mean().item() == pytest.approx(gaussian(seen).item(), abs=0.02)
    assert drawn.std().item() == pytest.approx(gaussian.log_deviation.exp().item(), abs=0.03)
    with torch.no_grad():
        gaussian.log_deviation.fill_(2.0)
    assert torch.stack([gaussian.drawn(seen, generator) for _ in range(200)]).abs().max() == 1

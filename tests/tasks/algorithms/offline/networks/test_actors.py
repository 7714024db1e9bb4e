import pytest
import torch
from torch.distributions import Categorical, Normal

from tasks.algorithms.offline.networks.actors import BOUND, Behaviour, Sampled, Tanh
from tasks.algorithms.offline.transition_tensors import Spaces

DISCRETE, CONTINUOUS = Spaces(4, 3, discrete=True), Spaces(4, 2, discrete=False)


def moved(spaces):
    """A policy with random weights, which prefers some actions."""
    torch.manual_seed(0)
    policy = Behaviour(spaces, [8])
    for parameter in policy.parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)
    return policy


def test_untrained_all_actions_are_equally_likely():
    observations = torch.randn(30_000, 4)
    drawn = Behaviour(DISCRETE, [8]).sample(observations, torch.Generator().manual_seed(0))
    assert drawn.bincount().float().div(30_000).tolist() == pytest.approx([1 / 3] * 3, abs=0.01)
    drawn = Behaviour(CONTINUOUS, [8]).sample(observations, torch.Generator().manual_seed(0))
    assert drawn.mean(0).tolist() == pytest.approx([0, 0], abs=0.02)
    assert drawn.std(0).tolist() == pytest.approx([1, 1], abs=0.02)


def test_likelihood_and_entropy_are_torchs():
    observations = torch.randn(6, 4)
    policy = moved(DISCRETE)
    actions = torch.tensor([0, 1, 2, 0, 1, 2])
    reference = Categorical(logits=policy(observations))
    logps, entropy = policy.log_likelihood(observations, actions)
    torch.testing.assert_close(logps, reference.log_prob(actions))
    torch.testing.assert_close(entropy, reference.entropy())
    policy = moved(CONTINUOUS)
    actions = torch.randn(6, 2)
    gaussian = Normal(policy(observations), policy.log_deviation.exp())
    logps, entropy = policy.log_likelihood(observations, actions)
    torch.testing.assert_close(logps, gaussian.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropy, gaussian.entropy().sum(-1))


def test_acting_is_the_most_probable_action():
    observations = torch.randn(50, 4)
    policy = moved(DISCRETE)
    assert torch.equal(policy.act(observations), policy(observations).argmax(-1))
    policy = moved(CONTINUOUS)
    acted = policy.act(10 * observations)
    assert acted.abs().max() == 1, "within the box"
    assert torch.equal(acted, policy(10 * observations).clamp(-1, 1))


@pytest.mark.parametrize("spaces", [DISCRETE, CONTINUOUS])
def test_playing_by_chance_follows_the_seed(spaces):
    policy, observations = moved(spaces), torch.randn(40, 4)
    one, same, other = (Sampled(policy, seed).act(observations) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert spaces.discrete or one.abs().max() <= 1


def test_observations_far_out_are_bound():
    critic = Tanh(DISCRETE, [8], 1, gain=1.0)
    critic.normaliser.fit(torch.randn(100, 4))
    far = critic.normaliser.mean + 10 * BOUND * critic.normaliser.deviation
    assert torch.equal(critic(far), critic(far * 2 - critic.normaliser.mean))

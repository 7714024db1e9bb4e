from dataclasses import replace
from math import log, tanh

import pytest
import torch
from torch import nn
from torch.nn import functional

from tasks.algorithms.offline import decision_transformer as dt
from tasks.algorithms.offline.conditioning import Conditioned
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.algorithms.offline.windows import Windows
from tests.tasks.algorithms.offline.counting import earned, model, trained


def windows(actions, valid, observation=1):
    shape = valid.shape
    return Windows(
        torch.randn(shape), torch.randn(*shape, observation), actions, torch.arange(shape[1]).expand(shape), valid
    )


def with_head(discrete, bias):
    """A model whose outputs, before the tanh of continuous actions, are `bias` everywhere."""
    policy = model(discrete)
    nn.init.zeros_(policy.head.weight)
    policy.head.bias.data = torch.tensor(bias)
    return policy


VALID = torch.tensor([[True, True, True], [True, False, False]])


def test_the_loss_for_discrete_actions_is_a_mean_over_the_steps_that_are_no_padding():
    policy = with_head(True, [log(3), 0.0])  # probabilities 3/4 and 1/4
    batch = windows(torch.tensor([[0, 0, 1], [1, 0, 0]]), VALID)
    value, metrics = dt.action_prediction_loss(policy, batch)
    assert value.item() == pytest.approx(-(2 * log(3 / 4) + 2 * log(1 / 4)) / 4)
    assert metrics["accuracy"] == 0.5
    on_padding = functional.cross_entropy(torch.tensor([log(3), 0.0]).expand(6, 2), batch.actions.flatten())
    assert value.item() != pytest.approx(on_padding.item())  # the known mistake: 4 of 6 are right there


def test_the_loss_for_continuous_actions_is_the_mean_square_over_the_steps_that_are_no_padding():
    policy = with_head(False, [0.5])
    actions = torch.tensor([[1.0, 0.0, -1.0], [0.5, 9.0, 9.0]])[..., None]
    value, _ = dt.action_prediction_loss(policy, windows(actions, VALID))
    a = tanh(0.5)
    assert value.item() == pytest.approx(((1 - a) ** 2 + a**2 + (1 + a) ** 2 + (0.5 - a) ** 2) / 4)


@pytest.mark.parametrize("discrete", [True, False])
def test_what_stands_in_the_padding_changes_neither_loss_nor_gradient(discrete):
    policy = model(discrete)
    actions = torch.randint(2, (2, 3)) if discrete else torch.rand(2, 3, 1)
    batch = windows(actions, VALID)
    padding = ~VALID
    other = replace(
        batch,
        returns_to_go=batch.returns_to_go.masked_fill(padding, 7.0),
        observations=batch.observations.masked_fill(padding[..., None], -5.0),
        actions=batch.actions.masked_fill(padding if discrete else padding[..., None], 1),
    )
    results = []
    for each in (batch, other):
        policy.zero_grad()
        value, _ = dt.action_prediction_loss(policy, each)
        value.backward()
        results.append((value.detach(), policy.head.weight.grad.clone()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.allclose(results[0][1], results[1][1], atol=1e-7)


def inputs(policy, steps=4):
    torch.manual_seed(1)
    discrete = policy.spaces.discrete
    actions = torch.randint(2, (2, steps)) if discrete else torch.rand(2, steps, 1)
    return [torch.randn(2, steps), torch.randn(2, steps, 1), actions, torch.arange(steps).expand(2, steps)]


@pytest.mark.parametrize("discrete", [True, False])
def test_an_action_is_predicted_from_what_came_before_it_and_from_nothing_later(discrete):
    policy = model(discrete).eval()
    given = inputs(policy)
    before = policy(*given)
    for part, sees_own_step in ((0, True), (1, True), (2, False)):  # return-to-go, observation, action
        changed = [tensor.clone() for tensor in given]
        changed[part][:, 2] = 1 - changed[part][:, 2]
        after = policy(*changed)
        assert torch.equal(after[:, :2], before[:, :2])
        assert torch.equal(after[:, 2], before[:, 2]) != sees_own_step  # an action that saw itself would fail here
        assert not torch.equal(after[:, 3], before[:, 3])


def test_the_last_step_alone_is_predicted_as_among_all():
    policy = model().eval()
    given = inputs(policy)
    assert torch.allclose(policy(*given, last=True), policy(*given)[:, -1:], atol=1e-6)


def test_returns_are_scaled_and_observations_normalised_inside():
    policy = model().eval()
    given = inputs(policy)
    before = policy(*given)
    policy.normaliser.fit(given[1].flatten(0, 1) * 10 + 3)
    twin = model().eval()
    twin.scale = policy.scale * 2
    twin.normaliser.fit(given[1].flatten(0, 1))
    same = [given[0] * 2, given[1], *given[2:]]
    assert torch.allclose(twin(*same), policy(given[0], given[1] * 10 + 3, *given[2:]), atol=1e-6)
    assert not torch.allclose(before, policy(*given))


def test_timesteps_after_the_longest_episode_share_its_last_embedding():
    policy = model().eval()
    given = inputs(policy)
    late = [*given[:3], torch.full((2, 4), policy.timesteps - 1)]
    later = [*given[:3], torch.full((2, 4), policy.timesteps + 50)]
    assert torch.equal(policy(*late), policy(*later))


@pytest.fixture(scope="module")
def learnt():
    """A model of discrete actions after its training, and the metrics of each step."""
    policy = model()
    return policy, trained(policy)


@pytest.mark.parametrize("discrete", [True, False])
def test_it_learns_to_earn_what_it_is_asked_for(discrete, learnt):
    policy, rows = learnt if discrete else ((continuous := model(False)), trained(continuous))
    asked = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert [earned(policy.with_target(target)) for target in asked] == [[target] for target in asked]
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_a_player_that_never_subtracts_what_it_earned_gets_something_else(learnt):
    class Forgetting(Conditioned):
        def observe(self, running, rewards):
            self.step += 1

    policy, _ = learnt
    assert [earned(Forgetting(policy, target)) for target in (2.0, 3.0, 4.0)] != [[2.0], [3.0], [4.0]]


def test_an_auxiliary_loss_counts_by_its_weight():
    class Recorder:
        def step(self, value):
            self.loss = value.item()

    torch.manual_seed(0)
    batch = windows(torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 3, dtype=torch.bool))
    policy, recorder = model(), Recorder()
    alone = dt.action_prediction_loss(policy, batch)[0].item()
    metrics = next(dt.fit(policy, recorder, [batch], auxiliary=lambda: torch.tensor(2.0), weight=0.25))
    assert recorder.loss == pytest.approx(alone + 0.5)
    assert metrics["language_loss"] == 2.0
    assert metrics["loss"].item() == pytest.approx(alone)


def test_half_precision_stays_near_and_leaves_weights_whole():
    exact, rough = model(width=32), model(width=32)
    losses = [trained(policy, 12, half=half)[-1]["loss"].item() for policy, half in ((exact, False), (rough, True))]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert all(parameter.dtype == torch.float32 for parameter in rough.parameters())


def test_sizes_and_spaces_are_all_that_another_is_made_from():
    policy = model()
    assert policy.spaces == Spaces(1, 2, True)
    assert policy.sizes["trunk"] == {"width": 16, "layers": 2, "heads": 2, "dropout": 0.0}

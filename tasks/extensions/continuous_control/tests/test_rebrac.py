from types import SimpleNamespace

import pytest
import torch

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.transition_tensors import Transitions
from tasks.extensions.continuous_control.algorithms import rebrac, td3
from tasks.extensions.continuous_control.tests.test_td3_bc import batch, by_action
from tests.tasks.algorithms.offline import point

SETTINGS = rebrac.RebracSettings(
    gamma=point.GAMMA,
    policy_beta=0.1,
    critic_beta=0.1,
    noise=0.2,
    noise_clip=0.5,
    target_rate=0.05,
    policy_every=2,
)


def test_the_datas_next_action_is_that_of_the_next_row_of_the_episode():
    actions = torch.tensor([[0.1], [0.2], [0.3], [0.4], [0.5]])
    seen = torch.zeros(5, 1)
    data = Transitions(seen, actions, torch.zeros(5), seen, torch.zeros(5).bool(), torch.tensor([3, 2]))
    following, known = rebrac.collect_next_actions(data)
    assert known.tolist() == [True, True, False, True, False]
    assert following[known].flatten().tolist() == pytest.approx([0.2, 0.3, 0.5])


def test_targets_by_hand_with_the_penalty_inside_the_bootstrap():
    agent = SimpleNamespace(target_policy=lambda seen: torch.tensor([[0.5, 0.0]] * 3), targets=by_action(4.0, 6.0))
    settings = rebrac.RebracSettings(0.5, 1.0, 2.0, 0.0, 0.5, 0.05, 2)
    given = batch([[0.0, 0.0]] * 3, (False, True, False))
    following, known = torch.tensor([[0.2, 0.4]] * 3), torch.tensor([True, True, False])
    targets, distance = rebrac.compute_q_targets_and_distance(
        agent, given, following, known, settings, torch.Generator()
    )
    assert distance.tolist() == pytest.approx([0.25, 0.25, 0.0])  # 0.09 + 0.16
    assert targets.tolist() == pytest.approx([1 + 0.5 * (2 - 2 * 0.25), 1, 1 + 0.5 * 2])


def test_the_policys_loss_by_hand_scales_the_lowest_critic():
    chosen = torch.tensor([[0.5, 0.0], [-0.1, 0.0]], requires_grad=True)
    agent = SimpleNamespace(policy=lambda seen: chosen, critics=by_action(10.0, 30.0))
    loss, distance = rebrac.policy_loss(agent, batch([[0.5, 0.2], [0.1, 0.0]]), 0.7)
    assert distance.item() == pytest.approx((0.04 + 0.04) / 2)
    assert loss.item() == pytest.approx(0.7 * 0.04 - (5 - 3) / (5 + 3))  # the lowest: 5 of 5 and 15, -3 of -1 and -3
    loss.backward()
    slopes = [10 / 2 / 4, 30 / 2 / 4]  # the mean size, 4, has no gradient
    assert chosen.grad[:, 0].tolist() == pytest.approx([-slopes[0], 0.7 * 2 * -0.2 / 2 - slopes[1]])


def learning(**changes):
    torch.manual_seed(0)
    data = point.recorded(False)
    agent = td3.TD3Agent(point.spaces(False), [32], 2, data.observations, layer_norm=True)
    optimizers = {name: Adam(getattr(agent, name).parameters(), point.RATE) for name in ("critics", "policy")}
    settings = rebrac.RebracSettings(**{**vars(SETTINGS), **changes})
    generator = torch.Generator().manual_seed(0)
    return agent, rebrac.fit(agent, optimizers, data, settings, batch_size=64, generator=generator), data


def test_it_does_better_than_the_data_and_than_cloning_it():
    agent, steps, data = learning()
    point.drain(steps, 150)
    assert point.score(agent.policy) > max(data.returns.mean().item(), point.score(point.cloned(False))) + 1


def test_a_penalty_in_the_policys_loss_keeps_it_near_the_data():
    near, far = (point.drain(learning(policy_beta=beta)[1], 60) for beta in (10.0, 0.01))
    assert near["distance"] < 0.8 * far["distance"]


def test_a_penalty_in_the_targets_lowers_the_values():
    low, high = (point.drain(learning(critic_beta=beta)[1], 60) for beta in (5.0, 0.0))
    assert low["q"] < high["q"] - 0.5
    assert low["next_distance"] > 0


def test_the_policy_and_the_targets_learn_in_every_second_step_only():
    agent, steps, _ = learning(target_rate=1.0)
    followed = []
    for _row, _ in zip(steps, range(4), strict=False):
        followed.append(point.same(agent.targets, agent.critics) and point.same(agent.target_policy, agent.policy))
    assert followed == [True, False, True, False]

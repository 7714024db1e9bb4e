from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from tasks.algorithms.offline.adam import Adam
from tasks.extensions.continuous_control.algorithms import td3
from tasks.extensions.continuous_control.algorithms.td3 import Td3Settings
from tasks.extensions.continuous_control.tests.test_td3_bc import batch, by_action
from tests.tasks.algorithms.offline import point

SETTINGS = Td3Settings(gamma=point.GAMMA, noise=0.2, noise_clip=0.5, target_rate=0.05, policy_every=2)


def test_the_policys_loss_by_hand_is_the_first_critics_value():
    chosen = torch.tensor([[0.5, 0.0], [-0.1, 0.0]], requires_grad=True)
    agent = SimpleNamespace(policy=lambda seen: chosen, critics=by_action(10.0, -99.0))
    loss, distance = td3.policy_loss(agent, batch([[0.5, 0.2], [0.1, 0.0]]))
    assert loss.item() == pytest.approx(-(5 - 1) / 2)
    assert distance.item() == pytest.approx((0.04 + 0.04) / 4)
    loss.backward()
    assert chosen.grad.flatten().tolist() == pytest.approx([-5, 0, -5, 0])


def test_from_good_and_bad_play_it_learns_what_is_best():
    """Without a tie to the data; all that could be done was recorded, so that nothing is imagined."""
    torch.manual_seed(0)
    data = point.recorded(False)
    agent = td3.TD3Agent(point.spaces(False), [32], 2, data.observations)
    optimizers = {name: Adam(getattr(agent, name).parameters(), point.RATE) for name in ("critics", "policy")}
    generator = torch.Generator().manual_seed(0)
    steps = td3.fit(agent, optimizers, data.batches(64, generator), SETTINGS, td3.policy_loss, generator)
    rows = list(islice(steps, 180))
    assert rows[-1]["critic_loss"] < 0.2 * rows[0]["critic_loss"]
    assert point.score(agent.policy) > data.returns.mean().item() + 1

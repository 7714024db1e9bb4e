"""Losses and gradients of TD3, TD3+BC and ReBRAC against d3rlpy, as in tests/oracles/test_d3rlpy.py."""

from functools import partial

import pytest
import torch

from tasks.algorithms.offline.networks.critics import sum_mean_squared_errors
from tasks.extensions.continuous_control.algorithms import rebrac, td3, td3_bc
from tests.oracles import test_d3rlpy as oracle
from tests.oracles.test_d3rlpy import (
    CONTINUOUS,
    FIXED,
    GAMMA,
    HIDDEN,
    batches,
    farther,
    gradients,
    same,
    theirs,  # noqa: F401
    told,  # noqa: F401
    transitions,
    weights,
)

pytestmark = oracle.pytestmark


@pytest.mark.parametrize("method", ["td3", "td3_bc", "rebrac"])
def test_td3_td3_bc_and_rebrac(told, method):  # noqa: F811
    """Without noise on the target policy's actions, which d3rlpy draws itself."""
    torch.manual_seed(7)
    data, rows = transitions(CONTINUOUS), batches(1)
    known = rebrac.collect_next_actions(data)[1]
    rows = torch.where(known[rows] | data.terminated[rows], rows, rows - 1)  # d3rlpy has no such transitions
    batch = data.rows(rows[0])
    agent = td3.TD3Agent(CONTINUOUS, HIDDEN, 2, data.observations, layer_norm=method == "rebrac")
    farther(agent.targets)
    normaliser = agent.policy.normaliser
    scaler = {"mean": normaliser.mean.tolist(), "deviation": normaliser.deviation.tolist(), "scaler_eps": 0.0}
    own = {"alpha": 2.0, "policy_beta": 0.7, "critic_beta": 0.3, "noise": 0.0, "noise_clip": 0.5, "policy_every": 1}
    judged = told(
        CONTINUOUS,
        weights(agent.policy) + weights(agent.critics),
        rows,
        weights(agent.targets),
        method=method,
        layer_norm=method == "rebrac",
        **FIXED,
        **own,
        **scaler,
    )
    if method in ("td3", "td3_bc"):
        settings = td3.Td3Settings(GAMMA, 0.0, 0.5, 0.005, 1)
        targets = td3.compute_q_targets(agent, batch, settings, torch.Generator())
        tied = partial(td3_bc.policy_loss, alpha=2.0)
        loss, distance = (td3.policy_loss if method == "td3" else tied)(agent, batch)
    else:
        following, there = (column[rows[0]] for column in rebrac.collect_next_actions(data))
        settings = rebrac.RebracSettings(GAMMA, 0.7, 0.3, 0.0, 0.5, 0.005, 1)
        targets, _ = rebrac.compute_q_targets_and_distance(agent, batch, following, there, settings, torch.Generator())
        loss, distance = rebrac.policy_loss(agent, batch, 0.7)
    critic_loss = sum_mean_squared_errors(agent.critics(batch.observations, batch.actions), targets)
    [losses] = judged.losses
    assert critic_loss.item() == pytest.approx(losses["critic_loss"], rel=1e-4)
    assert loss.item() == pytest.approx(losses["actor_loss"], rel=1e-4)
    if method != "td3":
        assert distance.item() == pytest.approx(losses["bc_loss"], rel=1e-4)
    (critic_loss + loss).backward()  # d3rlpy's critics too have gradients of both losses after an update
    same(gradients(agent.policy) + gradients(agent.critics), judged.gradients, rtol=1e-3, atol=1e-5)

"""Losses, gradients and whole runs of updates against d3rlpy, which runs in a Python of its own and is sent weights and
batches.

Skipped without it; benchmarks/offline_peer.py says how to make it. The tests name what d3rlpy computes differently on
purpose.
"""

import os
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from benchmarks import offline_peer as peer
from tasks.algorithms.offline import bc, cql, cql_continuous, dqn, iql
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import bellman_targets, sum_mean_squared_errors
from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences, QValues
from tasks.algorithms.offline.networks.target import TargetNetwork
from tasks.algorithms.offline.transition_tensors import Referenced, Spaces, Transitions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(os.environ.get(peer.VARIABLE, "none")).is_file(), reason=peer.HOW),
]
DISCRETE, CONTINUOUS = Spaces(5, 3, discrete=True), Spaces(5, 2, discrete=False)
HIDDEN, SIZE, GAMMA, EVERY, RATE = [16, 16], 32, 0.9, 5, 0.01
COMMON = {"hidden": HIDDEN, "batch_size": SIZE, "learning_rate": RATE, "gamma": GAMMA, "target_every": EVERY}


def transitions(spaces):
    """Twelve episodes of twenty steps: every third terminates, the others are truncated.

    Some errors are beyond the quadratic part of Huber's loss.
    """
    g = torch.Generator().manual_seed(1)
    lengths = torch.full((12,), 20)
    count = int(lengths.sum())
    terminated = torch.zeros(count, dtype=torch.bool)
    terminated[19::60] = True
    seen = torch.randn(count, 2, spaces.observation, generator=g)
    actions = torch.randint(spaces.action, (count,), generator=g)
    moves = 0.9 * (2 * torch.rand(count, spaces.action, generator=g) - 1)
    rewards = 3 * torch.randn(count, generator=g)
    return Transitions(seen[:, 0], actions if spaces.discrete else moves, rewards, seen[:, 1], terminated, lengths)


def batches(count):
    """Row numbers (count, B) of `count` batches; each has the end of a terminated and of a truncated episode, and other
    rows.
    """
    rows = torch.randint(240, (count, SIZE), generator=torch.Generator().manual_seed(2))
    rows[:, 0], rows[:, 1] = 19, 39
    return rows


@pytest.fixture(scope="module")
def theirs(one_thread):
    """One process for all tests: importing d3rlpy takes seconds."""
    with peer.Peer() as process:
        yield process


class Told(NamedTuple):
    losses: list[dict[str, float]]
    weights: list[Tensor]
    gradients: list[Tensor]
    answer: dict


@pytest.fixture
def told(theirs, tmp_path):
    """Losses, weights and gradients of d3rlpy's updates from our weights on our batches."""

    def tell(spaces, weights, rows, targets=None, command="update", **settings):
        data = peer.write_transitions(transitions(spaces), tmp_path / "data.npz")
        theirs.make(data, spaces.action, spaces.observation, 0, discrete=spaces.discrete, **COMMON | settings)
        given = {"targets": peer.write_weights(targets, tmp_path / "targets.npz")} if targets else {}
        theirs.ask("load", path=peer.write_weights(weights, tmp_path / "weights.npz"), **given)
        answer = theirs.ask(command, rows=peer.write_rows(rows, tmp_path / "rows.npz"))
        after = tmp_path / "after.npz"
        theirs.ask("save", path=after)
        return Told(answer["losses"], *(peer.read_arrays(after, kind) for kind in ("weight", "gradient")), answer)

    return tell


def same(ours, theirs, **close):
    assert len(ours) == len(theirs) > 0
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, **{"rtol": 1e-4, "atol": 1e-6, **close})


def weights(network):
    return list(network.parameters())


def gradients(network):
    return [p.grad for p in network.parameters()]


@pytest.mark.parametrize("kind", [Preferences, MeanAction])
def test_behaviour_cloning(told, kind):
    spaces = DISCRETE if kind is Preferences else CONTINUOUS
    torch.manual_seed(3)
    policy = kind(spaces, HIDDEN)
    rows = batches(1)
    # d3rlpy's discrete BC adds half the mean squared log probability by default; `beta` 0 takes it away.
    judged = told(spaces, weights(policy), rows, method="bc", optimizer="sgd", learning_rate=0.0)
    value, _ = bc.behaviour_cloning_loss(policy, transitions(spaces).rows(rows[0]))
    value.backward()
    assert value.item() == pytest.approx(judged.losses[0]["loss"], rel=1e-5)
    same(gradients(policy), judged.gradients)


def objective(alpha, **changes):
    """d3rlpy's losses, which always use double selection and Huber's loss."""
    settings = {"gamma": GAMMA, "double": True, "huber": True, **changes}
    if alpha is None:
        return lambda *given: dqn.dqn_loss(*given, **settings)
    return lambda *given: cql.cql_loss(*given, **settings, alpha=alpha)


def networks():
    torch.manual_seed(4)
    return QValues(DISCRETE, HIDDEN, GAMMA), QValues(DISCRETE, HIDDEN, GAMMA)


@pytest.mark.parametrize("alpha", [None, 0.5], ids=["double DQN", "CQL"])
def test_value_losses(told, alpha):
    online, target = networks()
    rows = batches(1)
    batch = transitions(DISCRETE).rows(rows[0])
    assert batch.terminated.tolist()[:2] == [True, False]
    settings = {"method": "dqn"} if alpha is None else {"method": "cql", "alpha": alpha}
    judged = told(DISCRETE, weights(online), rows, weights(target), optimizer="sgd", learning_rate=0.0, **settings)
    [theirs] = judged.losses
    value, metrics = objective(alpha)(online, target, batch)
    value.backward()
    assert value.item() == pytest.approx(theirs["loss"], rel=1e-5)
    if alpha is not None:
        assert metrics["conservative"].item() == pytest.approx(theirs["conservative_loss"], rel=1e-5)
    same(gradients(online), judged.gradients)
    for other in ({"double": False}, {"huber": False}, {"gamma": 0.8}):
        assert objective(alpha, **other)(online, target, batch)[0].item() != pytest.approx(theirs["loss"], rel=1e-4)


@pytest.mark.parametrize("alpha", [None, 0.5], ids=["double DQN", "CQL"])
def test_value_updates(told, alpha):
    """Adam, its defaults, and three changes of the target network give the same weights after 13 updates."""
    online, _ = networks()
    rows = batches(13)
    settings = {"method": "dqn"} if alpha is None else {"method": "cql", "alpha": alpha}
    judged = told(DISCRETE, weights(online), rows, **settings)
    target = TargetNetwork(online.layers, every=EVERY, rate=1.0)
    target.updates += (
        EVERY - 1
    )  # d3rlpy's target follows after the first update, the sixth, ..; ours after the fifth, ..
    data = transitions(DISCRETE)
    steps = dqn.fit(
        online,
        target,
        Adam(online.parameters(), RATE),
        (data.rows(r) for r in rows),
        objective(alpha),
    )
    found = [row["loss"].item() for row in islice(steps, len(rows))]
    assert found == pytest.approx([losses["loss"] for losses in judged.losses], rel=1e-3)
    same(weights(online), judged.weights, rtol=1e-3, atol=1e-4)


def split(tensors):
    """A policy's tensors with the last layer cut in two, mean and log deviation: d3rlpy has a layer for each."""
    *first, weight, bias = tensors
    (mean, log_deviation), (mean_bias, log_deviation_bias) = weight.chunk(2), bias.chunk(2)
    return [*first, mean, mean_bias, log_deviation, log_deviation_bias]


@pytest.mark.parametrize("calibrated", [False, True], ids=["cql", "cal-ql"])
def test_continuous_cql(told, monkeypatch, calibrated):
    """Critics' and policy's loss and gradient, with the random numbers that d3rlpy drew.

    d3rlpy values the mean action in the Bellman target, not a sampled one: the noise of our sample is 0 here.
    """
    samples, alpha = 3, 0.7
    torch.manual_seed(5)
    data, rows = transitions(CONTINUOUS), batches(1)
    batch = data.rows(rows[0])
    agent = cql_continuous.CQLAgent(CONTINUOUS, HIDDEN, 2, 3 * data.observations + 1, alpha)
    with torch.no_grad():
        for parameter in agent.targets.parameters():
            parameter.mul_(1.1)
    scaler = {"mean": agent.policy.normaliser.mean.tolist(), "deviation": agent.policy.normaliser.deviation.tolist()}
    mine = split(weights(agent.policy)) + weights(agent.critics)
    settings = {"samples": samples, "alpha": alpha, "target_rate": 0.005, "scaler_eps": 0.0, **scaler}
    kind = {"method": "cql_continuous", "command": "record", "optimizer": "sgd", "learning_rate": 0.0}
    kind["calibrated"] = calibrated
    judged = told(CONTINUOUS, mine, rows, weights(agent.targets), **kind, **settings)
    now, after, uniform, _, chosen = (
        torch.tensor(actions).unflatten(0, (SIZE, -1)).transpose(0, 1) for actions in judged.answer["asked"]
    )

    def noise(actions, observations):
        mean, log_deviation = agent.policy.compute_gaussian_parameters(observations)
        return ((actions.atanh() - mean) / log_deviation.exp()).detach()

    drawn = [torch.zeros(1, SIZE, 2), noise(now, batch.observations), noise(after, batch.next_observations)]
    drawn.append(noise(chosen, batch.observations))
    monkeypatch.setattr(torch, "rand", lambda shape, generator: (uniform + 1) / 2)
    monkeypatch.setattr(torch, "randn", lambda shape, generator: drawn.pop(0))
    own = cql_continuous.CqlSettings(GAMMA, samples, None, 0.005, calibrated)
    if calibrated:
        batch = Referenced.of(batch, data.returns_to_go(GAMMA)[rows[0]])
    loss, term, _ = cql_continuous.critic_loss(agent, batch, own, torch.Generator())
    policy_loss, _ = cql_continuous.policy_loss(agent, batch.observations, torch.Generator())
    [theirs] = judged.losses
    assert loss.item() == pytest.approx(theirs["critic_loss"], rel=1e-4)
    assert 2 * alpha * term.item() == pytest.approx(theirs["conservative_loss"], rel=1e-4)
    assert policy_loss.item() == pytest.approx(theirs["actor_loss"], rel=1e-4)
    (loss + policy_loss).backward()  # d3rlpy's critics too have gradients of both losses after an update
    same(split(gradients(agent.policy)) + gradients(agent.critics), judged.gradients, rtol=1e-3, atol=1e-5)


def farther(targets):
    """Target critics that differ from the critics."""
    with torch.no_grad():
        for parameter in targets.parameters():
            parameter.mul_(1.1)


FIXED = {"optimizer": "sgd", "learning_rate": 0.0, "target_rate": 0.005, "critics": 2}


def test_iql(told):
    """d3rlpy's deviation is a sigmoid between its bounds, and ours the exponential of a parameter."""
    torch.manual_seed(6)
    data, rows = transitions(CONTINUOUS), batches(1)
    batch = data.rows(rows[0])
    agent = iql.IQLAgent(CONTINUOUS, HIDDEN, 2, data.observations)
    farther(agent.targets)
    deviation, *policy = weights(agent.policy)
    inner = torch.logit((deviation.detach() + 5) / 7)
    scaler = {"mean": agent.policy.normaliser.mean.tolist(), "deviation": agent.policy.normaliser.deviation.tolist()}
    mine = [inner, *policy, *weights(agent.critics), *weights(agent.value)]
    own = {"expectile": 0.8, "beta": 2.0, "max_weight": 0.6}
    judged = told(
        CONTINUOUS, mine, rows, weights(agent.targets), method="iql", **FIXED, **own, **scaler, scaler_eps=0.0
    )
    values, next_values = agent.values(batch.observations), agent.values(batch.next_observations).detach()
    advantages = agent.worth(batch) - values
    value_loss = iql.expectile_loss(advantages, 0.8)
    weight = iql.exponential_advantage_weights(advantages.detach(), 2.0, 0.6)
    assert 0 < (weight == 0.6).sum() < SIZE
    policy_loss = -(weight * agent.policy.log_likelihood(batch.observations, batch.actions)).mean()
    critic_loss = sum_mean_squared_errors(
        agent.critics(batch.observations, batch.actions), bellman_targets(batch, next_values, GAMMA)
    )
    [theirs] = judged.losses
    assert value_loss.item() == pytest.approx(theirs["v_loss"], rel=1e-4)
    assert critic_loss.item() == pytest.approx(theirs["q_loss"], rel=1e-4)
    assert policy_loss.item() == pytest.approx(theirs["actor_loss"], rel=1e-4)
    (value_loss + policy_loss + critic_loss).backward()
    slope = 7 * inner.sigmoid() * (1 - inner.sigmoid())  # of their deviation by their parameter
    first, *others = judged.gradients
    torch.testing.assert_close(deviation.grad * slope, first.squeeze(0), rtol=1e-3, atol=1e-5)
    same(
        [*gradients(agent.policy)[1:], *gradients(agent.critics), *gradients(agent.value)], others, rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize("keep_last", [False, True])
def test_truncated_episodes(theirs, tmp_path, keep_last):
    """d3rlpy has no transition for the last step of a truncated episode, unless one is made for it."""
    data = transitions(DISCRETE)
    path = peer.write_transitions(data, tmp_path / "data.npz")
    theirs.make(path, DISCRETE.action, DISCRETE.observation, 0, method="bc", keep_last=keep_last, **COMMON)
    truncated = int((~data.terminated[data.starts + data.lengths - 1]).sum())
    assert truncated == 8
    assert theirs.ask("fit", count=1)["transitions"] == len(data) - (0 if keep_last else truncated)

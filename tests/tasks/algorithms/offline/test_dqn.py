from functools import partial
from itertools import islice
from math import exp, log

import pytest
import torch

from tasks.algorithms.offline import cql, dqn
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.mlp import QValues
from tasks.algorithms.offline.networks.target import TargetNetwork
from tasks.algorithms.offline.transition_tensors import Referenced, Spaces, TransitionBatch, Transitions
from tasks.offline.datasets.dataset_files import read_offline_dataset
from tasks.offline.environments import simulators
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tests.tasks.offline import worlds

# Two states, one-hot, and two actions. Online and target network disagree about the better action in state 1.
ONLINE = torch.tensor([[1.0, 2.0], [5.0, 3.0]])
TARGET = torch.tensor([[0.5, 0.0], [2.0, 10.0]])
GAMMA = 0.5
# From state 0 to state 1 with reward 1: going on, terminated, truncated.
THREE = TransitionBatch(
    observations=torch.eye(2)[[0, 0, 0]],
    actions=torch.tensor([0, 1, 1]),
    rewards=torch.ones(3),
    next_observations=torch.eye(2)[[1, 1, 1]],
    terminated=torch.tensor([False, True, False]),
)


def table(q):
    return lambda observations: observations @ q


def test_the_online_network_selects_and_the_target_network_evaluates():
    values, taken, error = dqn.compute_td_errors(table(ONLINE), table(TARGET), THREE, GAMMA, double=True)
    assert values.tolist() == ONLINE[[0, 0, 0]].tolist()
    assert taken.tolist() == [1, 2, 2]
    # The online network prefers action 0 in state 1, which the target network values at 2: y = 1 + 0.5 * 2, or 1 at the
    # end.
    assert error.tolist() == [1 - 2, 2 - 1, 2 - 2]


def test_without_double_selection_the_target_network_does_both():
    _, _, error = dqn.compute_td_errors(table(ONLINE), table(TARGET), THREE, GAMMA, double=False)
    assert error.tolist() == [1 - 6, 2 - 1, 2 - 6]


def test_the_losses_by_hand():
    settings = {"gamma": GAMMA, "double": False}
    squared, metrics = dqn.dqn_loss(table(ONLINE), table(TARGET), THREE, huber=False, **settings)
    assert squared.item() == pytest.approx((25 + 1 + 16) / 2 / 3)
    assert metrics["q"].item() == pytest.approx(5 / 3)
    assert metrics["td_error"].item() == pytest.approx((5 + 1 + 4) / 3)
    huber, _ = dqn.dqn_loss(table(ONLINE), table(TARGET), THREE, huber=True, **settings)
    assert huber.item() == pytest.approx((4.5 + 0.5 + 3.5) / 3)


def test_cql_adds_how_far_all_actions_stand_above_the_data_s():
    settings = {"gamma": GAMMA, "double": True, "huber": False}
    plain, _ = dqn.dqn_loss(table(ONLINE), table(TARGET), THREE, **settings)
    value, metrics = cql.cql_loss(table(ONLINE), table(TARGET), THREE, alpha=0.7, **settings)
    gap = log(exp(1) + exp(2)) - (1 + 2 + 2) / 3
    assert metrics["conservative"].item() == pytest.approx(gap)
    assert value.item() == pytest.approx(plain.item() + 0.7 * gap)
    assert cql.cql_loss(table(ONLINE), table(TARGET), THREE, alpha=0.0, **settings)[0].item() == plain.item()


def test_cal_ql_holds_no_value_down_below_what_was_earned():
    """Of the values 1 and 2 at each transition; what was earned is below both, between them, and above both."""
    settings = {"gamma": GAMMA, "double": True, "huber": False, "alpha": 0.7, "calibrated": True}
    earned = Referenced.of(THREE, torch.tensor([-3.0, 1.5, 4.0]))
    online = ONLINE.clone().requires_grad_()
    value, metrics = cql.cql_loss(table(online), table(TARGET), earned, **settings)
    sums = [log(exp(1) + exp(2)), log(exp(1.5) + exp(2)), log(exp(4) + exp(4))]
    assert metrics["conservative"].item() == pytest.approx((sum(sums) - 1 - 2 - 2) / 3)
    unknown = Referenced.of(THREE, torch.full((3,), -float("inf")))
    settings.pop("calibrated")
    plain, _ = cql.cql_loss(table(ONLINE), table(TARGET), THREE, **settings)
    assert cql.cql_loss(table(ONLINE), table(TARGET), unknown, **settings, calibrated=True)[0].item() == plain.item()
    value.backward()
    third = Referenced.of(*(TransitionBatch(*(column[2:] for column in vars(THREE).values())), torch.tensor([4.0])))
    alone = ONLINE.clone().requires_grad_()
    cql.cql_loss(table(alone), table(ONLINE * 0), third, **settings, calibrated=True)[0].backward()
    assert alone.grad[0, 0] == 0.0, "the other action's value is below what was earned, and is left alone"


def wrong(flaw):
    """The errors with one of the common mistakes."""
    following = TARGET[1, ONLINE[1].argmax()]
    going_on = torch.tensor([1.0, 0.0, 1.0])
    if flaw == "the online network evaluates":
        following = ONLINE[1].max()
    if flaw == "bootstraps through termination":
        going_on = torch.ones(3)
    if flaw == "stops at truncation":
        going_on = torch.tensor([1.0, 0.0, 0.0])
    return ONLINE[0, THREE.actions] - (1 + GAMMA * going_on * following)


@pytest.mark.parametrize(
    ("flaw", "caught"),
    [
        ("none", False),
        ("the online network evaluates", True),
        ("bootstraps through termination", True),
        ("stops at truncation", True),
    ],
)
def test_the_case_tells_the_usual_mistakes_apart(flaw, caught):
    _, _, error = dqn.compute_td_errors(table(ONLINE), table(TARGET), THREE, GAMMA, double=True)
    assert torch.equal(wrong(flaw), error) != caught


@pytest.mark.parametrize("double", [True, False])
def test_only_the_data_s_actions_have_a_gradient(double):
    online = ONLINE.clone().requires_grad_()
    value, _ = dqn.dqn_loss(table(online), table(TARGET), THREE, gamma=GAMMA, double=double, huber=False)
    value.backward()
    assert online.grad[1].tolist() == [0, 0]  # the next state's
    _, _, error = dqn.compute_td_errors(table(ONLINE), table(TARGET), THREE, GAMMA, double)
    torch.testing.assert_close(online.grad[0], torch.stack([error[0], error[1] + error[2]]) / 3)


DOUBLE = partial(dqn.dqn_loss, double=True, huber=True)
CONSERVATIVE = partial(cql.cql_loss, double=True, huber=True, alpha=0.5)


def trained(data, actions, objective, *, steps, gamma, hidden=(64,), every=20):
    torch.manual_seed(0)
    policy = QValues(Spaces(data.observations.shape[1], actions, True), hidden, gamma)
    target, optimizer = TargetNetwork(policy.layers, every=every, rate=1.0), Adam(policy.parameters(), 0.01)
    batches = data.batches(64, torch.Generator().manual_seed(0))
    fit = dqn.fit(policy, target, optimizer, batches, partial(objective, gamma=gamma))
    return policy, list(islice(fit, steps))


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """Random walks in the graph."""
    return read_offline_dataset(worlds.record(tmp_path_factory.mktemp("graph") / "walks", "graph", 120)).transitions


@pytest.mark.parametrize("objective", [DOUBLE, CONSERVATIVE], ids=["dqn", "cql"])
def test_they_find_paths_that_no_walk_took(objective, one_thread, walks):
    policy, _ = trained(walks, 3, objective, steps=200, gamma=0.9)
    starts = len(simulators.GRAPH.starts)
    played = play_seeded_episodes("graph", wrap_as_player(policy), starts, seed=0).returns
    assert walks.returns.mean() < -6
    assert played.mean() >= simulators.OPTIMA["graph"] - 0.2


def one_of_eight(episodes=60, length=10):
    """The data has only action 0, which never pays; episodes are truncated, and any state may follow."""
    generator = torch.Generator().manual_seed(0)
    count = episodes * length
    seen = torch.randn(count + 1, 4, generator=generator)
    nothing = torch.zeros(count)
    return Transitions(seen[:-1], nothing.long(), nothing, seen[1:], nothing.bool(), torch.full((episodes,), length))


def test_dqn_believes_in_actions_that_the_data_lacks_and_cql_does_not(one_thread):
    data, believed = one_of_eight(), {}
    for objective in (DOUBLE, CONSERVATIVE):
        policy, _ = trained(data, 8, objective, steps=400, gamma=0.9, every=13)
        believed[objective.func] = policy.values(data.observations[data.starts]).mean().item()
    assert believed[dqn.dqn_loss] > 0.3
    assert abs(believed[cql.cql_loss]) < 0.05

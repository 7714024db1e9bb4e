import numpy as np
import pytest
import torch

from tasks.algorithms.offline import fitted_q
from tasks.algorithms.offline.networks.mlp import QValues
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.offline.configs.returns import FittedQConfig
from tasks.offline.datasets import dataset_files
from tasks.offline.environments.discrete import GRAPH, WALK
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tasks.offline.reporting import value_estimates
from tests.tasks.offline.worlds import record

GAMMA = 0.9
GOOD = -(1 - GAMMA ** GRAPH.distances[GRAPH.starts]) / (1 - GAMMA)  # of the shortest path from each start


def towards(preferences, gamma=GAMMA):
    """A policy of the graph by Q-values (nodes, edges), as a network that has them in its weights."""
    policy = QValues(Spaces(20, 3, discrete=True), [], gamma)
    with torch.no_grad():
        policy.layers[0].weight.copy_(torch.as_tensor(preferences, dtype=torch.float32).T)
        policy.layers[0].bias.zero_()
    return policy


SHORTEST = -GRAPH.distances[GRAPH.successors]
LONGEST = GRAPH.distances[GRAPH.successors]  # away from the goal: it never arrives where it can avoid it


def lost():
    """Starts from which the policy that avoids the goal never reaches it, found by following the policy."""
    found = []
    for start in GRAPH.starts:
        node = start
        for _ in range(len(GRAPH.successors)):
            node = GRAPH.successors[node, LONGEST[node].argmax()] if node != GRAPH.goal else node
        found.append(node != GRAPH.goal)
    return np.array(found)


def played(policy):
    return play_seeded_episodes("graph", wrap_as_player(policy), 19, 0)


def test_a_walk_goes_on_past_the_time_limit_as_q_values_have_it():
    """By hand: a walk that never arrives is worth -1 / (1 - gamma), not the rewards of its first ten steps."""
    policy = towards(LONGEST)
    seen = played(policy)
    assert lost().any()
    assert (seen.lengths[lost()] == WALK).all()
    found = value_estimates.measure_true_return("graph", wrap_as_player(policy), seen, GAMMA, 0)
    assert lost().all() or (seen.lengths[~lost()] < WALK).all()
    ended = seen.compute_discounted_returns(GAMMA)
    expected = np.where(lost(), -1 / (1 - GAMMA), ended).mean()
    assert found.value == pytest.approx(expected, rel=2 * value_estimates.TAIL)
    assert abs(ended.mean() - expected) > 1
    assert found.cut == 0


def test_what_arrives_is_played_once(monkeypatch):
    seen = played(towards(SHORTEST))
    monkeypatch.setattr(value_estimates, "play_seeded_episodes", lambda *_, **__: pytest.fail("played again"))
    found = value_estimates.measure_true_return("graph", wrap_as_player(towards(SHORTEST)), seen, GAMMA, 0)
    assert found == value_estimates.Truth(pytest.approx(GOOD.mean()), 0.0)
    assert value_estimates.measure_true_return("graph", wrap_as_player(towards(LONGEST)), seen, 0.0, 0).value == -1.0, (
        "one step is the horizon"
    )


def test_without_a_discount_it_is_told_how_much_was_cut_off():
    policy = towards(LONGEST)
    seen = played(policy)
    found = value_estimates.measure_true_return("graph", wrap_as_player(policy), seen, 1.0, 0)
    assert found.value == seen.returns.mean()
    assert found.cut == lost().mean()


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Random walks in the graph."""
    return dataset_files.read_offline_dataset(record(tmp_path_factory.mktemp("walks") / "graph-200", "graph", 200))


def test_the_graph_s_true_value_is_reached_within_the_tolerance(recording):
    """Of the policy of shortest paths and of one that never arrives. The data are random walks that use every edge."""
    data = recording.transitions
    edges = 3 * data.observations.argmax(1) + data.actions
    assert len(edges.unique()) == 3 * len(GRAPH.starts)
    settings = {"batch_size": 128, "hidden": [], "learning_rate": 0.05, "target_rate": 0.5}
    config = FittedQConfig(most_steps=20_000, seeds=1, tolerance=0.05, **settings)
    policies = [towards(SHORTEST), towards(LONGEST)]
    fits = value_estimates.run_fitted_q_evaluation(
        config, policies, [0, 0], recording, played(policies[0]).initial, GAMMA
    )
    for policy, fit in zip(policies, fits, strict=True):
        expected = value_estimates.measure_true_return("graph", wrap_as_player(policy), played(policy), GAMMA, 0).value
        assert fit.converged
        assert fit.curve[-1]["step"] < 20_000
        assert fit.value == pytest.approx(expected, abs=config.tolerance * fitted_q.compute_return_scale(data, GAMMA))

import numpy as np
import pytest

from tasks.offline.environments.graph import Graph, draw_random_graph

# 0 -> 1 or 2, 1 -> 2 or 0, 2 -> 3 or 0; 4 is a pair of dead ends to itself; the goal is 3.
SMALL = Graph(np.array([[1, 2], [2, 0], [3, 0], [0, 1], [4, 4]]), goal=3)


def test_distances_by_hand():
    assert SMALL.distances.tolist() == [2, 2, 1, 0, 5], "5 nodes: out of reach"
    assert SMALL.starts.tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize("seed", range(5))
def test_a_random_graph_is_what_was_asked_for(seed):
    graph = draw_random_graph(nodes=12, degree=2, longest=4, seed=seed)
    assert graph.successors.shape == (12, 2)
    assert graph.goal == 11
    assert 1 < graph.distances.max() <= 4
    for node, after in enumerate(graph.successors):
        assert node not in after
        assert len(set(after)) == 2


def test_distances_are_those_of_a_search():
    graph = draw_random_graph(nodes=15, degree=2, longest=6, seed=1)
    for start in range(15):
        reached, steps = {start}, 0
        while graph.goal not in reached:
            reached, steps = {int(after) for node in reached for after in graph.successors[node]} | reached, steps + 1
        assert graph.distances[start] == steps


def test_the_seed_is_the_graph():
    one, same, other = (draw_random_graph(20, 3, 5, seed).successors for seed in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()

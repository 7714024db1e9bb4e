"""Shortest paths as a decision problem: a random directed graph, a goal, and -1 a step until it is reached.

The task of the Decision Transformer's introduction (Chen et al. 2021, arXiv:2106.01345, figure 2): a random walk's
return is minus the number of its steps, so a method must stitch walks to find a path that none of them took.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Graph:
    """`successors` (nodes, degree): where each edge of each node leads."""

    successors: NDArray[np.int64]
    goal: int

    @cached_property
    def distances(self) -> NDArray[np.int64]:
        """The fewest steps from each node to the goal, by dynamic programming: (nodes,); unreachable ones get
        `nodes`.
        """
        nodes = len(self.successors)
        distances = np.full(nodes, nodes)
        distances[self.goal] = 0
        for _ in range(nodes):
            distances = np.minimum(distances, 1 + distances[self.successors].min(axis=1))
        return distances

    @property
    def starts(self) -> NDArray[np.int64]:
        """Every node but the goal: (nodes - 1,)."""
        return np.flatnonzero(np.arange(len(self.successors)) != self.goal)


def draw_random_graph(nodes: int, degree: int, longest: int, seed: int) -> Graph:
    """A graph with `degree` edges from each node to distinct others, whose goal is at most `longest` steps from
    anywhere.

    The goal is the last node. Graphs are drawn until one has that property.
    """
    generator = np.random.default_rng(seed)
    while True:
        rows = [generator.choice(np.delete(np.arange(nodes), node), degree, replace=False) for node in range(nodes)]
        graph = Graph(np.stack(rows), nodes - 1)
        if graph.distances.max() <= longest:
            return graph

"""Two small discrete environments whose optimum is known: walks in a graph, and a key that opens a door much later."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tasks.offline.environments import graph, key_to_door

Seen = NDArray[np.float32]
Info = dict[str, Any]  # what Gymnasium passes beside observations
GRAPH = graph.draw_random_graph(nodes=20, degree=3, longest=4, seed=3)
WALK = 10  # steps until a walk in the graph is truncated


class GraphEnv(gymnasium.Env[Seen, int]):
    """Walks to the goal of GRAPH; the node is seen one-hot, an action is the number of an edge.

    Seeds choose the start in turn, so that 19 episodes seeded in a row play every start once.
    """

    def __init__(self, limit: int | None = None) -> None:
        nodes, degree = GRAPH.successors.shape
        self.limit = limit or WALK
        self.observation_space = spaces.Box(0, 1, (nodes,), np.float32)
        self.action_space = spaces.Discrete(degree)  # type: ignore[assignment]  # numpy's int64 is its type, int does as well
        self.node = 0
        self.moves = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Seen, Info]:
        """Begin at a start; `options["start"]` chooses a node."""
        super().reset(seed=seed)
        turn = int(self.np_random.integers(len(GRAPH.starts))) if seed is None else seed % len(GRAPH.starts)
        self.node = int((options or {}).get("start", GRAPH.starts[turn]))
        self.moves = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Seen, float, bool, bool, Info]:
        """Follow an edge."""
        self.node = int(GRAPH.successors[self.node, action])
        self.moves = self.moves + 1
        at_goal = self.node == GRAPH.goal
        return self._observation(), -1.0, at_goal, not at_goal and self.moves == self.limit, {}

    def _observation(self) -> Seen:
        row: Seen = np.eye(len(GRAPH.successors), dtype=np.float32)[self.node]
        return row


class KeyToDoorEnv(gymnasium.Env[Seen, int]):
    """The rooms of tasks/offline/environments/key_to_door.py; the third room's end is an end, not a truncation."""

    def __init__(self, limit: int | None = None) -> None:
        """Every episode ends by itself, whatever the `limit`."""
        self.observation_space = spaces.Box(0, 1, (key_to_door.SIZE,), np.float32)
        self.action_space = spaces.Discrete(len(key_to_door.ACTIONS))  # type: ignore[assignment]  # the same
        self.state: key_to_door.KeyToDoorState

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Seen, Info]:
        """Begin in the first room."""
        super().reset(seed=seed)
        self.state = key_to_door.draw_initial_state(self.np_random)
        return key_to_door.encode_key_to_door_observation(self.state), {}

    def step(self, action: int) -> tuple[Seen, float, bool, bool, Info]:
        """One move."""
        self.state, reward, ended = key_to_door.step_key_to_door(self.state, int(action), self.np_random)
        return key_to_door.encode_key_to_door_observation(self.state), reward, ended, False, {}

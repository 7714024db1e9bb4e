"""Environments that are asked for a goal, in Gymnasium's Dict form, and two of our own whose optimum is known.

An observation has `observation`, `achieved_goal` and `desired_goal`, and `compute_reward(achieved_goal, desired_goal, info)` says what any
goal would have been paid, for rows side by side; Gymnasium-Robotics' have the same. `bit-flip` is that of hindsight experience
replay's introduction (arXiv:1707.01495, section 3.1); `goal-graph` a graph whose every node may be the goal. Both pay 0 where
the goal is reached, which ends the episode, and -1 elsewhere.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tasks.offline.environments import graph

BITS = 15
NODES = graph.random_graph(nodes=60, degree=3, longest=6, seed=0)
LONGEST_WALK = 12  # steps until a walk is truncated
ACHIEVED, DESIRED = "achieved_goal", "desired_goal"

Row = NDArray[np.float32]
Seen = dict[str, Row]


class GoalEnv(gymnasium.Env[Seen, int]):
    """A state that is a row of zeros and ones, and a goal that is another; a new episode draws both, and they differ."""

    def __init__(self, size: int, actions: int, limit: int) -> None:
        row = spaces.Box(0, 1, (size,), np.float32)
        parts = spaces.Dict({ACHIEVED: row, DESIRED: row, "observation": row})
        self.observation_space = parts  # type: ignore[assignment]  # a Dict of arrays is a space of dicts of arrays
        self.action_space = spaces.Discrete(actions)  # type: ignore[assignment]  # numpy's int64 is its type, int does as well
        self.limit, self.moves = limit, 0
        self.state, self.goal = np.zeros(size, np.float32), np.ones(size, np.float32)

    def drawn(self) -> Row:
        """A random state."""
        raise NotImplementedError

    def moved(self, action: int) -> Row:
        """The state that follows."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Draw a state and a goal."""
        super().reset(seed=seed)
        self.state, self.goal, self.moves = self.drawn(), self.drawn(), 0
        while (self.state == self.goal).all():
            self.goal = self.drawn()
        return self._observation(), {}

    def step(self, action: int) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One move."""
        self.state, self.moves = self.moved(int(action)), self.moves + 1
        reached = bool(self.compute_terminated(self.state, self.goal, {}))
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self._observation(), reward, reached, not reached and self.moves == self.limit, {}

    def compute_reward(self, achieved_goal: Row, desired_goal: Row, info: object) -> Row:
        """0 where they are the same, else -1: (.., G) to (..)."""
        return np.asarray(self.compute_terminated(achieved_goal, desired_goal, info), np.float32) - 1

    def compute_terminated(self, achieved_goal: Row, desired_goal: Row, info: object) -> NDArray[np.bool_]:
        """Whether they are the same: (.., G) to (..)."""
        same: NDArray[np.bool_] = (achieved_goal == desired_goal).all(-1)
        return same

    def _observation(self) -> Seen:
        return {ACHIEVED: self.state.copy(), DESIRED: self.goal.copy(), "observation": self.state.copy()}


class BitFlipEnv(GoalEnv):
    """BITS bits; an action flips one of them. By chance the goal is met once in 2^BITS states."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(BITS, BITS, limit or BITS)

    def drawn(self) -> Row:
        """Every bit by a fair coin."""
        return self.np_random.integers(2, size=BITS).astype(np.float32)

    def moved(self, action: int) -> Row:
        """The state with one bit flipped."""
        following = self.state.copy()
        following[action] = 1 - following[action]
        return following


class GoalGraphEnv(GoalEnv):
    """Walks in NODES, whose nodes are seen one-hot; an action is the number of an edge."""

    def __init__(self, limit: int | None = None) -> None:
        nodes, degree = NODES.successors.shape
        super().__init__(nodes, degree, limit or LONGEST_WALK)

    def drawn(self) -> Row:
        """Every node is as likely."""
        return _one_hot(int(self.np_random.integers(len(NODES.successors))))

    def moved(self, action: int) -> Row:
        """The node at the edge's end."""
        return _one_hot(int(NODES.successors[int(self.state.argmax()), action]))


def _one_hot(node: int) -> Row:
    row: Row = np.eye(len(NODES.successors), dtype=np.float32)[node]
    return row


def bit_flip_optimum() -> float:
    """The mean return of the best policy: of d bits that differ, each -1 but for the last, over states and goals that differ."""
    return 1 - (BITS / 2) / (1 - 2.0**-BITS)


def goal_graph_optimum() -> float:
    """The mean return of the best policy, over all pairs of nodes; a goal that is too far costs the whole walk."""
    successors = NODES.successors
    nodes = range(len(successors))
    found = np.stack([graph.Graph(successors, goal).distances for goal in nodes])
    costs = np.where(found <= LONGEST_WALK, found - 1, LONGEST_WALK)
    return float(-costs[~np.eye(len(successors), dtype=bool)].mean())

"""Environments that are asked for a goal, in Gymnasium's Dict form, and three of our own whose optimum is known.

An observation has `observation`, `achieved_goal` and `desired_goal`, and `compute_reward(achieved_goal, desired_goal,
info)` says what any goal would have been paid, for rows side by side. `bit-flip` is that of hindsight experience
replay's introduction (arXiv:1707.01495, section 3.1); `goal-graph` a graph whose every node may be the goal; `reach` a
point in a square, which is pushed. They pay 0 where the goal is reached, which ends the episode, and -1 elsewhere.
"""

from math import ceil
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tasks.offline.environments import graph

BITS = 15
# of `goal-graph`
NODES = 60
DEGREE = 3
LONGEST_WALK = 12  # steps until a walk is truncated; no two nodes are further apart
# of `reach`, whose side is 2: how far an action moves, and how near a goal is reached
STRIDE = 0.1
NEAR = 0.05
PUSHES = 50  # steps until it is cut off
ACHIEVED = "achieved_goal"
DESIRED = "desired_goal"

Row = NDArray[np.float32]
Seen = dict[str, Row]


def _draw_graph_edges() -> NDArray[np.int64]:
    """Where each edge leads, (NODES, DEGREE): one of a node's edges is part of a ring through all, so that every node
    is reached, and the others are random.
    """
    random = np.random.default_rng(0)
    ring = random.permutation(NODES)
    rows = []
    for node, following in sorted(zip(ring, np.roll(ring, -1), strict=True)):
        others = np.setdiff1d(np.arange(NODES), [node, following])
        rows.append(random.permutation([following, *random.choice(others, DEGREE - 1, replace=False)]))
    return np.array(rows)


SUCCESSORS = _draw_graph_edges()


class GoalEnv(gymnasium.Env[Seen, Any]):
    """A state that is a row of numbers, and a goal that is another; a new episode draws both, and the goal is not
    reached yet.
    """

    def __init__(self, row: spaces.Box, actions: spaces.Space[Any], limit: int) -> None:
        parts = spaces.Dict({ACHIEVED: row, DESIRED: row, "observation": row})
        self.observation_space = parts  # type: ignore[assignment]  # a Dict of arrays is a space of dicts of arrays
        self.action_space = actions
        self.limit = limit
        self.moves = 0
        self.state = self.goal = np.zeros(row.shape, np.float32)

    def drawn(self) -> Row:
        """A random state."""
        raise NotImplementedError

    def moved(self, action: Any) -> Row:
        """The state that follows."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Draw a state and a goal."""
        super().reset(seed=seed)
        self.state, self.goal, self.moves = self.drawn(), self.drawn(), 0
        while self.compute_terminated(self.state, self.goal, {}):
            self.goal = self.drawn()
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One move."""
        self.state = self.moved(action)
        self.moves = self.moves + 1
        reached = bool(self.compute_terminated(self.state, self.goal, {}))
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self._observation(), reward, reached, not reached and self.moves == self.limit, {}

    def compute_reward(self, achieved_goal: Row, desired_goal: Row, info: object) -> Row:
        """0 where the goal is reached, else -1: (.., G) to (..)."""
        return np.asarray(self.compute_terminated(achieved_goal, desired_goal, info), np.float32) - 1

    def compute_terminated(self, achieved_goal: Row, desired_goal: Row, info: object) -> NDArray[np.bool_]:
        """Whether the goal is reached, which is to be the same: (.., G) to (..)."""
        same: NDArray[np.bool_] = (achieved_goal == desired_goal).all(-1)
        return same

    def _observation(self) -> Seen:
        return {ACHIEVED: self.state.copy(), DESIRED: self.goal.copy(), "observation": self.state.copy()}


class BitFlipEnv(GoalEnv):
    """BITS bits; an action flips one of them. By chance the goal is met once in 2^BITS states."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(_make_binary_space(BITS), spaces.Discrete(BITS), limit or BITS)

    def drawn(self) -> Row:
        """Every bit by a fair coin."""
        return self.np_random.integers(2, size=BITS).astype(np.float32)

    def moved(self, action: Any) -> Row:
        """The state with one bit flipped."""
        following = self.state.copy()
        following[action] = 1 - following[action]
        return following


class GoalGraphEnv(GoalEnv):
    """Walks between NODES, which are seen one-hot; an action is the number of an edge."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(_make_binary_space(NODES), spaces.Discrete(DEGREE), limit or LONGEST_WALK)

    def drawn(self) -> Row:
        """Every node is as likely."""
        return _encode_node_as_one_hot(int(self.np_random.integers(NODES)))

    def moved(self, action: Any) -> Row:
        """The node at the edge's end."""
        return _encode_node_as_one_hot(int(SUCCESSORS[int(self.state.argmax()), int(action)]))


class ReachEnv(GoalEnv):
    """A point in the square from -1 to 1; an action within [-1, 1]^2 moves it by STRIDE times itself."""

    def __init__(self, limit: int | None = None) -> None:
        square = spaces.Box(-1, 1, (2,), np.float32)
        super().__init__(square, spaces.Box(-1, 1, (2,), np.float32), limit or PUSHES)

    def drawn(self) -> Row:
        """Anywhere."""
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def moved(self, action: Any) -> Row:
        """The place that it is pushed to; walls stop it."""
        row: Row = np.clip(self.state + STRIDE * np.clip(np.asarray(action, np.float32), -1, 1), -1, 1)
        return row

    def compute_terminated(self, achieved_goal: Row, desired_goal: Row, info: object) -> NDArray[np.bool_]:
        """Whether the goal is no further than NEAR: (.., 2) to (..)."""
        reached: NDArray[np.bool_] = np.linalg.norm(achieved_goal - desired_goal, axis=-1) <= NEAR
        return reached


def _make_binary_space(count: int) -> spaces.Box:
    return spaces.Box(0, 1, (count,), np.float32)


def _encode_node_as_one_hot(node: int) -> Row:
    row: Row = np.eye(NODES, dtype=np.float32)[node]
    return row


def compute_bit_flip_best_return() -> float:
    """The mean return of the best policy: of d bits that differ, each -1 but for the last, over states and goals that
    differ.
    """
    return 1 - (BITS / 2) / (1 - 2.0**-BITS)


def compute_goal_graph_best_return() -> float:
    """The mean return of the best policy, over all pairs of nodes."""
    apart = np.stack([graph.Graph(SUCCESSORS, goal).distances for goal in range(NODES)])
    return float(1 - apart[~np.eye(NODES, dtype=bool)].mean())


def compute_reach_best_return() -> float:
    """The mean return of the best policy, by a grid over how far apart place and goal are along each axis: each has the
    density 1 - d / 2 up to 2.
    """
    apart = (np.arange(400) + 0.5) / 200
    density = np.outer(1 - apart / 2, 1 - apart / 2)
    moves = np.zeros_like(density)
    for count in range(ceil(2 / STRIDE)):  # a move takes up to STRIDE off each, so that these many reach any goal
        left = np.maximum(0, apart - STRIDE * count)
        moves += np.hypot(left[:, None], left) > NEAR
    unreached = moves > 0
    return float(-((moves - 1) * density)[unreached].sum() / density[unreached].sum())

"""An environment like those of robotics packages: observations are a Dict with a goal.

Importing this module registers it.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

NAME, LONGEST = "Reach-v0", 5


class Reach(gymnasium.Env):
    """A point on a line that is moved by -2 to 2 towards a goal; the observation also has one of three tools, and two
    lamps.
    """

    def __init__(self, render_mode=None):
        self.observation_space = spaces.Dict(
            {
                "observation": spaces.Box(-np.inf, np.inf, (2,), np.float64),
                "desired_goal": spaces.Box(-np.inf, np.inf, (1,), np.float64),
                "achieved_goal": spaces.Box(-np.inf, np.inf, (1,), np.float64),
                "tool": spaces.Discrete(3),
                "panel": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-1, 1, (1, 2), np.float32)]),
            }
        )
        self.action_space = spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal, self.moves = 0.0, float(self.np_random.uniform(-3, 3)), 0
        return self._seen(), {}

    def step(self, action):
        self.at, self.moves = self.at + float(action[0]), self.moves + 1
        return self._seen(), -abs(self.at - self.goal), False, False, {}

    def _seen(self):
        lamps = np.array([self.moves % 2, 1], dtype=np.int8)
        return {
            "observation": np.array([self.at, self.moves], dtype=np.float64),
            "desired_goal": np.array([self.goal]),
            "achieved_goal": np.array([self.at]),
            "tool": np.int64(self.moves % 3),
            "panel": (lamps, np.array([[0.25, -0.5]], dtype=np.float32)),
        }


if NAME not in gymnasium.registry:
    gymnasium.register(NAME, entry_point="tests.tasks.goal:Reach", max_episode_steps=LONGEST)

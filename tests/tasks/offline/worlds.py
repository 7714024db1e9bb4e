"""Small data sets of random play and policies trained on them, for tests of the stages after training."""

from pathlib import Path

import numpy as np

from tasks.offline.configs.behaviour import BehaviourConfig, BehaviourTraining
from tasks.offline.datasets import dataset_files
from tasks.offline.datasets.dataset_files import ScoreReference
from tasks.offline.datasets.episodes import Episode
from tasks.offline.environments import simulators

CART = BehaviourTraining(
    id=None, steps=8192, medium=0.4, evaluate_every=2, learning_rate=0.002, gamma=0.98, entropy=0.0
)
NO_FILES = Path("environments/none")
NONE = CART.model_copy(update={"steps": 0})
BEHAVIOUR = BehaviourConfig(
    environments={"CartPole-v1": CART, "graph": NONE, "key-to-door": NONE, "Hopper-v5": NONE, "Reacher-v5": NONE},
    environment_files="environments/none",
    seed=0,
    copies=8,
    horizon=32,
    hidden=[32],
    lam=0.9,
    clip=0.2,
    epochs=8,
    minibatches=2,
    max_gradient=0.5,
    evaluate_episodes=5,
    finalists=3,
    final_episodes=15,
    measure_episodes=20,
)

FEW_EPISODES = {"evaluate_episodes": 1, "finalists": 1, "final_episodes": 2, "measure_episodes": 5}
BRIEFLY = BEHAVIOUR.model_copy(update=FEW_EPISODES)  # where nothing is trained, or nothing need be good


def episode(scene, spaces, rng, seed):
    """One episode of random actions."""
    seen, actions, rewards, ends = [scene.reset(seed=seed)[0]], [], [], []
    while not ends or not (ends[-1][0] or ends[-1][1]):
        action = rng.integers(spaces.action) if spaces.discrete else rng.uniform(-1, 1, spaces.action)
        observation, reward, terminated, truncated, _ = scene.step(action)
        seen.append(observation)
        actions.append(action)
        rewards.append(reward)
        ends.append((terminated, truncated))
    terminations, truncations = np.array(ends).T
    return Episode(
        np.array(seen, dtype=np.float32),
        np.array(actions, dtype=np.int64 if spaces.discrete else np.float32),
        np.array(rewards, dtype=np.float32),
        terminations,
        truncations,
    )


def record(path, environment, episodes, reference=None):
    """A data set of `episodes` random episodes in the folder `path`; a random policy scores 0, the return `reference`
    100.
    """
    rng, scene, spaces = (
        np.random.default_rng(0),
        simulators.make_offline_environment(environment),
        simulators.get_policy_spaces(environment),
    )
    played = [episode(scene, spaces, rng, seed) for seed in range(episodes)]
    scene.close()
    lowest = float(np.mean([one.rewards.sum() for one in played]))
    dataset_files.write_offline_dataset(
        path, environment, played, reference or ScoreReference(lowest, lowest + 100), {}
    )
    return path

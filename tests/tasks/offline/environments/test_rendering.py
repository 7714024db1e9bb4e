import io
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image

from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences
from tasks.offline.environments import rendering, simulators
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player

ENVIRONMENTS = [
    "CartPole-v1",
    "LunarLander-v3",
    "graph",
    "key-to-door",
    "bit-flip",
    "goal-graph",
    "reach",
    "Hopper-v5",
    "Reacher-v5",
]


def player(environment):
    torch.manual_seed(0)
    spaces = simulators.get_policy_spaces(environment)
    return wrap_as_player((Preferences if spaces.discrete else MeanAction)(spaces, [8]))


@cache
def filmed(environment):
    """The episode with seed 3, filmed once: its picture, and what it came to."""
    return rendering.render_episode_gif(environment, player(environment), 3)


def frames(picture):
    image = Image.open(io.BytesIO(picture))
    for number in range(image.n_frames):
        image.seek(number)
        yield np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_episode_moves_in_few_bytes(environment):
    picture, played = filmed(environment)
    assert len(picture) <= rendering.LIMIT
    shown = list(frames(picture))
    assert len(shown) > 1
    assert shown[0].shape == (rendering.SIZE[1], rendering.SIZE[0], 3)
    assert (shown[0] != shown[-1]).any()
    assert len(np.unique(shown[0].reshape(-1, 3), axis=0)) > 2  # something is drawn
    assert played.returns.tolist() == play_seeded_episodes(environment, player(environment), 1, 3).returns.tolist()


def test_an_environment_that_cannot_draw_itself_is_blank(monkeypatch):
    def broken(self):
        raise RuntimeError("no display")

    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.render", broken)
    picture, played = rendering.render_episode_gif("CartPole-v1", player("CartPole-v1"), 3)
    assert {len(np.unique(frame.reshape(-1, 3), axis=0)) for frame in frames(picture)} == {1}
    assert played.lengths[0] > 1


@pytest.mark.parametrize("environment", ["CartPole-v1", "graph", "Reacher-v5"])
def test_the_same_episode_is_the_same_picture(environment):
    """Of another package's drawing, of our own, and of MuJoCo's."""
    assert rendering.render_episode_gif(environment, player(environment), 3)[0] == filmed(environment)[0]


def test_another_episode_is_another_picture():
    assert filmed("graph")[0] != rendering.render_episode_gif("graph", player("graph"), 4)[0]


def test_an_episode_takes_its_own_time(monkeypatch):
    """If frames are left out the others last longer: 100 steps at 50 a second take 2 s, however few frames show
    them.
    """
    for limit in (rendering.FRAMES, 10):
        monkeypatch.setattr(rendering, "FRAMES", limit)
        camera = rendering.Camera()
        scene = simulators.make_offline_environment("CartPole-v1")
        scene.reset(seed=0)
        for step in range(101):
            scene.unwrapped.state = np.array([step / 100, 0, step / 500, 0])
            camera(scene)
        image = Image.open(io.BytesIO(camera.encode_gif()))
        assert image.n_frames <= limit
        total = 0
        for number in range(image.n_frames):
            image.seek(number)
            total += image.info["duration"]
        assert total == pytest.approx(2000, rel=0.12)


def test_a_picture_that_would_be_too_large_has_fewer_frames(monkeypatch):
    large = filmed("LunarLander-v3")[0]
    monkeypatch.setattr(rendering, "LIMIT", len(large) // 2)
    small = rendering.render_episode_gif("LunarLander-v3", player("LunarLander-v3"), 3)[0]
    assert len(small) <= len(large) // 2
    assert 1 < len(list(frames(small))) < len(list(frames(large)))


def test_the_walk_is_drawn_to_where_it_has_come():
    graph = simulators.GRAPH
    walks = ([0], [0, int(graph.successors[0, 0])])
    one, two = (rendering._draw_graph_walk(graph.successors, graph.goal, trail) for trail in walks)
    colour = tuple(int(rendering.COLOUR[at : at + 2], 16) for at in (1, 3, 5))
    blue = [(np.asarray(image) == colour).all(axis=2).sum() for image in (one, two)]
    assert blue[0] > 0  # the node itself
    assert blue[1] > blue[0] + 50  # and an edge

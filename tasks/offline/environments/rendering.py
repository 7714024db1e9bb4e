"""An episode as a small animated picture (GIF), drawn without a display; the same episode gives the same bytes.

MuJoCo's own renderer wants OpenGL, so its bodies are drawn here: the capsules and spheres of each, seen from the side,
or from above where all of them lie flat. Other environments draw themselves, or stay blank where they cannot.
"""

import io
import os
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tasks.offline.environments import goals, key_to_door
from tasks.offline.environments.discrete import GRAPH, GraphEnv, KeyToDoorEnv
from tasks.offline.environments.rollouts import EpisodeOutcomes, Player, play_seeded_episodes
from tasks.offline.environments.simulators import Plain

SIZE = (300, 200)  # pixels
# at most; a longer episode has fewer frames a second, in real time all the same
FRAMES_A_SECOND = 15
FRAMES = 120
COLOURS = 32
LIMIT = 300_000  # bytes
SLOW = 2.0  # steps a second of environments that do not say
SKY = "#f4f6f8"
GROUND = "#cfd6dc"
GRID = "#aab4bd"
COLOUR = "#0072B2"
INK = "#1c1c1c"
# metres seen; of reach, from above; each pixel is drawn as FINER x FINER
HEIGHT = 2.0
ROOM = 0.28
FINER = 2


def render_episode_gif(environment: str, player: Player, seed: int) -> tuple[bytes, EpisodeOutcomes]:
    """One whole episode as a GIF of at most LIMIT bytes, and what it came to."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws to memory
    camera = Camera()
    played = play_seeded_episodes(environment, player, 1, seed, camera)
    return camera.encode_gif(), played


class Camera:
    """Takes a frame of an environment whenever it is time for one."""

    def __init__(self) -> None:
        self.frames: list[Image.Image] = []
        self.steps = 0
        self.every = 1
        self.rate = SLOW
        self.trail: list[int] = []

    def __call__(self, scene: Plain) -> None:
        """Called before the first step and after each."""
        inner = scene.unwrapped
        if isinstance(inner, GraphEnv):
            self.trail.append(inner.node)
        if isinstance(inner, goals.GoalGraphEnv):
            self.trail.append(int(inner.state.argmax()))
        if self.steps == 0:
            self.rate = float(scene.metadata.get("render_fps", SLOW))
            self.every = max(1, round(self.rate / FRAMES_A_SECOND))
        if self.steps % self.every == 0:
            self.frames.append(self._draw_frame(inner))
        self.steps += 1

    def _draw_frame(self, inner: Any) -> Image.Image:
        if isinstance(inner, GraphEnv):
            return _draw_graph_walk(GRAPH.successors, GRAPH.goal, self.trail)
        if isinstance(inner, KeyToDoorEnv):
            return _draw_key_to_door_rooms(inner.state)
        if isinstance(inner, goals.GoalGraphEnv):
            return _draw_graph_walk(goals.SUCCESSORS, int(inner.goal.argmax()), self.trail)
        if isinstance(inner, goals.ReachEnv):
            return _draw_reach_square(inner)
        if isinstance(inner, goals.BitFlipEnv):
            return _draw_bit_rows(inner)
        if hasattr(inner, "data") and hasattr(inner, "model"):
            return _draw_mujoco_bodies(inner.model, inner.data)
        if "rgb_array" not in inner.metadata.get("render_modes", ()):
            return _downscale_image(_make_canvas()[0])
        inner.render_mode = "rgb_array"
        try:
            return Image.fromarray(inner.render()).resize(SIZE, Image.Resampling.BOX)
        except Exception:  # whatever runs in it: the numbers of an episode do not hang on its picture
            return _downscale_image(_make_canvas()[0])

    def encode_gif(self) -> bytes:
        """The frames, as many as fit."""
        step = ceil(len(self.frames) / FRAMES)
        while True:
            picture = _encode_gif(self.frames[::step], 1000 * self.every * step / self.rate)
            if len(picture) <= LIMIT or step >= len(self.frames):
                return picture
            step += 1


def _draw_graph_walk(successors: NDArray[np.int64], goal: int, trail: Sequence[int]) -> Image.Image:
    """The graph with its nodes on an ellipse: edges faint, the walk so far in colour, the goal ringed."""
    image, pen = _make_canvas()
    turns = np.linspace(0, 2 * np.pi, len(successors), endpoint=False)
    positions = np.stack([np.sin(turns), -np.cos(turns)], 1) * (0.45, 0.43) * image.size + np.array(image.size) / 2
    spots = [(float(x), float(y)) for x, y in positions]
    for node, following in enumerate(successors):
        for other in following:
            pen.line((*spots[node], *spots[other]), fill=GROUND, width=1)
    for node, other in pairwise(trail):
        pen.line((*spots[node], *spots[other]), fill=COLOUR, width=3 * FINER)
    for node, spot in enumerate(spots):
        pen.circle(
            spot, 5 * FINER, fill=COLOUR if node == trail[-1] else SKY if node not in trail else GRID, outline=INK
        )
    pen.circle(spots[goal], 8 * FINER, outline=INK, width=FINER)
    return _downscale_image(image)


def _draw_key_to_door_rooms(state: key_to_door.KeyToDoorState) -> Image.Image:
    """The three rooms side by side: the agent a disc (filled dark with the key), the key a ring, the door a bar."""
    image, pen = _make_canvas()
    cell = image.width / (key_to_door.ROOMS * (key_to_door.SIDE + 1))
    top = (image.height - key_to_door.SIDE * cell) / 2

    def corner(room: int, number: int) -> tuple[float, float]:
        row, column = divmod(number, key_to_door.SIDE)
        return (room * (key_to_door.SIDE + 1) + column + 0.5) * cell, top + row * cell

    for room in range(key_to_door.ROOMS):
        for number in range(key_to_door.SIDE**2):
            x, y = corner(room, number)
            pen.rectangle((x, y, x + cell, y + cell), outline=GROUND, width=FINER)
    x, y = corner(key_to_door.ROOMS - 1, state.door)
    pen.rectangle((x + 0.2 * cell, y, x + 0.8 * cell, y + cell), fill=GRID)
    if not state.carrying:
        x, y = corner(0, state.key)
        pen.circle((x + cell / 2, y + cell / 2), 0.25 * cell, outline=INK, width=2 * FINER)
    x, y = corner(state.room, state.cell)
    pen.circle((x + cell / 2, y + cell / 2), 0.35 * cell, fill=INK if state.carrying else COLOUR)
    return _downscale_image(image)


def _draw_bit_rows(scene: goals.BitFlipEnv) -> Image.Image:
    """The bits above those of the goal: dark where one is set, and in colour where both are."""
    image, pen = _make_canvas()
    side = min(image.width / len(scene.state), image.height / 4)
    left = (image.width - side * len(scene.state)) / 2
    for top, row in ((image.height / 2 - 1.5 * side, scene.state), (image.height / 2 + 0.5 * side, scene.goal)):
        for number, (bit, other) in enumerate(zip(row, scene.goal * scene.state, strict=True)):
            x = left + number * side
            pen.rectangle((x, top, x + side, top + side), fill=COLOUR if other else INK if bit else SKY, outline=GRID)
    return _downscale_image(image)


def _draw_reach_square(scene: goals.ReachEnv) -> Image.Image:
    """The square from above: the point a disc, the goal a ring as wide as what counts as reached."""
    image, pen = _make_canvas()
    half = 0.45 * image.height
    middle = (image.width / 2, image.height / 2)
    pen.rectangle((middle[0] - half, middle[1] - half, middle[0] + half, middle[1] + half), outline=GRID, width=FINER)
    goal, point = ((middle[0] + half * float(x), middle[1] - half * float(y)) for x, y in (scene.goal, scene.state))
    pen.circle(goal, goals.NEAR * half, outline=INK, width=FINER)
    pen.circle(point, 0.03 * half, fill=COLOUR)
    return _downscale_image(image)


def _draw_mujoco_bodies(model: Any, data: Any) -> Image.Image:
    """MuJoCo's geoms as thick lines and discs; the eye follows the first body that moves."""
    image, pen = _make_canvas()
    width, height = image.size
    round_ = (2, 3, 5)  # sphere, capsule, cylinder
    shown = [number for number in range(model.ngeom) if model.geom_type[number] in round_]
    centres = data.geom_xpos[shown]
    above = np.ptp(centres[:, 2]) < 0.1
    across, up, depth = (0, 1, 2) if above else (0, 2, 1)
    metre = height / (2 * ROOM if above else HEIGHT)
    middle = 0.0 if above else float(data.xpos[1, 0])
    base = height / 2 if above else 0.88 * height

    def place(point: NDArray[np.float64]) -> tuple[float, float]:
        return width / 2 + (point[across] - middle) * metre, base - point[up] * metre

    if not above:
        pen.rectangle((0, base, width, height), fill=GROUND)
        reach = width / metre / 2
        for mark in range(ceil(middle - reach), ceil(middle + reach)):  # one a metre
            x = place(np.array([mark, 0.0, 0.0]))[0]
            pen.line((x, base, x, base + 0.05 * height), fill=GRID, width=FINER)
    order = sorted(range(len(shown)), key=lambda row: float(centres[row, depth]) * (1 if above else -1))
    for row in order:
        number = shown[row]
        radius, half = model.geom_size[number, :2] * (1, model.geom_type[number] != 2)
        axis = data.geom_xmat[number].reshape(3, 3)[:, 2] * half
        colour = tuple(int(255 * part) for part in model.geom_rgba[number, :3])
        ends = [place(centres[row] - axis), place(centres[row] + axis)]
        pen.line(ends, fill=colour, width=max(1, round(2 * radius * metre)))
        for end in ends:
            pen.circle(end, radius * metre, fill=colour, outline=INK)
    return _downscale_image(image)


def _make_canvas() -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (SIZE[0] * FINER, SIZE[1] * FINER), SKY)
    return image, ImageDraw.Draw(image)


def _downscale_image(image: Image.Image) -> Image.Image:
    return image.resize(SIZE, Image.Resampling.BOX)


def _encode_gif(frames: Sequence[Image.Image], milliseconds: float) -> bytes:
    """The frames in one palette, repeated without end; a GIF counts in hundredths of a second."""
    some = frames[:: max(1, len(frames) // 8)]
    sheet = Image.new("RGB", (SIZE[0], SIZE[1] * len(some)))
    for number, frame in enumerate(some):
        sheet.paste(frame, (0, number * SIZE[1]))
    palette = sheet.quantize(COLOURS, Image.Quantize.MEDIANCUT)
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    buffer = io.BytesIO()
    first.save(
        buffer,
        "GIF",
        save_all=True,
        append_images=rest,
        duration=max(20, 10 * round(milliseconds / 10)),
        loop=0,
        optimize=True,
    )
    return buffer.getvalue()

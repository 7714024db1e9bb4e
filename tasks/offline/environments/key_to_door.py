"""Key to door: pick up a key in the first room, cross an empty one, open a door in the third; nothing tells what is
carried.

Reward is 1 at the door with the key, else 0: credit must reach back over the empty room (Mesnard et al. 2021,
arXiv:2011.09464; in the Decision Transformer's paper, section 5.4).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

SIDE = 4  # cells a side of each room
ROOMS = 3
MOVES = 8  # spent in each room; then the next begins
ACTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
SIZE = 2 * SIDE * SIDE + ROOMS  # of an observation


@dataclass(frozen=True)
class KeyToDoorState:
    """Where an episode stands; `key` and `door` are cells, as `cell` is: row * SIDE + column."""

    cell: int
    key: int
    door: int
    room: int = 0
    moves: int = 0  # made in this room
    carrying: bool = False


def draw_initial_state(generator: np.random.Generator) -> KeyToDoorState:
    """An episode's first state: agent and key apart from each other."""
    cell, key = generator.choice(SIDE * SIDE, 2, replace=False)
    return KeyToDoorState(int(cell), int(key), int(generator.integers(SIDE * SIDE)))


def step_key_to_door(
    state: KeyToDoorState, action: int, generator: np.random.Generator
) -> tuple[KeyToDoorState, float, bool]:
    """The next state, the reward, and whether that was the end. Walls stop the agent; a new room puts it anywhere."""
    row, column = divmod(state.cell, SIDE)
    down, right = ACTIONS[action]
    row = min(max(row + down, 0), SIDE - 1)
    column = min(max(column + right, 0), SIDE - 1)
    state = replace(state, cell=row * SIDE + column, moves=state.moves + 1)
    if state.room == 0 and state.cell == state.key:
        state = replace(state, carrying=True)
    if state.room == ROOMS - 1 and state.cell == state.door:
        return state, float(state.carrying), True
    if state.moves < MOVES:
        return state, 0.0, False
    if state.room == ROOMS - 1:
        return state, 0.0, True
    elsewhere = generator.choice(np.delete(np.arange(SIDE * SIDE), state.door))
    return replace(state, room=state.room + 1, moves=0, cell=int(elsewhere)), 0.0, False


def encode_key_to_door_observation(state: KeyToDoorState) -> NDArray[np.float32]:
    """What the agent sees, one-hot: its cell, the cell of the key or door in this room if there is one, and the
    room.
    """
    seen = np.zeros(SIZE, dtype=np.float32)
    seen[state.cell] = 1
    if state.room == 0 and not state.carrying:
        seen[SIDE * SIDE + state.key] = 1
    if state.room == ROOMS - 1:
        seen[SIDE * SIDE + state.door] = 1
    seen[2 * SIDE * SIDE + state.room] = 1
    return seen
